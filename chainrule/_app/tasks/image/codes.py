"""Models of images with a code: embeddings, reconstructions, interpolations, samples, and a page about the code."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule._app.heavy import modes, np, torch
from chainrule._app.results import Column, Report, Result
from chainrule._app.tasks.codes import STEPS, about_code, code_report, traversal_words, traversals_of
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.image.image_data import ImageFiles
from chainrule._app.tasks.image.verbs import named_images, read_image, source_of
from chainrule._app.tasks.output import channels_last, inspect_again

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.pages.code_page import Labels
    from chainrule._app.tasks.image.inspection import ImageInspection
    from chainrule._app.tasks.image.task import ImageTask
    from chainrule._latent import CodeModel
    from chainrule.data._images.source import Pixels
    from chainrule.diagnostics import LatentUse

_MOST = 4096  # images of a file that is written
_COLUMNS = 4  # pairs side by side
_DRAWN, _PAIRS = 16, 8  # images of a preview
_LOOKED_AT = 1024  # held-out images whose codes are looked at
_SHOWN, _REBUILT = 16, 64  # pairs on the page, and images whose error is


@dataclass(frozen=True)
class ImageEmbedding(ImageFiles):
    """Embed images: the mean of the code of each, or the code itself of an autoencoder.

    Args:
        data: A folder, an npz, npy or idx file, as for training.
    """


@dataclass(frozen=True)
class ImageReconstruction(CheckedOptions, ImageFiles):
    """Draw a grid of images as a PNG file, each with its reconstruction to the right.

    Args:
        data: A folder, an npz, npy or idx file, as for training.
        out: The PNG file; RUN-pairs.png in the current folder by default.
    """

    count: int = within(32, 1, _MOST)
    """Number of images, from the beginning of DATA."""


@dataclass(frozen=True)
class ImageInterpolation(CheckedOptions):
    """Draw a row of images between two as a PNG file: their codes lie on a straight line.

    The row begins and ends with the two images, as the model reads them.

    Args:
        first: An image file.
        last: Another image file.
        out: The PNG file; RUN-row.png in the current folder by default.
    """

    count: int = within(9, 2, _MOST)
    """Number of images, including the reconstructions of both ends."""


def embed_images(run: "ImageTask", data: str, options: ImageEmbedding, *, device: str) -> Result:

    model = run.code_model(device, "embed")
    model_device = modes.device_of(model)

    def rows() -> Iterator[Sequence[Any]]:
        for images in named_images(run, source_of(run, data, skip_bad=options.skip_bad)):
            with torch.no_grad():
                codes = model.codes(images.x.to(model_device)).float().cpu().numpy()
            yield from zip(images.names, images.labels, codes, strict=True)

    return Result([Column("input"), Column("label"), Column("code", heading="z")], rows(), main="code", form="csv")


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
    levels = np.stack([read_image(run, Path(end)) for end in ends])
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
        [Column("image"), Column("share", 3)], rows, about={"from": ends[0], "to": ends[1]}, hints=hints, form="images"
    )


def draw_codes(run: "ImageTask", model: "CodeModel", n: int, generator: "torch.Generator", *, mean: bool) -> "Pixels":
    """Draw images from the prior, (n, C, H, W) of 8 bits; `mean` shows the expected image of each code."""
    from chainrule._latent import LatentModel

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
    from chainrule._latent import LatentModel

    device = modes.device_of(model)
    if isinstance(model, LatentModel):
        return draw_codes(run, model, _DRAWN, torch.Generator(device).manual_seed(step), mean=False)
    x = run.held_out_batch(_PAIRS).x.to(device)
    return np.concatenate(list(np.stack([shown(run, x), shown(run, model.from_codes(model.codes(x)))], 1)))


def inspect_codes(run: "ImageTask", options: "ImageInspection", *, seed: int) -> Report:

    from chainrule._app.pages.code_page import code_sections
    from chainrule._app.tasks.image.inspection import bright
    from chainrule.diagnostics import active_units

    if options.pixel is not None:
        raise ValueError("--pixel: only models without a code have a receptive field: leave it out")
    model = run.code_model("cpu", "inspect")
    x = run.held_out_batch(_LOOKED_AT).x
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
        ("Held-out images, each with its reconstruction to the right.", pairs),
        (error_words, bright(error)),
        (traversal_words(use, "image"), _traversals(run, model, use, generator)),
        _labels(run, len(x)),
    )
    facts = {"images": len(x), "mean_squared_error": mean}
    lines = [f"mean squared error of reconstructions: {mean:.6f} of values from 0 to 1"]
    about = about_code(run, model, f"{run.facts.name}, {run.reduction}; {count}")
    command = inspect_again(run, seed=seed)
    return code_report(run, use, sections, facts, lines, about=about, command=command)


def _rebuilt(
    run: "ImageTask", model: "CodeModel", x: "Tensor", generator: "torch.Generator"
) -> "tuple[Pixels, Tensor, float]":
    """Return pairs in a grid, the squared error of each pixel (H, W) on a scale from 0 to 1, and its mean."""
    from chainrule.data import grid

    x = x[:_REBUILT]
    with torch.no_grad():
        rebuilt = model.from_codes(model.codes(x), generator=generator)
    error = ((rebuilt - x).cpu().double() / (run.reduction.levels - 1)) ** 2
    pairs = np.stack([shown(run, x[:_SHOWN]), shown(run, rebuilt[:_SHOWN])], 1)
    return grid(np.concatenate(list(pairs)), 8), error.mean((0, 1)), float(error.mean())


def _traversals(
    run: "ImageTask", model: "CodeModel", use: "LatentUse", generator: "torch.Generator"
) -> "dict[int, Pixels]":

    from chainrule.data import grid

    strips, weight = {}, next(model.parameters())
    for index, _, codes in traversals_of(use):
        with torch.no_grad():
            drawn = model.from_codes(codes.to(weight), generator=generator)
        strips[index] = grid(shown(run, drawn), STEPS)
    return strips


def _labels(run: "ImageTask", count: int) -> "Labels | None":
    from chainrule._app.pages.code_page import Labels

    numbers, classes = run.images().valid_labels, run.classes
    if numbers is None or classes is None:
        return None
    return Labels([classes[number] for number in numbers[:count].tolist()], "labels")
