"""A look at a model with a code during training: pictures, and how much of the code is in use."""

from typing import TYPE_CHECKING, Any

from chainrule.tasks.codes import CodeWatch

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.latent import CodeModel
    from chainrule.tasks.image.task import ImageTask

_PICTURES, _PAIRS = 16, 8
_MEASURED = 256  # held-out pictures whose codes are looked at


class CodePreview:
    """Called at each validation: writes samples.png, draws of a variational model or reconstructions of another.

    Its text is that of a `chainrule.tasks.codes.CodeWatch`.

    Args:
        run: that is trained.
        width: characters of a line.
    """

    def __init__(self, run: "ImageTask", width: int):
        self._run, self._width, self._watch = run, width, CodeWatch()

    def __call__(self, trained: Any, step: int, seconds: float) -> str:
        from chainrule.data.atomic import write_bytes
        from chainrule.data.images import block_image, grid, png
        from chainrule.tasks.image.task import SAMPLES

        run = self._run
        pictures = self._pictures(trained, step)
        write_bytes(run.path / SAMPLES, png(grid(pictures)))
        shown = max(1, self._width // (min(run.shape[2], 32) + 2))
        use = self._watch.look(trained, held_out(run, _MEASURED))
        return f"{block_image(pictures[:shown])}\n{use}"

    def _pictures(self, model: "CodeModel", step: int) -> Any:
        import numpy as np
        import torch

        from chainrule.latent import LatentModel
        from chainrule.tasks.image.code_pictures import draw_codes, shown

        device = next(model.parameters()).device
        generator = torch.Generator(device).manual_seed(step)
        if isinstance(model, LatentModel):
            return draw_codes(self._run, model, _PICTURES, generator, mean=False)
        x = held_out(self._run, _PAIRS).to(device)
        pairs = np.stack([shown(self._run, x), shown(self._run, model.from_codes(model.codes(x)))], 1)
        return np.concatenate(list(pairs))


def held_out(run: "ImageTask", count: int) -> "Tensor":
    """The first held-out pictures, (B, C, H, W) levels."""
    from chainrule.data.images import image_batch

    return image_batch(run.images().valid[:count], None).x
