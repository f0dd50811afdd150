"""`chainrule inspect` on a run on pictures: masks, receptive field, blind spot."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule.cli.command_line import quoted

if TYPE_CHECKING:
    from chainrule.data.images.source import Pixels
    from chainrule.diagnostics.mask_pictures import MaskPicture
    from chainrule.diagnostics.receptive_field import ReceptiveField
    from chainrule.models import ImageModel
    from chainrule.runs.image import ImageRun

MOST_ROWS, _ELEMENTS = 64, 1 << 16


def inspect(
    run: Path,
    /,
    *,
    out: Path | None = None,
    pixel: str | None = None,
    rows: int = 4,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Look inside a trained model of pictures: its masks, what a pixel depends on, its blind spot if it has one.

    What a pixel depends on is found by derivatives of the trained model on held-out pictures, and compared with what
    the masks allow. Prints the findings, and writes a page (HTML, one file, needs no network) and beside it a PNG of
    the receptive field.

    Args:
        run: The run directory.
        out: The page, a name that ends in .html; report.html in the run directory if not given.
        pixel: Whose receptive field: ROW,COLUMN from 0; the one in the middle if not given.
        rows: Held-out pictures on which derivatives are taken.
        json: Print all findings as one JSON object, and nothing else, on standard output.
    """
    from chainrule.data.atomic import write_bytes, write_text
    from chainrule.data.images import png
    from chainrule.diagnostics.field_picture import field_picture
    from chainrule.diagnostics.mask_pictures import mask_pictures
    from chainrule.diagnostics.report.image_page import ImageReport, image_page
    from chainrule.runs.image import ImageRun

    if not 1 <= rows <= MOST_ROWS:
        raise ValueError(f"--rows: expected a whole number from 1 to {MOST_ROWS}, got {rows}")
    opened = ImageRun.open(run)
    page = _checked_page(out, run)
    row, column = _pixel(pixel, opened.shape)
    model, masks = opened.model(), mask_pictures(opened.new_model(0))
    field = _field(opened, model, row, column, rows)
    surprise, words = _surprise(opened, model)
    drawn, parameters = field_picture(field), sum(weight.numel() for weight in model.parameters())
    asked = "" if pixel is None else f" --pixel {pixel}"
    report = ImageReport(
        str(run),
        f"{opened.config.model} with {parameters:,} parameters; {opened.config.facts['name']}, {opened.reduction}",
        findings(field, rows),
        drawn,
        surprise,
        words,
        masks,
        _unmasked(model),
        f"chainrule inspect {quoted(run)}{asked} --rows {rows}",
    )
    picture = page.with_name("receptive-field.png" if out is None else f"{page.stem}.png")
    write_text(page, image_page(report))
    write_bytes(picture, png(drawn))
    if json:
        facts = {"run": str(run), "model": opened.config.model, "page": str(page), "picture": str(picture)}
        shown = {"pixel": [row, column], **field.summary(), "masks": [_mask_facts(mask) for mask in masks]}
        print(json_format.dumps(facts | shown))
        return
    print(f"{run}: {report.model}")
    for line in report.findings:
        print(line)
    for mask in masks:
        print(f"mask: {mask.title}: {mask.layers[0]}" + (f" ... {mask.layers[-1]}" if len(mask.layers) > 1 else ""))
    if report.unmasked:
        print(report.unmasked)
    print(f"page: {page}\npicture: {picture}")


