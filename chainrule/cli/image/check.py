"""`chainrule check` on a run on pictures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from chainrule.models import ImageModel
    from chainrule.runs.image import ImageRun

ROWS, SIDE = 4, 5


def check(run: Path, /, *, seed: int = 0, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Check that a trained model of pictures keeps the contract: causality, total probability, step = forward and more.

    The trained weights are put into the same model for pictures of 5×5 pixels, which has the same masks, and looked at
    on pieces of held-out pictures. Exit status 0 if every check holds, 1 if one fails.

    Args:
        run: The run directory.
        seed: Of the perturbations and samples that the checks draw.
        json: Print one JSON object a check, with "name", "ok", "applies" and "detail".
    """
    import torch

    from chainrule.cli.contract import check_contract
    from chainrule.data.images import image_batch
    from chainrule.runs.image import ImageRun

    opened = ImageRun.open(run)
    model, images = _small_model(opened), opened.images()
    _, height, width = model.image_shape
    top, left = (opened.shape[1] - height) // 2, (opened.shape[2] - width) // 2
    pieces = images.valid[:ROWS, :, top : top + height, left : left + width]
    labels = None if images.valid_labels is None else images.valid_labels[:ROWS]
    batch = image_batch(pieces, labels)
    if not json:
        print(f"on the middle {height}×{width} pixels of {len(pieces)} held-out pictures, with the trained weights")
    with torch.random.fork_rng(devices=[]):
        return check_contract(model, batch.x, batch.context, seed=seed, json=json)


def _small_model(run: "ImageRun") -> "ImageModel":
    """The trained weights in a model for small pictures."""
    channels, height, width = run.shape
    trained = run.model()
    small = run.model_of((channels, min(height, SIDE), min(width, SIDE)))
    small.load_state_dict(trained.state_dict())
    return small.eval()
