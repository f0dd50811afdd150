"""Inside a trained image model: its masks, the pixels that a pixel depends on, and where the nats are."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainrule._app.heavy import np, torch
from chainrule._app.results import Report
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.display import counted
from chainrule._app.tasks.output import inspect_again, page_report

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.image.task import ImageTask
    from chainrule.data._images.source import Pixels
    from chainrule.diagnostics import ReceptiveField
    from chainrule.models import ImageModel


_ELEMENTS = 1 << 16  # of the images whose surprise is drawn


@dataclass(frozen=True)
class ImageInspection(CheckedOptions):
    """Look inside a trained image model: its masks, the pixels that a pixel depends on, and its blind spot.

    Derivatives on held-out images show which pixels influence a pixel; the masks show which may. Prints the findings,
    and writes a page (HTML, one file, needs no network).

    For a model with a code, shows how much of the code is in use, and remedies if it collapsed; reconstructions and
    their errors; images along each active dimension; a map of the codes, coloured by label.
    """

    pixel: str | None = None
    """Pixel of the receptive field: ROW,COLUMN from 0; the middle one by default."""
    rows: int = within(4, 1, 64)
    """Number of held-out images for the derivatives."""


def inspect_images(run: "ImageTask", data: str | None, options: ImageInspection, *, seed: int) -> Report:
    if data is not None:
        raise ValueError(f"inspect reads the run's held-out images, got {data}: leave it out")
    if run.has_code:
        from chainrule._app.tasks.image.codes import inspect_codes

        return inspect_codes(run, options, seed=seed)
    from chainrule._app.pages.image_page import field_image, image_sections, mask_images
    from chainrule._app.pages.page import Page
    from chainrule.diagnostics import receptive_field

    rows = options.rows
    row, column = _pixel(options.pixel, run.shape)
    model, masks = run.model(), mask_images(run.new_model(0))
    batch = run.held_out_batch(rows)
    field = receptive_field(model, (run.shape[0] - 1, row, column), batch.x, batch.context)
    surprise, words = _surprise(run, model)
    drawn, parameters = field_image(field), sum(weight.numel() for weight in model.parameters())
    lead = f"{run.config.model} with {counted(parameters, 'parameter')}; {run.facts.name}, {run.reduction}"
    command = inspect_again(run, pixel=options.pixel, rows=rows)
    sentences, unmasked = findings(field, rows), _unmasked(model)
    sections = image_sections(sentences, drawn, surprise, words, masks, unmasked)
    drawn_masks = [
        {"type": mask.mask_type, "kernel": list(mask.taps.shape), "layers": list(mask.layers)} for mask in masks
    ]
    figures = {"pixel": [row, column], **field.summary(), "masks": drawn_masks}
    lines = [*sentences]
    for mask in masks:
        last = f" ... {mask.layers[-1]}" if len(mask.layers) > 1 else ""
        lines.append(f"mask: {mask.title}: {mask.layers[0]}{last}")
    lines += [unmasked] if unmasked else []
    return page_report(run, Page(f"Inside {run.path}", lead, sections, command), figures, lines)


def findings(field: "ReceptiveField", rows: int) -> list[str]:
    """Describe the receptive field of a pixel in sentences."""
    from chainrule._app.pages.image_page import blind_side, pixel_of

    summary, (row, column) = field.summary(), pixel_of(field)
    sizes = {
        name: counted(summary[name], "element") for name in ("permitted", "declared", "blind_spot", "beyond_reach")
    }
    colour = "" if field.influence.shape[0] == 1 else ", its last colour"
    lines = [
        f"Pixel in row {row}, column {column}{colour}: it follows {sizes['permitted']} and depends on "
        f"{summary['reached']} of them, by derivatives on {counted(rows, 'held-out image')}."
    ]
    if summary["blind_spot"]:
        side = blind_side(field)
        lines.append(f"Blind spot: {sizes['blind_spot']} {side}, surrounded by visible pixels, cannot influence it.")
    else:
        lines.append("Blind spot: none.")
    if summary["beyond_reach"]:
        lines.append(f"Out of reach: {sizes['beyond_reach']}; more layers or larger kernels reach farther.")
    if summary["as_declared"]:
        lines.append(f"The model declares the same {sizes['declared']} (visible_past).")
    else:
        lines.append(
            f"The model declares {sizes['declared']} (visible_past), but some have no derivative on these images: read "
            "more images with --rows."
        )
    if later := summary["not_permitted"]:
        lines.append(f"It depends on {counted(later, 'element')} later in the order: the model is not causal!")
    return lines


def _surprise(run: "ImageTask", model: "ImageModel") -> "tuple[Pixels, str]":
    """Average the nats of each pixel over held-out images, as brightness."""
    batch = run.held_out_batch(max(1, _ELEMENTS // run.dimensions))
    with torch.no_grad():
        nats = -model(batch.x, batch.context).log_prob(batch.x).sum(1).mean(0)  # (H, W)
    words = (
        f"The mean over {len(batch.x)} held-out images, black for 0 and white for {float(nats.max()):.3g} nats of a "
        f"pixel; {float(nats.sum()):.2f} nats in all."
    )
    return bright(nats), words


def bright(numbers: "Tensor") -> "Pixels":
    """Scale numbers (H, W) to brightness, enlarged; the greatest is white."""
    scale = max(1, -(-280 // numbers.shape[1]))
    drawn = (np.asarray(numbers / numbers.max().clamp_min(1e-12)) * 255).round().clip(0, 255).astype(np.uint8)
    return drawn.repeat(scale, 0).repeat(scale, 1)


def _unmasked(model: "ImageModel") -> str:
    """Explain how layers without a mask keep the order."""
    from torch import nn

    from chainrule.layers import MaskedConv2d, MultiHeadAttention

    plain = [
        name for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d) and max(layer.kernel_size) > 1
    ]
    masked = [name for name, layer in model.named_modules() if isinstance(layer, MaskedConv2d)]
    if any(isinstance(layer, MultiHeadAttention) for layer in model.modules()):
        return "No masked layer: causal attention lets each element read only earlier elements."
    if not plain:
        return "" if masked else "This model has no masks: its layers are shifted instead."
    return (
        f"No mask: {counted(len(plain), 'convolution')} ({plain[0]}, ...) read the shifted image, so that "
        "their kernels cover no later pixel."
    )


def _pixel(text: str | None, shape: tuple[int, int, int]) -> tuple[int, int]:
    _, height, width = shape
    if text is None:
        return height // 2, width // 2
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise ValueError(f"--pixel: expected ROW,COLUMN such as {height // 2},{width // 2}, got {text!r:.40}")
    row, column = (int(part) for part in parts)
    if row >= height or column >= width:
        raise ValueError(
            f"--pixel: expected at most {height - 1},{width - 1} in an image of {height}×{width}, got {text}"
        )
    return row, column
