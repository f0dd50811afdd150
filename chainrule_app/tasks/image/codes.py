"""Models of images with a code: embeddings, reconstructions, interpolations, samples, and a page about the code."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from chainrule.option_error import OptionError
from chainrule.ranges import Range
from chainrule_app.heavy import modes, np, torch
from chainrule_app.pages.result_figures import plane_figure
from chainrule_app.printing import counted, spelled
from chainrule_app.results import Column, Report, Result
from chainrule_app.tasks.codes import STEPS, code_report, traversals_of
from chainrule_app.tasks.config import CheckedOptions
from chainrule_app.tasks.image.image_data import ImageFiles
from chainrule_app.tasks.image.verbs import named_images, read_image, source_of
from chainrule_app.tasks.output import channels_last, inspect_again, page_report

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule import CodeModel
    from chainrule.diagnostics import LatentUse, ReceptiveField
    from chainrule.models import ImageModel
    from chainrule_app.pages.code_page import Labels
    from chainrule_app.readers.images.source import Pixels
    from chainrule_app.tasks.image.task import ImageTask


_MOST = 4096  # images of a file that is written
_COLUMNS = 4  # pairs side by side
_DRAWN, _PAIRS = 16, 8  # images of a preview
_LOOKED_AT = 1024  # held-out images whose codes are looked at
_SHOWN, _REBUILT = 16, 64  # pairs on the page, and images whose error is


@dataclass(frozen=True)
class ImageEmbedding(ImageFiles):
    """Embed images: the mean of the code of each, or the code itself of an autoencoder."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "A folder, an npz, npy or idx file, as for training.",
    }


@dataclass(frozen=True)
class ImageReconstruction(CheckedOptions, ImageFiles):
    """Draw a grid of images as a PNG file, each with its reconstruction to the right."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "A folder, an npz, npy or idx file, as for training.",
        "out": "The PNG file; RUN-pairs.png in the current folder by default.",
    }

    count: Annotated[int, Range(1, _MOST)] = 32
    """Number of images, from the beginning of DATA."""


@dataclass(frozen=True)
class ImageInterpolation(CheckedOptions):
    """Draw a row of images between two as a PNG file: their codes lie on a straight line.

    The row begins and ends with the two images, as the model reads them.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "first": "An image file.",
        "last": "Another image file.",
        "out": "The PNG file; RUN-row.png in the current folder by default.",
    }

    count: Annotated[int, Range(2, _MOST)] = 9
    """Number of images, including the reconstructions of both ends."""


def embed_images(run: "ImageTask", data: str, options: ImageEmbedding, *, device: str) -> Result:
    model = run.code_model(device, "embed")
    model_device = modes.device_of(model)

    def rows() -> Iterator[Sequence[Any]]:
        for images in named_images(run, source_of(run, data, skip_bad=options.skip_bad)):
            with torch.no_grad():
                codes = model.codes(images.x.to(model_device)).float().cpu().numpy()
            yield from zip(images.names, images.labels, codes, strict=True)

    return Result(
        [Column("input"), Column("label"), Column("code", heading="z")],
        rows(),
        main="code",
        form="csv",
        figure=plane_figure,
    )


