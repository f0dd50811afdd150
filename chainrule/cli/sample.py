"""`chainrule sample RUN`: draw from a trained model."""

from pathlib import Path
from secrets import randbelow
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule.cli.answers import show_answer
from chainrule.cli.offered import Device, offered
from chainrule.tasks.abilities import Samples
from chainrule.tasks.display import Switch

_MOST = 1 << 20


@offered(Samples, "Sampling")
def sample(
    run: Samples,
    /,
    *,
    n: Annotated[int | None, Parameter(name=["-n", "--number"])] = None,
    options: Any,
    out: Path | None = None,
    seed: int | None = None,
    device: Device = "cpu",
    json: Switch = False,
) -> None:
    """Draw.

    Args:
        n: How many.
        out: A file to write.
        seed: The same seed gives the same samples; new ones each time if not given.
        json: Print one JSON object for each.
    """
    count = run.USUAL_NUMBER if n is None else n
    if not 1 <= count <= _MOST:
        raise ValueError(f"-n: expected a whole number from 1 to {_MOST}, got {count}")
    if seed is not None and not 0 <= seed < 1 << 63:
        raise ValueError(f"--seed: expected a whole number from 0 to {(1 << 63) - 1}, got {seed}")
    chosen = randbelow(1 << 31) if seed is None else seed
    show_answer(run.sample(count, options, out=out, seed=chosen, device=device, json=json), json=json)
