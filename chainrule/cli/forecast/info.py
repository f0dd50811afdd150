"""`chainrule info` on a run on series."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.facts import gather, show, size_of
from chainrule.runs.forecast import ForecastRun


def info(run: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Show what a run on series is: model, size, columns, best validation figure, how to continue.

    Args:
        run: The run directory.
        json: Print it as one JSON object.
    """
    opened = ForecastRun.open(run)
    facts, schema = gather(opened), opened.schema
    found, best = facts["facts"], facts["best"]
    rows = {
        "data": f"{found['source']['name']} ({size_of(found['source']['bytes'])}), "
        + ("rows without dates" if found["step"] is None else f"rows {found['step']}"),
        "forecast": f"{', '.join(schema.targets)}, {opened.data.horizon} rows ahead from {opened.history}",
        "known": ", ".join([*schema.covariates, *schema.calendar]) or "nothing",
        "split": f"{found['rows']['train']:,} rows to train on, the last {found['rows']['valid']:,} held out",
        "next": f"chainrule forecast {quoted(run)} series.csv --plot forecast.png",
    }
    if best is not None:
        rows["best"] = f"{best['nats_per_element']:.4f} nats per held-out value, at step {best['step']:,}"
    show(facts, rows, json=json)