def reconstruct_images(run: "ImageTask", data: str, options: ImageReconstruction, *, seed: int, device: str) -> Result:
    """Return images, each followed by its reconstruction."""
    model = run.code_model(device, "reconstruct")
    target_device = modes.device_of(model)
    generator = torch.Generator(target_device).manual_seed(seed)
    rows = list[Sequence[Any]]()
    for images in named_images(run, source_of(run, data, skip_bad=options.skip_bad)):
        x = images.x[: options.count - len(rows) // 2].to(target_device)
        with torch.no_grad():
            rebuilt = model.from_codes(model.codes(x), generator=generator)
        errors = ((rebuilt.cpu().double() - x.cpu()) ** 2).flatten(1).mean(1) / (run.reduction.levels - 1) ** 2
        pairs = zip(images.names, shown(run, x), shown(run, rebuilt), errors.tolist(), strict=False)
        for name, own, again, error in pairs:
            rows += [(channels_last(own), name, "image", None), (channels_last(again), name, "reconstruction", error)]
        if len(rows) == 2 * options.count:
            break
    if not rows:
        raise ValueError(f"{data}: expected at least one image, got none")
    mean = sum(row[3] or 0.0 for row in rows) / (len(rows) // 2)
    columns = [Column("image"), Column("input"), Column("kind"), Column("mean_squared_error", 6)]
    return Result(
        columns,
        rows,
        hints={"file": f"{run.path.resolve().name}-pairs.png", "columns": 2 * min(_COLUMNS, len(rows) // 2)},
        summary=lambda: {"images": len(rows) // 2, "mean_squared_error": mean},
        notes=lambda: [f"each image with its reconstruction to the right; mean squared error {mean:.6f}"],
        form="images",
    )


def interpolate_images(
    run: "ImageTask", ends: tuple[str, str], options: ImageInterpolation, *, seed: int, device: str
) -> Result:
    """Return the images between two, and the two at the ends."""
    model = run.code_model(device, "interpolate")
    levels = np.stack([read_image(run, end) for end in ends])
    x = torch.from_numpy(levels).long().to(modes.device_of(model))
    generator = torch.Generator(x.device).manual_seed(seed)
    with torch.no_grad():
        first, last = model.codes(x)
        shares = torch.linspace(0, 1, options.count, device=x.device, dtype=first.dtype)
        between = model.from_codes(torch.lerp(first, last, shares.unsqueeze(1)), generator=generator)
    images = np.concatenate([shown(run, x[:1]), shown(run, between), shown(run, x[1:])])
    places = [None, *shares.tolist(), None]
    hints = {"file": f"{run.path.resolve().name}-row.png", "columns": len(images)}
    rows = zip(map(channels_last, images), places, strict=True)
    return Result(
        [Column("image"), Column("share", 3)],
        rows,
        about={"from": str(ends[0]), "to": str(ends[1])},
        hints=hints,
        form="images",
    )


def draw_codes(run: "ImageTask", model: "CodeModel", n: int, generator: "torch.Generator", *, mean: bool) -> "Pixels":
    """Draw images from the prior, (n, C, H, W) of 8 bits; `mean` shows the expected image of each code."""
    from chainrule import LatentModel

    if not isinstance(model, LatentModel):
        raise ValueError(
            f"sample: the model {run.config.model} has no distribution to draw from: "
            "use `chainrule reconstruct` or `chainrule interpolate`"
        )
    with torch.no_grad():
        if mean:
            return shown(run, model.from_codes(model.prior_sample(n, generator), generator=generator))
        return shown(run, model.sample(n, generator))


def shown(run: "ImageTask", x: "Tensor") -> "Pixels":
    """Convert levels, or expected levels, (N, C, H, W) to 8 bits."""
    scale = 255 / (run.reduction.levels - 1)
    pixels: Pixels = (x.cpu().double().numpy() * scale).round().clip(0, 255).astype(np.uint8)
    return pixels


def preview_images(run: "ImageTask", model: "CodeModel", step: int) -> "Pixels":
    """Draw preview images: samples of a variational model, reconstructions of another."""
    from chainrule import LatentModel

    device = modes.device_of(model)
    if isinstance(model, LatentModel):
        return draw_codes(run, model, _DRAWN, torch.Generator(device).manual_seed(step), mean=False)
    x = run.held_out_batch(_PAIRS).x.to(device)
    return np.concatenate(list(np.stack([shown(run, x), shown(run, model.from_codes(model.codes(x)))], 1)))


def inspect_codes(run: "ImageTask", options: "ImageInspection", *, seed: int) -> Report:
    from chainrule.diagnostics import active_units

    if options.pixel is not None:
        raise OptionError("pixel", "only models without a code have a receptive field", "leave it out")
    model = run.code_model("cpu", "inspect")
    x = run.held_out_batch(_LOOKED_AT).x
    use = active_units(model, x)
    generator = torch.Generator().manual_seed(seed)
    pairs, error, mean = _rebuilt(run, model, x, generator)
    error_words = (
        f"The mean over {min(len(x), _REBUILT)} held-out images, black for 0 and white for {float(error.max()):.3g}, "
        f"of values from 0 to 1; {mean:.6f} on average."
    )
    return code_report(
        run,
        model,
        use,
        "image",
        pairs=("Held-out images, each with its reconstruction to the right.", pairs),
        error=(error_words, bright(error)),
        traversals=("", _traversals(run, model, use, generator)),
        labels=_labels(run, len(x)),
        facts={"images": len(x), "mean_squared_error": mean},
        lines=[f"mean squared error of reconstructions: {mean:.6f} of values from 0 to 1"],
        read=f"{run.facts.name}, {run.reduction}; {counted(len(x), 'held-out image')}",
        command=inspect_again(run, seed=seed),
    )


def _rebuilt(
    run: "ImageTask", model: "CodeModel", x: "Tensor", generator: "torch.Generator"
) -> "tuple[Pixels, Tensor, float]":
    """Return pairs in a grid, the squared error of each pixel (H, W) on a scale from 0 to 1, and its mean."""
    from chainrule_app.readers.images.source import grid

    x = x[:_REBUILT]
    with torch.no_grad():
        rebuilt = model.from_codes(model.codes(x), generator=generator)
    error = ((rebuilt - x).cpu().double() / (run.reduction.levels - 1)) ** 2
    pairs = np.stack([shown(run, x[:_SHOWN]), shown(run, rebuilt[:_SHOWN])], 1)
    return grid(np.concatenate(list(pairs)), 8), error.mean((0, 1)), float(error.mean())


def _traversals(
    run: "ImageTask", model: "CodeModel", use: "LatentUse", generator: "torch.Generator"
) -> "dict[int, Pixels]":
    from chainrule_app.readers.images.source import grid

    strips, weight = {}, next(model.parameters())
    for index, _, codes in traversals_of(use):
        with torch.no_grad():
            drawn = model.from_codes(codes.to(weight), generator=generator)
        strips[index] = grid(shown(run, drawn), STEPS)
    return strips


def _labels(run: "ImageTask", count: int) -> "Labels | None":
    from chainrule_app.pages.code_page import Labels

    numbers, classes = run.images().valid_labels, run.classes
    if numbers is None or classes is None:
        return None
    return Labels([classes[number] for number in numbers[:count].tolist()], "labels")


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
    rows: Annotated[int, Range(1, 64)] = 4
    """Number of held-out images for the derivatives."""


def inspect_images(run: "ImageTask", data: str | None, options: ImageInspection, *, seed: int) -> Report:
    if data is not None:
        raise ValueError(f"inspect reads the run's held-out images, got {data}: leave it out")
    if run.has_code:
        return inspect_codes(run, options, seed=seed)
    from chainrule.diagnostics import receptive_field
    from chainrule_app.pages.image_page import field_image, image_sections, mask_images
    from chainrule_app.pages.page import Page

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
    from chainrule_app.pages.image_page import blind_side, pixel_of

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
            f"more images with {spelled('rows')}."
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
        raise OptionError("pixel", f"expected ROW,COLUMN such as {height // 2},{width // 2}, got {text!r:.40}")
    row, column = (int(part) for part in parts)
    if row >= height or column >= width:
        raise OptionError(
            "pixel", f"expected at most {height - 1},{width - 1} in an image of {height}×{width}, got {text}"
        )
    return row, column
