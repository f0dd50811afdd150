"""`chainrule info` on a run on a table."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.facts import gather, show, size_of
from chainrule.cli.table.train import columns_table
from chainrule.runs.table import TableRun


def info(run: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Show what a run on a table is: model, size, columns, best validation figure, how to continue.

    Args:
        run: The run directory.
        json: Print it as one JSON object.
    """
    opened = TableRun.open(run)
    facts = gather(opened)
    table, data, best = facts["facts"], facts["data"], facts["best"]
    if best is not None:
        best = facts["best"] = best | {"nats_per_row": best["nats_per_element"] * len(opened.schema.kept)}
    held_out = table["validation"]["name"] if table["validation"] else f"{data['validation_fraction']:.0%}, drawn"
    rows = {
        "data": f"{table['source']['name']} ({size_of(table['source']['bytes'])}), {len(table['columns'])} columns",
        "split": f"{table['rows']['train']:,} rows to train on, {table['rows']['valid']:,} held out ({held_out})",
        "sample": f"chainrule sample {quoted(run)} -n 16",
    }
    if best is not None:
        rows["best"] = f"{best['nats_per_row']:.4f} nats per row of the held-out rows, at step {best['step']:,}"
    show(facts, rows, ["columns", *("  " + line for line in columns_table(table))], json=json)
