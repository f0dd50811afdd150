"""Read images that a user names, score them with a trained model, and draw new ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from chainrule.option_error import OptionError, option
from chainrule.ranges import Range
from chainrule_app.heavy import modes, np, torch
from chainrule_app.printing import listed
from chainrule_app.readers import images as image_reader
from chainrule_app.results import Column, Result
from chainrule_app.tasks.codes import MOST_SAMPLES, BoundMeter, refuse_samples
from chainrule_app.tasks.config import CheckedOptions, Switch
from chainrule_app.tasks.image.image_data import ImageFiles
from chainrule_app.tasks.options import TemperatureOptions
from chainrule_app.tasks.output import channels_last
from chainrule_app.tasks.tally import Tally

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.models import ImageModel
    from chainrule_app.readers.images.source import ImageSource, Pixels
    from chainrule_app.tasks.image.task import ImageTask


@dataclass(frozen=True)
class NamedImages:
    x: "Tensor"  # (B, C, H, W) levels
    context: "Tensor | None"  # (B,) labels that condition the model; None without
    names: list[str]
    labels: list[str | None]  # labels known to the run


def source_of(run: "ImageTask", data: str, *, skip_bad: bool) -> "ImageSource":
    """Open images like those that the run was trained on, with the labels that condition the model, if any do."""
    labelled = True if run.conditions is not None else None if run.classes is not None else False
    source = run.source_of(data, labelled=labelled, skip_bad=skip_bad)
    if run.conditions is not None:
        assert source.labels is not None
        source.labels.among(run.conditions, source.label)
    return source


def is_binary_already(run: "ImageTask", source: "ImageSource") -> bool:
    """Tell if a model of binarised images reads images that are binary already."""
    return run.reduction.binarise is not None and source.levels == 2


def named_images(run: "ImageTask", source: "ImageSource") -> Iterator[NamedImages]:
    """Yield batches of a source in order; a binarisation draws as for held-out images."""
    numbers, classes = None, run.classes
    if classes is not None and source.labels is not None and set(source.labels.names) <= set(classes):
        numbers = source.labels.among(classes, source.label)
    random = np.random.default_rng([run.config.training.seed, 2])
    start = 0
    for block in source.blocks():
        pixels = block if is_binary_already(run, source) else run.reduction.apply(block, random)
        conditions = None if numbers is None or run.conditions is None else numbers[start : start + len(block)]
        for batch in image_reader.image_evaluation(pixels, conditions, run.rows_at_once):
            places = range(start, start + len(batch.x))
            labels = [None if numbers is None or classes is None else classes[numbers[index]] for index in places]
            yield NamedImages(batch.x, batch.context, [source.called(index) for index in places], labels)
            start += len(batch.x)


def read_image(run: "ImageTask", path: Any) -> "Pixels":
    """Read and reduce an image file like the training images, (C, H, W) levels."""
    return run.reduction.apply(run.read_pixels(path), np.random.default_rng([run.config.training.seed, 3]))


@dataclass(frozen=True)
class ImageScoring(CheckedOptions, ImageFiles):
    """Score images: nats and bits per dimension of each, exact under the model.

    Images are reduced to the model's levels as in training. A model conditioned on labels scores each image given its
    label. A variational autoencoder gives an upper bound of the nats, with the standard error of the draws, and the
    ELBO. An autoencoder has no likelihood; its score is the squared reconstruction error.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "A folder, an npz, npy or idx file, as for training.",
    }

    samples: Annotated[int, Range(1, MOST_SAMPLES)] | None = None
    """K, the codes drawn (twice) for the bound of a variational autoencoder; 100 by default. More tighten it."""


def score_images(run: "ImageTask", data: str, options: ImageScoring, *, device: str) -> Result:
    """Score images by their likelihood, by a bound, or by the reconstruction error."""
    from chainrule import LatentModel

    if not run.has_code:
        refuse_samples(options.samples, run.config.model)
    if run.config.model == "autoencoder" and options.samples is not None:
        raise OptionError("samples", "an autoencoder has no likelihood to bound", "leave it out")
    source, basis = source_of(run, data, skip_bad=options.skip_bad), run.basis
    if is_binary_already(run, source):
        basis = replace(basis, base_measure="2 levels")
    model: Any = run.model(device)
    total: Tally
    columns: Sequence[Column]
    if isinstance(model, LatentModel):
        total, columns = BoundMeter(model, options.samples), BoundMeter.COLUMNS
        basis = replace(basis, samples=total.samples)
    else:
        total, columns = Tally(), _ERRORS if run.has_code else _LIKELIHOODS

    def rows() -> Iterator[Sequence[Any]]:
        for images in named_images(run, source):
            figures: Iterator[tuple[float, ...]] = _measured(run, model, total, images)
            if isinstance(total, BoundMeter):
                figures = total.measure(images.x)
            for name, label, of_image in zip(images.names, images.labels, figures, strict=True):
                yield name, label, *of_image

    named = [Column("image"), Column("label", shown=bool(run.classes)), *columns]
    about = {"measured": basis, "values": protocol(run, source)}
    empty = f"{source}: expected at least one image to score, got none"
    return total.result(named, rows(), basis=basis, unit="image", empty=empty, rank=columns[0].name, about=about)


_LIKELIHOODS = (Column("nats", 2), Column("bits_per_dimension", 4, heading="bits/dim"))
_ERRORS = (Column("squared_error", 4), Column("mean_squared_error", 6))


def _measured(run: "ImageTask", model: Any, total: Tally, images: NamedImages) -> Iterator[tuple[float, float]]:
    """Yield the nats of each image, or the error of an autoencoder, in all and by dimension."""
    from chainrule.training import bits

    x, context = images.x.to(modes.device_of(model)), images.context
    context = None if context is None else context.to(x.device)
    with torch.no_grad():
        values = model.squared_error(x) if run.has_code else -model.log_prob(x, context)
    for value in values.cpu().double().tolist():
        total.add(value, run.dimensions)
        yield value, (value if run.has_code else bits(value)) / run.dimensions


