"""`chainrule info` on a run on sounds."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.facts import gather, show
from chainrule.cli.sound.train import found
from chainrule.runs.sound import SoundRun


def info(run: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Show what a run on sounds is: model, size, sounds, best validation figure, how to continue.

    Args:
        run: The run directory.
        json: Print it as one JSON object.
    """
    opened = SoundRun.open(run)
    facts = gather(opened)
    lines, best = list(found(facts["facts"])), facts["best"]
    seen = facts["receptive_field"] = opened.new_model(0).receptive_field
    rows = {
        "data": lines[0],
        "sees": f"{seen:,} samples, {1000 * seen / opened.rate:.0f} ms",
        "sample": f"chainrule sample {quoted(run)} -n 3 --out new.wav",
    }
    if best is not None:
        rows["best"] = (
            f"{best['bits_per_element']:.4f} bits per sample of the held-out sounds, at step {best['step']:,}"
        )
    show(facts, rows, lines[1:], json=json)
