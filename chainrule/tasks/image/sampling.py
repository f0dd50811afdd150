"""Images drawn from a trained model, as 8 bits to be looked at, or as a grid in a PNG file."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.config import CheckedOptions, within
from chainrule.tasks.display import Switch, counted
from chainrule.tasks.image.reading import checked_png, read_image
from chainrule.tasks.parallel_draws import ParallelDraws

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.data.images.source import Pixels
    from chainrule.models import ImageModel
    from chainrule.tasks.image.task import ImageTask

_MOST = 4096
_TOGETHER = 64  # images drawn in one batch


@dataclass(frozen=True)
class ImageSampling(CheckedOptions):
    """Draw images from a trained model, or complete one, as a grid in a PNG file.

    A single image is written as it is, without a frame; several are enlarged if they are small.

    Args:
        n: How many images; 16 if not given.
        out: The PNG file; RUN-samples.png here if not given.
        seed: The same seed gives the same images; new ones each time if not given.
        json: Print what was drawn as one JSON object.
    """

    label: str | None = None
    """Label of all images, for a model that knows labels; all labels in turn if not given."""
    complete: Path | None = None
    """An image file whose first rows are kept, and the rest drawn, in n ways; the grid begins with it."""
    keep_rows: int | None = within(None, 0, 1 << 20)
    """Rows of that image to keep; half of them if not given."""
    temperature: float = 1.0
    """1 is the model's own distribution; below it draws are likelier and less varied, 0 takes the likeliest value."""
    method: Literal["sequential", "parallel"] = "sequential"
    """Value by value; or the same images in fewer passes, rows of values guessed and verified in each (of pixelcnn++,
    others of the same distribution)."""
    mean: Switch = False
    """For a model with a code: draw the code, and show the decoder's expected image in place of a draw."""


def sample_images(
    run: "ImageTask", n: int, options: ImageSampling, *, out: Path | None, seed: int, device: str, json: bool
) -> Answer:
    """Draw n images and write them to a file."""
    from chainrule.heads.categorical import check_filters

    if n > _MOST:
        raise ValueError(f"-n: expected a whole number from 1 to {_MOST}, got {n}")
    if run.has_code:
        return _sample_codes(run, n, options, out=out, seed=seed, device=device)
    if options.mean:
        raise ValueError(f"--mean: a {run.config.model} has no code whose expected image could be shown: leave it out")
    if options.keep_rows is not None and options.complete is None:
        raise ValueError("--keep-rows: of which image? Name it with --complete")
    check_filters(options.temperature, None, None)
    place = checked_png(out, run, "samples")
    known = None if options.complete is None else _first_rows(run, options.complete, options.keep_rows)
    model = run.model(device)
    draws = ParallelDraws(model, rejection=False) if options.method == "parallel" else None
    sampler = Sampler(run, model, options.temperature, draws)
    labels = sampler.label(options.label, n)
    images = sampler.images(n, labels, seed, known)
    _write(place, run, images, known)
    completed = None if known is None else f"{options.complete} with its first {counted(known.shape[2], 'row')} kept"
    said = _said(n, run, options.label, completed)
    names = None if labels is None or run.classes is None else [run.classes[label] for label in labels]
    values = {"out": str(place), "images": n, "labels": names, "seed": seed}
    line = f"{place}: {said} (seed {seed})"
    if draws is not None:
        values, line = values | draws.figures(), f"{line}; {draws.summary()}"
    return Answer(iter([Record(values, line, notice=True)]))


def _sample_codes(
    run: "ImageTask", n: int, options: ImageSampling, *, out: Path | None, seed: int, device: str
) -> Answer:
    """Draw codes, and images from them."""
    import torch

    from chainrule.tasks.image.codes import draw_codes

    others = {
        "--label": options.label is not None,
        "--complete": options.complete is not None,
        "--keep-rows": options.keep_rows is not None,
        "--temperature": options.temperature != 1,
        "--method": options.method != "sequential",
    }
    for name in (name for name, given in others.items() if given):
        raise ValueError(f"{name}: a {run.config.model} draws a code, and the whole image from it: leave it out")
    place, model = checked_png(out, run, "samples"), run.code_model(device, "sample")
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    _write(place, run, draw_codes(run, model, n, generator, mean=options.mean), None)
    values = {"out": str(place), "images": n, "labels": None, "seed": seed}
    return Answer(iter([Record(values, f"{place}: {_said(n, run, None, None)} (seed {seed})", notice=True)]))