def protocol(run: "ImageTask", source: "ImageSource") -> str:
    """Describe how the values were reduced before scoring, which every figure depends on."""
    if is_binary_already(run, source):
        return "2 levels, as they are stored"
    if run.reduction.draws:
        return f"binarised by one fixed draw, seed {run.config.training.seed}"
    return str(run.reduction)


_MOST = 4096
_TOGETHER = 64  # images drawn in one batch


@dataclass(frozen=True)
class ImageSampling(TemperatureOptions):
    """Draw images from a trained model, or complete one, as a grid in a PNG file.

    A single image is written without a frame; a grid of small images is enlarged.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "n": "Number of images; 16 by default.",
        "out": "The PNG file; RUN-samples.png in the current folder by default.",
        "json": "Describe the images as one JSON object.",
    }

    label: str | None = None
    """Label of all images, for a model conditioned on labels; all labels in turn by default."""
    complete: Path | None = None
    """Image file whose first rows are kept while the rest is drawn n times."""
    keep_rows: Annotated[int, Range(0, 1 << 20)] | None = None
    """Rows of that image to keep; half of them by default."""
    mean: Switch = False
    """For a model with a code: draw the code, and show the decoder's expected image."""


def sample_images(run: "ImageTask", n: int, options: ImageSampling, *, seed: int, device: str) -> Result:
    """Draw n images: an array (H, W) or (H, W, 3) of 8 bits each."""
    from chainrule.heads import Categorical

    if n > _MOST:
        raise OptionError("n", f"expected a whole number from 1 to {_MOST}, got {n}")
    if run.has_code:
        return _result(run, _sample_codes(run, n, options, seed, device), None, seed)
    if options.mean:
        raise OptionError("mean", f"a {run.config.model} has no code", "leave it out")
    if options.keep_rows is not None and options.complete is None:
        raise OptionError("keep_rows", f"requires {option('complete')}")
    Categorical.check_filters(options.temperature, None, None)
    first_rows = None if options.complete is None else _first_rows(run, options.complete, options.keep_rows)
    sampler = Sampler(run, run.model(device), options.temperature)
    labels = sampler.labels(n, options.label)
    names = None if labels is None or run.classes is None else [run.classes[label] for label in labels]
    return _result(run, sampler.images(n, labels, seed, first_rows), names, seed)


def _result(run: "ImageTask", images: "Pixels", labels: list[str] | None, seed: int) -> Result:
    columns = [Column("image"), *([] if labels is None else [Column("label")])]
    arrays = map(channels_last, images)
    rows = zip(arrays, strict=True) if labels is None else zip(arrays, labels, strict=True)
    hints = {"file": f"{run.path.resolve().name}-samples.png"}
    return Result(columns, rows, about={"seed": seed}, hints=hints, form="images")


def _sample_codes(run: "ImageTask", n: int, options: ImageSampling, seed: int, device: str) -> "Pixels":
    from chainrule_app.tasks.image.codes import draw_codes

    others = {
        "label": options.label is not None,
        "complete": options.complete is not None,
        "keep_rows": options.keep_rows is not None,
        "temperature": options.temperature != 1,
    }
    for name in (name for name, is_set in others.items() if is_set):
        raise OptionError(name, f"a {run.config.model} draws the whole image from a code", "leave it out")
    model = run.code_model(device, "sample")
    generator = torch.Generator(modes.device_of(model)).manual_seed(seed)
    return draw_codes(run, model, n, generator, mean=options.mean)


def _first_rows(run: "ImageTask", path: Path, keep_rows: int | None) -> "Tensor":
    """Read the first rows of an image file, (1, C, rows, W) levels."""
    height = run.shape[1]
    rows = height // 2 if keep_rows is None else keep_rows
    if not 0 <= rows <= height:
        raise OptionError("keep_rows", f"expected a whole number from 0 to {height}, the rows of an image, got {rows}")
    return torch.from_numpy(read_image(run, path)[None, :, :rows].copy()).long()


class Sampler:
    """Sampler of a run's images."""

    def __init__(self, run: "ImageTask", model: "ImageModel", temperature: float = 1.0):
        self.run, self.model, self.temperature = run, model, temperature

    def labels(self, n: int, name: str | None = None) -> "Tensor | None":
        """Return the named label n times, all labels in turn if none is named; None without labels."""
        classes = self.run.classes
        if name is None:
            return None if classes is None else torch.arange(n) % len(classes)
        if classes is None:
            raise OptionError("label", f"this model was trained without labels, got {name}", "leave it out")
        if name not in classes:
            raise OptionError("label", f"expected one of {listed(classes)}, got {name}")
        return torch.full((n,), classes.index(name))

    def sketches(self, n: int, labels: "Tensor | None", seed: int, seconds: float) -> "Pixels":
        """Draw images in about `seconds`; they are black where the time ran out."""
        from chainrule_app.tasks.preview import draw_for

        generator = torch.Generator(modes.device_of(self.model)).manual_seed(seed)
        stream = self.model.stream(n, labels, temperature=self.temperature, generator=generator)
        length = self.model.sequence_length
        drawn = draw_for(stream, length, seconds).cpu()
        rest = drawn.new_zeros(n, length - drawn.shape[1], *drawn.shape[2:])
        return self._shown(self.model.from_sequence(torch.cat([drawn, rest], 1)))

    def _shown(self, levels: "Tensor") -> "Pixels":
        return image_reader.brightness(levels.numpy().astype(np.uint8), self.run.reduction.levels)

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
