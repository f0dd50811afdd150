"""`chainrule info` on a run of a classifier."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from chainrule.cli.classify.train import labels_with_shares
from chainrule.cli.command_line import quoted
from chainrule.cli.facts import gather, show
from chainrule.runs.classify import ClassifyRun


def info(run: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Show what a run is: model, size, texts, labels, best validation, how to continue.

    Args:
        run: The run directory.
        json: Print it as one JSON object.
    """
    facts = gather(ClassifyRun.open(run))
    found, best, train, valid = facts["facts"], facts["best"], facts["facts"]["train"], facts["facts"]["valid"]
    held_out = found["dev"]["name"] if found["dev"] else "rows of the same file"
    rows = {
        "data": f"{found['source']['name']}: {train['rows']:,} texts to train on, longest {train['longest']:,}",
        "held out": f"{valid['rows']:,} texts, {held_out}",
        "labels": labels_with_shares(found["labels"]),
        "symbols": f"{found['symbols']:,}, level {facts['data']['level']}",
        "classify": f"chainrule classify {quoted(run)} FILE",
    }
    if best is not None:
        rows["best"] = (
            f"accuracy {best['accuracy']:.2%} ({best['nats_per_element']:.4f} nats per text) at step {best['step']:,}"
        )
    show(facts, rows, json=json)
