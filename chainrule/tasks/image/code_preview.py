"""A look at a model with a code during training."""

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.latent import CodeModel
    from chainrule.tasks.image.task import ImageTask
    from chainrule.training.validation import Observe

_IMAGES, _PAIRS = 16, 8
_MEASURED = 256  # held-out images whose codes are looked at


class CodePreview:
    """Called at each validation: writes samples.png, draws of a variational model or reconstructions of another.

    Args:
        run: that is trained.
        width: characters of a line.
    """

    def __init__(self, run: "ImageTask", width: int):
        self._run, self._width = run, width

    def __call__(self, trained: Any, step: int, seconds: float) -> str:
        from chainrule.data.atomic import write_bytes
        from chainrule.data.images import block_image, grid, png
        from chainrule.tasks.image.task import SAMPLES

        run = self._run
        images = self._images(trained, step)
        write_bytes(run.path / SAMPLES, png(grid(images)))
        shown = max(1, self._width // (min(run.shape[2], 32) + 2))
        return block_image(images[:shown])

    def _images(self, model: "CodeModel", step: int) -> Any:
        import numpy as np
        import torch

        from chainrule.latent import LatentModel
        from chainrule.tasks.image.code_images import draw_codes, shown

        device = next(model.parameters()).device
        generator = torch.Generator(device).manual_seed(step)
        if isinstance(model, LatentModel):
            return draw_codes(self._run, model, _IMAGES, generator, mean=False)
        x = held_out(self._run, _PAIRS).to(device)
        pairs = np.stack([shown(self._run, x), shown(self._run, model.from_codes(model.codes(x)))], 1)
        return np.concatenate(list(pairs))


def observer(run: "ImageTask") -> "Observe":
    """A function that finds how much of the code is in use."""
    from chainrule.tasks.codes import code_findings

    return lambda model: code_findings(cast("CodeModel", model), held_out(run, _MEASURED))


def held_out(run: "ImageTask", count: int) -> "Tensor":
    """The first held-out images, (B, C, H, W) levels."""
    from chainrule.data.images import image_batch

    return image_batch(run.images().valid[:count], None).x
