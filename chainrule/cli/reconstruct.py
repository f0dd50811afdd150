"""`chainrule reconstruct RUN DATA`: show data next to reconstructions from their codes."""

from pathlib import Path
from typing import Any

from chainrule.cli.answers import show_answer
from chainrule.cli.offered import Device, offered
from chainrule.cli.signature import Input
from chainrule.tasks.abilities import Reconstructs
from chainrule.tasks.display import Switch


@offered(Reconstructs, "Reconstruction")
def reconstruct(
    run: Reconstructs,
    data: Input,
    /,
    *,
    options: Any,
    out: Path | None = None,
    seed: int = 0,
    device: Device = "auto",
    json: Switch = False,
) -> None:
    """Encode data and decode the codes.

    Args:
        data: The data.
        out: The file to write.
        seed: Seed of a decoder that draws.
        json: Print what was written as one JSON object.
    """
    show_answer(run.reconstruct(data, options, out=out, seed=seed, device=device), json=json)
