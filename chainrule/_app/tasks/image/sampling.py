"""Images drawn from a trained model, as 8 bits to be looked at, or as a grid in a PNG file."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule._app.heavy import modes, np, torch
from chainrule._app.results import Column, Result
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.display import Switch
from chainrule._app.tasks.image.scoring import read_image
from chainrule._app.tasks.output import channels_last
from chainrule.data import _images

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.image.task import ImageTask
    from chainrule.data._images.source import Pixels
    from chainrule.models import ImageModel

_MOST = 4096
_TOGETHER = 64  # images drawn in one batch


@dataclass(frozen=True)
class ImageSampling(CheckedOptions):
    """Draw images from a trained model, or complete one, as a grid in a PNG file.

    A single image is written without a frame; a grid of small images is enlarged.

    Args:
        n: Number of images; 16 by default.
        out: The PNG file; RUN-samples.png in the current folder by default.
        seed: The same seed gives the same images; random by default.
        json: Describe the images as one JSON object.
    """

    label: str | None = None
    """Label of all images, for a model conditioned on labels; all labels in turn by default."""
    complete: Path | None = None
    """Image file whose first rows are kept while the rest is drawn n times."""
    keep_rows: int | None = within(None, 0, 1 << 20)
    """Rows of that image to keep; half of them by default."""
    temperature: float = 1.0
    """Sampling temperature: 1 is the model's distribution, lower values are less varied, 0 is greedy."""
    mean: Switch = False
    """For a model with a code: draw the code, and show the decoder's expected image."""


def sample_images(run: "ImageTask", n: int, options: ImageSampling, *, seed: int, device: str) -> Result:
    """Draw n images: an array (H, W) or (H, W, 3) of 8 bits each."""
    from chainrule.heads._categorical import check_filters

    if n > _MOST:
        raise ValueError(f"-n: expected a whole number from 1 to {_MOST}, got {n}")
    if run.has_code:
        return _result(run, _sample_codes(run, n, options, seed, device), None, seed)
    if options.mean:
        raise ValueError(f"--mean: a {run.config.model} has no code: leave it out")
    if options.keep_rows is not None and options.complete is None:
        raise ValueError("--keep-rows requires --complete IMAGE")
    check_filters(options.temperature, None, None)
    first_rows = None if options.complete is None else _first_rows(run, options.complete, options.keep_rows)
    sampler = Sampler(run, run.model(device), options.temperature)
    labels = sampler.label(options.label, n)
    names = None if labels is None or run.classes is None else [run.classes[label] for label in labels]
    return _result(run, sampler.images(n, labels, seed, first_rows), names, seed)


def _result(run: "ImageTask", images: "Pixels", labels: list[str] | None, seed: int) -> Result:
    columns = [Column("image"), *([] if labels is None else [Column("label")])]
    arrays = map(channels_last, images)
    rows = zip(arrays, strict=True) if labels is None else zip(arrays, labels, strict=True)
    hints = {"file": f"{run.path.resolve().name}-samples.png"}
    return Result(columns, rows, about={"seed": seed}, hints=hints, form="images")


def _sample_codes(run: "ImageTask", n: int, options: ImageSampling, seed: int, device: str) -> "Pixels":

    from chainrule._app.tasks.image.codes import draw_codes

    others = {
        "--label": options.label is not None,
        "--complete": options.complete is not None,
        "--keep-rows": options.keep_rows is not None,
        "--temperature": options.temperature != 1,
    }
    for name in (name for name, is_set in others.items() if is_set):
        raise ValueError(f"{name}: a {run.config.model} draws the whole image from a code: leave it out")
    model = run.code_model(device, "sample")
    generator = torch.Generator(modes.device_of(model)).manual_seed(seed)
    return draw_codes(run, model, n, generator, mean=options.mean)


def _first_rows(run: "ImageTask", path: Path, keep_rows: int | None) -> "Tensor":
    """Read the first rows of an image file, (1, C, rows, W) levels."""
    height = run.shape[1]
    rows = height // 2 if keep_rows is None else keep_rows
    if not 0 <= rows <= height:
        raise ValueError(f"--keep-rows: expected a whole number from 0 to {height}, the rows of an image, got {rows}")
    return torch.from_numpy(read_image(run, path)[None, :, :rows].copy()).long()


class Sampler:
    """Sampler of a run's images."""

    def __init__(self, run: "ImageTask", model: "ImageModel", temperature: float = 1.0):
        self.run, self.model, self.temperature = run, model, temperature

    def labels_in_turn(self, n: int) -> "Tensor | None":
        """Return all labels in turn, (n,); None without labels."""
        classes = self.run.classes
        return None if classes is None else torch.arange(n) % len(classes)

    def label(self, name: str | None, n: int) -> "Tensor | None":
        """Return the named label n times; all labels in turn if none is named."""
        classes = self.run.classes
        if name is None:
            return self.labels_in_turn(n)
        if classes is None:
            raise ValueError(f"--label {name}: this model was trained without labels: leave it out")
        if name not in classes:
            raise ValueError(f"--label {name}: expected one of {', '.join(classes):.200}")
        return torch.full((n,), classes.index(name))

    def sketches(self, n: int, labels: "Tensor | None", seed: int, seconds: float) -> "Pixels":
        """Draw images in about `seconds`; they are black where the time ran out."""
        from chainrule.decoding._sample_paths import draw_for

        generator = torch.Generator(modes.device_of(self.model)).manual_seed(seed)
        stream = self.model.stream(n, labels, temperature=self.temperature, generator=generator)
        length = self.model.sequence_length
        drawn = draw_for(stream, length, seconds).cpu()
        rest = drawn.new_zeros(n, length - drawn.shape[1], *drawn.shape[2:])
        return self._shown(self.model.from_sequence(torch.cat([drawn, rest], 1)))

    def _shown(self, levels: "Tensor") -> "Pixels":

        return _images.brightness(levels.numpy().astype(np.uint8), self.run.reduction.levels)

    def images(self, n: int, labels: "Tensor | None", seed: int, first_rows: "Tensor | None" = None) -> "Pixels":
        """Draw images, (n, C, H, W) of 8 bits, that all begin with `first_rows` (1, C, rows, W)."""
        device = modes.device_of(self.model)
        generator = torch.Generator(device).manual_seed(seed)
        prefix = None if first_rows is None else self.model.to_sequence(first_rows)
        drawn = [
            self.model.sample(
                len(rows), None if labels is None else labels[rows], prefix=prefix, temperature=self.temperature,
                generator=generator,
            ).cpu()
            for rows in torch.arange(n).split(_TOGETHER)
        ]  # fmt: skip
        return self._shown(torch.cat(drawn))