def _first_rows(run: "ImageTask", path: Path, keep_rows: int | None) -> "Tensor":
    """(1, C, rows, W) levels of the rows of an image file that are kept."""
    import torch

    height = run.shape[1]
    rows = height // 2 if keep_rows is None else keep_rows
    if not 0 <= rows <= height:
        raise ValueError(f"--keep-rows: expected a whole number from 0 to {height}, the rows of an image, got {rows}")
    return torch.from_numpy(read_image(run, path)[None, :, :rows].copy()).long()


def _write(out: Path, run: "ImageTask", images: "Pixels", known: "Tensor | None") -> None:
    import numpy as np

    from chainrule.data.atomic import write_bytes
    from chainrule.data.images import brightness, grid, png

    if known is not None:  # the grid begins with what is known, the rest in grey
        start = np.full((1, *run.shape), 96, np.uint8)
        start[:, :, : known.shape[2]] = brightness(known.numpy().astype(np.uint8), run.reduction.levels)
        images = np.concatenate([start, images])
    plain = images[0] if len(images) == 1 else None
    if plain is None:
        content = grid(images)
    else:
        content = plain[0] if len(plain) == 1 else plain.transpose(1, 2, 0)
    write_bytes(out, png(content))


def _said(n: int, run: "ImageTask", label: str | None, completed: str | None) -> str:
    drawn = f"{n} image{'s' * (n > 1)}" if completed is None else f"{completed}, and {n} completion{'s' * (n > 1)}"
    return drawn + (f", label {label}" if label is not None else ", labels in turn" if run.conditions else "")


class Sampler:
    """Draws images of a run's model.

    Args:
        run: whose labels and levels they have.
        model: trained.
        temperature: see `AutoregressiveModel.sample`.
        draw: draws whole images, called as `model.sample`, which is the default.
    """

    def __init__(
        self,
        run: "ImageTask",
        model: "ImageModel",
        temperature: float = 1.0,
        draw: "Callable[..., Tensor] | None" = None,
    ):
        self.run, self.model, self.temperature = run, model, temperature
        self.draw = model.sample if draw is None else draw

    def labels_in_turn(self, n: int) -> "Tensor | None":
        """(n,) all labels in turn; `None` without labels."""
        import torch

        classes = self.run.classes
        return None if classes is None else torch.arange(n) % len(classes)

    def label(self, name: str | None, n: int) -> "Tensor | None":
        """(n,) the label of that name; all in turn where none is named.

        Raises:
            ValueError: there is no such label, or the model has none.
        """
        import torch

        classes = self.run.classes
        if name is None:
            return self.labels_in_turn(n)
        if classes is None:
            raise ValueError(f"--label {name}: this model was trained without labels: leave it out")
        if name not in classes:
            raise ValueError(f"--label {name}: expected one of {', '.join(classes):.200}")
        return torch.full((n,), classes.index(name))

    def sketches(self, n: int, labels: "Tensor | None", seed: int, seconds: float) -> "Pixels":
        """Draw images as `images` does, in about `seconds`: they are black from where that is over."""
        import torch

        from chainrule.decoding.draw_for import draw_for

        generator = torch.Generator(next(self.model.parameters()).device).manual_seed(seed)
        stream = self.model.stream(n, labels, temperature=self.temperature, generator=generator)
        length = self.model.sequence_length
        drawn = draw_for(stream, length, seconds).cpu()
        rest = drawn.new_zeros(n, length - drawn.shape[1], *drawn.shape[2:])
        return self._shown(self.model.from_sequence(torch.cat([drawn, rest], 1)))

    def _shown(self, levels: "Tensor") -> "Pixels":
        import numpy as np

        from chainrule.data.images import brightness

        return brightness(levels.numpy().astype(np.uint8), self.run.reduction.levels)

    def images(self, n: int, labels: "Tensor | None", seed: int, first_rows: "Tensor | None" = None) -> "Pixels":
        """Draw images, (n, C, H, W) of 8 bits.

        Args:
            n: how many.
            labels: (n,), or `None`.
            seed: the same seed draws the same images.
            first_rows: (1, C, rows, W) levels that all of them begin with.
        """
        import torch

        device = next(self.model.parameters()).device
        generator = torch.Generator(device).manual_seed(seed)
        prefix = None if first_rows is None else self.model.to_sequence(first_rows)
        drawn = [
            self.draw(
                len(rows), None if labels is None else labels[rows], prefix=prefix, temperature=self.temperature,
                generator=generator,
            ).cpu()
            for rows in torch.arange(n).split(_TOGETHER)
        ]  # fmt: skip
        return self._shown(torch.cat(drawn))
