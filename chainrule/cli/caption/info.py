"""`chainrule info` on a run on captioned pictures."""

import math
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.facts import gather, show, size_of
from chainrule.runs.caption import CaptionRun


def info(run: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Show what a run on captioned pictures is: model, size, data, best validation figure, how to continue.

    Args:
        run: The run directory.
        json: Print it as one JSON object.
    """
    facts = gather(CaptionRun.open(run))
    known, best = facts["facts"], facts["best"]
    train, valid = known["counts"]["train"], known["counts"]["valid"]
    rows = {
        "data": f"{known['source']['name']} ({size_of(known['source']['bytes'])}), {known['captions']['name']}",
        "split": f"{train['pictures']:,} pictures with {train['captions']:,} captions to train on, "
        f"{valid['pictures']:,} with {valid['captions']:,} held out",
        "vocabulary": f"{known['words']:,} words",
        "caption": f"chainrule caption {quoted(run)} picture.jpg",
    }
    if best is not None:
        rows["best"] = (
            f"BLEU-4 {best['bleu']:.2f}, perplexity {best['perplexity'] or math.inf:.4g}, at step {best['step']:,}"
        )
    show(facts, rows, json=json)
