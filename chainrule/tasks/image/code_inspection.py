"""Inside the code of a trained model of images: what is in use, what each dimension does, where images lie."""

from pathlib import Path
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer
from chainrule.tasks.code_page import STEPS, about_code, code_answer, traversal_words, traversed
from chainrule.tasks.page import checked_page, inspect_again

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from chainrule.data.images.source import Pixels
    from chainrule.diagnostics.active_units import LatentUse
    from chainrule.diagnostics.report.code_page import Labels
    from chainrule.latent import CodeModel
    from chainrule.tasks.image.inspection import ImageInspection
    from chainrule.tasks.image.task import ImageTask

_MOST = 1024  # held-out images
_PAIRS, _REBUILT = 16, 64  # that are shown, and whose error is


def inspect_codes(run: "ImageTask", options: "ImageInspection", *, out: Path | None, seed: int) -> Answer:
    """Inspect the code of a run on its held-out images."""
    import torch

    from chainrule.diagnostics.active_units import active_units
    from chainrule.diagnostics.report.code_page import code_sections
    from chainrule.tasks.image.code_images import code_model
    from chainrule.tasks.image.code_preview import held_out
    from chainrule.tasks.image.inspection import bright

    if options.pixel is not None:
        raise ValueError("--pixel: the receptive field is of models without a code: leave it out")
    page, model = checked_page(out, run.path), code_model(run, "cpu", "inspect")
    x = held_out(run, _MOST)
    use = active_units(model, x)
    generator = torch.Generator().manual_seed(seed)
    pairs, error, mean = _rebuilt(run, model, x, generator)
    count = f"{len(x):,} held-out image{'s' * (len(x) > 1)}"
    error_words = (
        f"The mean over {min(len(x), _REBUILT)} held-out images, black for 0 and white for {float(error.max()):.3g}, "
        f"of values from 0 to 1; {mean:.6f} on average."
    )
    sections = code_sections(
        use,
        "image",
        ("Held-out images, each with what the decoder makes of its code to the right.", pairs),
        (error_words, bright(error)),
        (traversal_words(use, "image"), _traversals(run, model, use, generator)),
        _labels(run, len(x)),
    )
    facts = {"images": len(x), "mean_squared_error": mean}
    lines = [f"mean squared error of reconstructions: {mean:.6f} of values from 0 to 1"]
    about = about_code(run, model, f"{run.config.facts['name']}, {run.reduction}; {count}")
    command = inspect_again(run, seed=seed)
    return code_answer(run, page, use, sections, facts, lines, about=about, command=command)


def _rebuilt(
    run: "ImageTask", model: "CodeModel", x: "Tensor", generator: "torch.Generator"
) -> "tuple[Pixels, Tensor, float]":
    """Pairs in a grid, the squared error of each pixel (H, W) of values from 0 to 1, and its mean."""
    import numpy as np
    import torch

    from chainrule.data.images import grid
    from chainrule.tasks.image.code_images import shown

    x = x[:_REBUILT]
    with torch.no_grad():
        rebuilt = model.from_codes(model.codes(x), generator=generator)
    error = ((rebuilt - x).double() / (run.reduction.levels - 1)) ** 2
    pairs = np.stack([shown(run, x[:_PAIRS]), shown(run, rebuilt[:_PAIRS])], 1)
    return grid(np.concatenate(list(pairs)), 8), error.mean((0, 1)), float(error.mean())


def _traversals(
    run: "ImageTask", model: "CodeModel", use: "LatentUse", generator: "torch.Generator"
) -> "dict[int, Pixels]":
    import torch

    from chainrule.data.images import grid
    from chainrule.tasks.image.code_images import shown

    strips, weight = {}, next(model.parameters())
    for place, _, codes in traversed(use):
        with torch.no_grad():
            drawn = model.from_codes(codes.to(weight), generator=generator)
        strips[place] = grid(shown(run, drawn), STEPS)
    return strips


def _labels(run: "ImageTask", count: int) -> "Labels | None":
    from chainrule.diagnostics.report.code_page import Labels

    numbers, classes = run.images().valid_labels, run.classes
    if numbers is None or classes is None:
        return None
    return Labels([classes[number] for number in numbers[:count].tolist()], "labels")
