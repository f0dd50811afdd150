"""`chainrule interpolate RUN A B`: from one input to another through the codes between theirs."""

from pathlib import Path
from typing import Any

from chainrule.cli.answers import show_answer
from chainrule.cli.offered import Device, offered
from chainrule.cli.signature import Input
from chainrule.tasks.abilities import Interpolates
from chainrule.tasks.display import Switch


@offered(Interpolates, "Interpolation")
def interpolate(
    run: Interpolates,
    first: Input,
    last: Input,
    /,
    *,
    options: Any,
    out: Path | None = None,
    seed: int = 0,
    device: Device = "auto",
    json: Switch = False,
) -> None:
    """Go from one input to another.

    Args:
        first: Where to begin.
        last: Where to end.
        out: The file to write.
        seed: Seed of a decoder that draws.
        json: Print what was written as one JSON object.
    """
    show_answer(run.interpolate((first, last), options, out=out, seed=seed, device=device), json=json)
