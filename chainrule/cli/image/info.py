"""`chainrule info` on a run on pictures."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.facts import gather, show, size_of
from chainrule.cli.image.train import said_labels
from chainrule.runs.image import ImageRun


def info(run: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Show what a run on pictures is: model, size, data, labels, best validation figure, how to continue.

    Args:
        run: The run directory.
        json: Print it as one JSON object.
    """
    from chainrule.data.images import said_shape

    opened = ImageRun.open(run)
    facts = gather(opened)
    images, data, best = facts["facts"], facts["data"], facts["best"]
    channels, height, width = opened.shape
    if best is not None:
        best = facts["best"] = best | {"nats_per_picture": best["nats_per_element"] * channels * height * width}
    held_out = images["validation"]["name"] if images["validation"] else f"{data['validation_fraction']:.0%}, drawn"
    counts = images["pictures"]
    rows = {
        "data": f"{images['name']} ({size_of(images['source']['bytes'])}), pictures of {said_shape(opened.shape)}",
        "values": str(opened.reduction),
        "labels": said_labels(opened.classes),
        "split": f"{counts['train']:,} pictures to train on, {counts['valid']:,} held out ({held_out})",
        "sample": f"chainrule sample {quoted(run)} -n 16",
    }
    if best is not None:
        rows["best"] = (
            f"{best['nats_per_picture']:.2f} nats per picture, {best['bits_per_element']:.4f} bits/dim of the held-out "
            f"pictures ({opened.reduction}), at step {best['step']:,}"
        )
    show(facts, rows, json=json)