def findings(field: "ReceptiveField", rows: int) -> list[str]:
    """What was found about a pixel, in sentences."""
    from chainrule.diagnostics.field_picture import blind_side, pixel_of

    summary, (row, column) = field.summary(), pixel_of(field)
    channels = field.influence.shape[0]
    colour = "" if channels == 1 else ", its last colour"
    pictures = f"{rows} held-out picture{'s' * (rows > 1)}"
    lines = [
        f"Pixel in row {row}, column {column}{colour}: it comes after {_counted(summary['permitted'])} and depends on "
        f"{summary['reached']} of them, by derivatives on {pictures}."
    ]
    if summary["blind_spot"]:
        lines.append(
            f"Blind spot: {_counted(summary['blind_spot'])} {blind_side(field)}, in the midst of those that are seen: "
            "no path leads from there."
        )
    else:
        lines.append("Blind spot: none.")
    if summary["beyond_reach"]:
        lines.append(
            f"Beyond its reach: {_counted(summary['beyond_reach'])}; more layers or larger kernels reach farther."
        )
    if summary["as_declared"]:
        lines.append(f"The masks allow the same {_counted(summary['declared'])} (visible_past).")
    else:
        lines.append(
            f"The masks allow {_counted(summary['declared'])} (visible_past): of the others no derivative is seen "
            "on these pictures; look at more with --rows."
        )
    if summary["not_permitted"]:
        lines.append(f"It depends on {_counted(summary['not_permitted'])} later in the order: the model is not causal!")
    return lines


def _counted(elements: int) -> str:
    return f"{elements:,} element{'s' * (elements != 1)}"


def _field(run: "ImageRun", model: "ImageModel", row: int, column: int, rows: int) -> "ReceptiveField":
    from chainrule.data.images import image_batch
    from chainrule.diagnostics.receptive_field import receptive_field

    images = run.images()
    labels = None if images.valid_labels is None else images.valid_labels[:rows]
    batch = image_batch(images.valid[:rows], labels)
    return receptive_field(model, (run.shape[0] - 1, row, column), batch.x, batch.context)


def _surprise(run: "ImageRun", model: "ImageModel") -> "tuple[Pixels, str]":
    """The mean nats of each pixel over some held-out pictures, as brightness."""
    import numpy as np
    import torch

    from chainrule.data.images import image_batch

    images = run.images()
    count = max(1, min(len(images.valid), _ELEMENTS // images.valid[0].size))
    labels = None if images.valid_labels is None else images.valid_labels[:count]
    batch = image_batch(images.valid[:count], labels)
    with torch.no_grad():
        nats = -model(batch.x, batch.context).log_prob(batch.x).sum(1).mean(0)  # (H, W)
    most = float(nats.max())
    scale = max(1, -(-280 // nats.shape[1]))
    drawn = (np.asarray(nats / max(most, 1e-12)) * 255).round().clip(0, 255).astype(np.uint8)
    words = (
        f"The mean over {count} held-out pictures, black for 0 and white for {most:.3g} nats of a pixel; "
        f"{float(nats.sum()):.2f} nats in all."
    )
    return drawn.repeat(scale, 0).repeat(scale, 1), words


def _unmasked(model: "ImageModel") -> str:
    """What keeps the order in layers that have no mask."""
    from torch import nn

    from chainrule.layers.masked_conv2d import MaskedConv2d

    plain = [
        name for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d) and max(layer.kernel_size) > 1
    ]
    masked = [name for name, layer in model.named_modules() if isinstance(layer, MaskedConv2d)]
    if not plain:
        return "" if masked else "This model has no masks: its layers are shifted instead."
    return (
        f"No mask: {len(plain)} convolution{'s' * (len(plain) > 1)} ({plain[0]}, ...), which read the picture shifted, "
        "so that nothing later is under their kernels."
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
            f"--pixel: expected at most {height - 1},{width - 1} in a picture of {height}×{width}, got {text}"
        )
    return row, column


def _mask_facts(mask: "MaskPicture") -> dict[str, Any]:
    return {"type": mask.mask_type, "kernel": list(mask.taps.shape), "layers": list(mask.layers)}


def _checked_page(out: Path | None, run: Path) -> Path:
    from chainrule.runs.run import REPORT

    page = run / REPORT if out is None else out
    if page.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out {page}: expected a name that ends in .html, so that no other file is replaced")
    if page.is_dir() or not page.parent.is_dir():
        raise ValueError(f"--out {page}: expected a file in a directory that is there")
    return page
