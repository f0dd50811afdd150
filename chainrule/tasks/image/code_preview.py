"""A look at a model with a code during training: pictures, and how much of the code is in use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.diagnostics.code_figures import CodeFigures
    from chainrule.diagnostics.collapse import CodeTraining
    from chainrule.latent import CodeModel
    from chainrule.tasks.image.task import ImageTask

_PICTURES, _PAIRS = 16, 8
_MEASURED = 256  # held-out pictures whose codes are looked at
_ROWS = 64  # read together
_WEAKENING = {"pixel-vae": "fewer --decoder-layers, a smaller --kernel-size"}


class CodePreview:
    """Called at each validation: writes samples.png, draws of a variational model or reconstructions of another.

    Its text tells how many dimensions are active, and warns where the posterior was collapsed twice in a row: at the
    very beginning it always is.

    Args:
        run: that is trained.
        width: characters of a line.
    """

    def __init__(self, run: "ImageTask", width: int):
        self._run, self._width, self._collapsed = run, width, 0

    def __call__(self, trained: Any, step: int, seconds: float) -> str:
        from chainrule.data.atomic import write_bytes
        from chainrule.data.images import block_picture, grid, png
        from chainrule.diagnostics.collapse import code_verdict
        from chainrule.tasks.image.task import SAMPLES

        run = self._run
        pictures = self._pictures(trained, step)
        write_bytes(run.path / SAMPLES, png(grid(pictures)))
        shown = max(1, self._width // (min(run.shape[2], 32) + 2))
        figures = code_figures(trained, held_out(run, _MEASURED))
        said, remedy = code_verdict(figures, code_training(run))
        self._collapsed = self._collapsed + 1 if remedy else 0
        lines = [block_picture(pictures[:shown]), said]
        if self._collapsed > 1:
            lines.append(f"warning: the posterior collapsed onto the prior. {remedy}")
        return "\n".join(lines)

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


def code_figures(model: "CodeModel", x: "Tensor") -> "CodeFigures":
    """The codes of pictures (B, C, H, W), and how much of them is in use; the draws of a layered code are seeded."""
    import torch

    from chainrule.diagnostics.code_figures import pooled_figures
    from chainrule.latent import LatentModel

    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        return pooled_figures(
            (
                model.codes(rows).float().cpu(),
                model.kl_terms(rows, generator).float().cpu() if isinstance(model, LatentModel) else None,
            )
            for rows in x.to(device).split(_ROWS)
        )


def code_training(run: "ImageTask") -> "CodeTraining":
    """What of a run's options the use of its code depends on."""
    from dataclasses import asdict

    from chainrule.diagnostics.collapse import CodeTraining

    options = asdict(run.config.options)
    known = {name: options[name] for name in ("beta", "free_bits", "kl_warmup") if name in options}
    return CodeTraining(**known, weakening=_WEAKENING.get(run.config.model, ""))
