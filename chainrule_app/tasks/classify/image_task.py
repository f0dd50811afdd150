"""Labels of images: `chainrule train images/ --task classify`, and a classifier that learns p(label | image).

data/train.pixels, valid.pixels    the images, (N, C, H, W) bytes
data/train.labels, valid.labels    their labels
data/images.json                   counts, names of labels, fingerprints
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from cyclopts import Parameter

from chainrule.option_error import OptionError
from chainrule.ranges import Layers, Probability, Range, Size
from chainrule_app import frames
from chainrule_app.heavy import modes, np, torch
from chainrule_app.pages.result_figures import confusion_figure, labels_figure, plane_figure
from chainrule_app.printing import counted, measured_part
from chainrule_app.readers.sources import IMAGES, is_path
from chainrule_app.results import Column, Result
from chainrule_app.tasks.classify.labels import (
    figure_notes,
    label_cells,
    label_columns,
    label_figures,
    label_metric,
    surest_mistakes,
)
from chainrule_app.tasks.config import CheckedOptions, Model, Planned
from chainrule_app.tasks.image.image_data import ImageDataTask, ImageFacts, ImageFiles, ImageReading
from chainrule_app.tasks.likelihood_record import Basis
from chainrule_app.tasks.options import BatchSize, Errors, LearningRate, OptimisationOptions, Top, WeightDecay
from chainrule_app.tasks.run_directory import FRAME
from chainrule_app.tasks.size_schedule import SizeSchedule, record_resolved, time_passes
from chainrule_app.tasks.task import Shard, Source

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from chainrule.models import ImageClassifier
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import TrainingBatches, ValidationBatches, ValidationMetric
    from chainrule_app.readers.images.batches import Augmentation
    from chainrule_app.readers.images.prepare import PreparedImages

_ROWS = 128  # of a batch that is only read
_MANY_PASSES = 40.0  # over the images: they are mixed, so that the model does not learn them by heart
_MIXUP_OF_MANY = {"cnn": 0.4, "vit": 1.0, "swin": 1.0}
_COARSE_PATCH = 4  # pixels; the default 2×2 patches make four times the tokens, and a step takes four times as long
_COARSE_SWIN = SizeSchedule("images", ({"patch_size": _COARSE_PATCH},), passes=10, steps=8000, fewest_steps=5000)

Mixup = Annotated[float, Range(0.0, 100.0)]
PatchSize = Annotated[int, Range(1, 256)]


@dataclass(frozen=True)
class ImageClassifierOptions(CheckedOptions):
    """Options of all classifiers of images."""

    dropout: Probability = 0.0
    """Probability of zeroing, in training, what a branch adds."""
    label_smoothing: Probability = 0.05
    """Share of the training objective that is spread evenly over the labels."""
    mixup: Mixup = 0.0
    """α of mixup in training: pairs of images are averaged with weights from Beta(α, α), 0 for none; by default 1 for
    40 passes over the images or more, else 0."""


@dataclass(frozen=True)
class ConvNetOptions(ImageClassifierOptions):
    channels: Size = 32
    """Features of a place in the first stage."""
    stages: Annotated[int, Range(1, 8)] = 3
    """Stages, each at half the resolution of the one before."""
    blocks: Layers = 1
    """Residual blocks of a stage."""
    dropout: Probability = 0.1
    """Probability of zeroing a feature before the output, in training."""
    mixup: Mixup = 0.0
    """α of mixup in training: pairs of images are averaged with weights from Beta(α, α), 0 for none; by default 0.4
    for 40 passes over the images or more, else 0."""


@dataclass(frozen=True)
class VisionTransformerOptions(ImageClassifierOptions):
    patch_size: PatchSize | None = None
    """Pixels to a side of a patch; by default what fits, about 4."""
    model_size: Size = 96
    """Features of a patch, a multiple of --num-heads."""
    num_layers: Layers = 6
    """Blocks."""
    num_heads: Layers = 4
    """Heads of attention in each block."""
    pooling: Literal["token", "mean"] = "mean"
    """The features of a class token, or their mean over the patches."""


@dataclass(frozen=True)
class SwinOptions(ImageClassifierOptions):
    patch_size: PatchSize | None = None
    """Pixels to a side of a patch; by default 2 if the stages can halve the rest, else 1, and 4 if a budget allows few
    steps."""
    window: Annotated[int, Range(1, 64)] = 7
    """Maximum places per side of a window; a stage takes the largest divisor of its height and width."""
    model_size: Size = 48
    """Features of a place in the first stage, a multiple of --num-heads."""
    blocks: Layers = 2
    """Blocks in each stage."""
    stages: Annotated[int, Range(1, 6)] | None = None
    """Number of stages; by default 2 if the places can be halved, else 1."""
    num_heads: Layers = 3
    """Heads of attention in the first stage; they double with the features."""


@dataclass(frozen=True)
class ImageClassifierTraining(OptimisationOptions):
    batch_size: BatchSize = 64
    optimiser: Literal["adamw", "muon"] = "muon"
    learning_rate: LearningRate = 4e-3
    """Peak learning rate; by default 0.015 for cnn, 0.01 for swin, and 0.002 with AdamW."""
    weight_decay: WeightDecay = 0.05
    """Decoupled weight decay of matrices."""
    shift: Annotated[float, Range(0.0, 1e4)] = 2.0
    """Maximum random shift of each image, in pixels."""
    rotate: Annotated[float, Range(0.0, 180.0)] = 0.0
    """Maximum random rotation of each image, in degrees."""
    scale: Annotated[float, Range(0.0, 9.0)] = 0.0
    """Random scaling of each image: 0.1 scales by 1 / 1.1 to 1.1."""
    flip: bool = False
    """Mirror half of the images: only if that keeps labels, as for a cat and not for a digit."""

    def augmentation(self) -> "Augmentation":
        from chainrule_app.readers.images.batches import Augmentation

        return Augmentation(self.shift, self.rotate, self.scale, self.flip)


@dataclass(frozen=True)
class ImageLabelling(CheckedOptions, ImageFiles):
    """Label images: print the name of each, its label and the label's probability."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "file": "An image file, a folder, a .zip or .tar file, an npz, npy or idx file.",
        "json": "Print one JSON object per image, with the probabilities of all labels.",
    }

    top: Annotated[Top, Parameter(name=["--top", "-n"])] = 1
    """Number of most probable labels per image."""


@dataclass(frozen=True)
class ImageLabelEvaluation(CheckedOptions):
    """Evaluate a classifier on labelled images.

    Prints accuracy, F1 averaged over labels, nats per image, calibration error, the confusion matrix, and the most
    confident mistakes.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "Images and labels, in the form of the training data.",
    }

    errors: Errors = 5
    """Number of mistakes to show."""


@dataclass(frozen=True)
class ImageClassifierEmbedding(ImageFiles):
    """Embed images: print the name of each, and the features that predict its label."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "An image file, a folder, an npz, npy or idx file.",
    }


@dataclass(frozen=True)
class LabelledImageFacts(ImageFacts):
    classes: list[str]


class ClassifyImagesTask(ImageDataTask["ImageClassifier"]):
    name = "classify-images"
    verb = "classify"
    help = "Train a classifier on labelled images; the best accuracy on held-out images selects the weights."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "A folder, .zip or .tar file with a sub-folder of image files per label; x.npz with images and labels; or "
            "an idx file such as train-images-idx3-ubyte.gz, with labels in the same folder.",
            needed="labelled images",
        ),
        "validation": Source("Images to hold out; a random part of DATA by default.", "--validation"),
    }
    Data = ImageReading
    Facts = LabelledImageFacts
    Training = ImageClassifierTraining
    APPLE = True
    MODELS: ClassVar[dict[str, Model]] = {
        "cnn": Model("ConvNet", ConvNetOptions),
        "vit": Model("VisionTransformer", VisionTransformerOptions),
        "swin": Model("SwinTransformer", SwinOptions),
    }
    BUDGET = "5m"
    NEXT = ("chainrule classify {run} IMAGE", "chainrule evaluate {run} TEST")
    SIZE_SCHEDULES: ClassVar[dict[str, SizeSchedule]] = {
        "cnn": SizeSchedule("images", ({"channels": 16},), passes=10, steps=8000),
        "vit": SizeSchedule("images", ({"model_size": 64, "num_layers": 4},), passes=10, steps=8000),
        "swin": SizeSchedule("images", ({"model_size": 32, "num_heads": 2},), passes=10, steps=8000),
    }
    DEFAULT_TRAINING: ClassVar[dict[str, dict[str, Any]]] = {
        "cnn": {"learning_rate": {"muon": 1.5e-2, "adamw": 2e-3}},
        "vit": {"learning_rate": {"adamw": 2e-3}},
        "swin": {"learning_rate": {"muon": 1e-2, "adamw": 2e-3}},
    }
    metric_name = "accuracy"
    Prediction = ImageLabelling
    Evaluation = ImageLabelEvaluation
    Embedding = ImageClassifierEmbedding

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.facts.classes)

    def plan(self, given: frozenset[str]) -> Planned:
        """Choose the size if it is open, and mixup: images that are read often are mixed."""
        planned = super().plan(given)
        if "mixup" in given:
            return planned
        run = type(self)(self.path, planned.config)
        (config, timed), passes = time_passes(run, planned, run.batches((0, 1))[0])
        options = replace(config.options, mixup=_MIXUP_OF_MANY[config.model] if passes >= _MANY_PASSES else 0.0)
        return Planned(replace(record_resolved(config, ["mixup"]), options=options), timed)

    @property
    def schedule(self) -> SizeSchedule | None:
        if self.config.model != "swin":
            return super().schedule
        places = 2 ** ((self.config.options.stages or 2) - 1)  # to a side, that the stages merge into one
        fits = all(side % (places * _COARSE_PATCH) == 0 and side >= 4 * _COARSE_PATCH for side in self.shape[1:])
        return _COARSE_SWIN if fits else super().schedule

    def choice(self) -> str:
        return f"{super().choice()}, mixup {self.config.options.mixup:g}"

    def prepare(self, old: "ClassifyImagesTask | None" = None) -> dict[str, Any]:
        images = self.prepared(old, labelled=True)
        _check_labels(images)
        return images.manifest

    def build(self) -> "ImageClassifier":
        levels = self.facts.found_levels
        return self.built(image_shape=self.shape, num_classes=len(self.classes), levels=levels)

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule_app.readers.images.batches import labelled_image_batches, labelled_image_evaluation

        images, training = self.images(), self.training
        labels, held_out = images.train_labels, images.valid_labels
        assert labels is not None
        assert held_out is not None
        augmentation = training.augmentation()
        batches = labelled_image_batches(images.train, labels, training.batch_size, training.seed, shard, augmentation)
        return batches, lambda: labelled_image_evaluation(images.valid, held_out, _ROWS)

    def validation_metric(self) -> "ValidationMetric":
        from chainrule_app.readers.images.batches import labelled_image_evaluation

        images = self.images()
        labels = images.valid_labels
        assert labels is not None
        return label_metric(
            self.classes,
            torch.from_numpy(labels.copy()),
            lambda rows: labelled_image_evaluation(images.valid, labels, _ROWS, rows),
            lambda row: (f"held-out image {row}", ""),
            prefer_later=True,
        )

    def best(self, evaluation: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        part, nats = measured_part(rows, self.facts.images.valid), evaluation.nats_per_element
        return (
            {"accuracy": value, "nats_per_image": nats},
            f"accuracy {value:.2%} on {part}held-out images ({nats:.4f} nats per image)",
        )

    def predict(self, data: list[str], options: ImageLabelling, *, device: str) -> Result:
        names = self.classes

        def rows() -> Iterator[Sequence[Any]]:
            for name, log_probs in self._labelled(data[0], device, skip_bad=options.skip_bad):
                yield name, *label_cells(names, log_probs.tolist(), options.top)

        columns = [
            Column("image"),
            *label_columns(options.top, len(names), frames.value_parser(self.path / FRAME, "label")),
        ]
        return Result(columns, rows(), main="label", figure=labels_figure)

    @property
    def basis(self) -> Basis:
        return Basis("label", f"{counted(len(self.classes), 'label')}", given="the image")

    def evaluate(self, data: str | None, options: ImageLabelEvaluation, *, device: str) -> Result:
        from chainrule.metrics import classification_scores

        if data is None:
            raise OptionError("data", "expected labelled images, got none")
        source = self.source_of(data, labelled=True, skip_bad=False)
        assert source.labels is not None
        true = torch.from_numpy(source.labels.among(self.classes, source.label))
        log_probs = torch.stack([row for _, row in self._labelled(data, device, skip_bad=False)])
        figures = {"images": len(true)} | label_figures(
            classification_scores(log_probs, true, self.classes), "image", self.classes
        )
        figures["errors"] = [
            {"image": source.called(row), "true": self.classes[int(true[row])], "given": self.classes[predicted],
             "probability": share}
            for row, predicted, share in surest_mistakes(log_probs, true, options.errors)
        ]  # fmt: skip
        notes = figure_notes(figures)
        about = {"measured": self.basis}
        return Result([], [], summary=lambda: figures, about=about, notes=lambda: notes, figure=confusion_figure)

    def embed(self, data: str, options: ImageClassifierEmbedding, *, device: str) -> Result:
        model = self.model(device)
        model_device = modes.device_of(model)

        def rows() -> Iterator[Sequence[Any]]:
            for block, names in self._blocks(data, skip_bad=options.skip_bad):
                for start in range(0, len(block), _ROWS):
                    x = torch.from_numpy(block[start : start + _ROWS].copy()).to(model_device)
                    with torch.no_grad():
                        features = model.features(model.scaled(x)).float().cpu().numpy()
                    yield from zip(names[start : start + _ROWS], features, strict=True)

        return Result(
            [Column("input"), Column("code", heading="z")], rows(), main="code", form="csv", figure=plane_figure
        )

    def _blocks(self, data: Any, *, skip_bad: bool) -> "Iterator[tuple[npt.NDArray[np.uint8], list[str]]]":
        """Yield images and their names, from one image file or many."""
        if is_path(data) and Path(data).is_file() and Path(data).suffix.lower() in IMAGES:
            yield self.read_pixels(data)[None], [data]
            return
        source, start = self.source_of(data, labelled=False, skip_bad=skip_bad), 0
        for block in source.blocks():
            yield block, [source.called(start + index) for index in range(len(block))]
            start += len(block)

    def _labelled(self, data: str, device: str, *, skip_bad: bool) -> "Iterator[tuple[str, Tensor]]":
        """Yield each image name with log p of every label."""
        model = self.model(device)
        for block, names in self._blocks(data, skip_bad=skip_bad):
            yield from zip(names, self.label_log_probs(model, torch.from_numpy(block.copy())), strict=True)

    def label_log_probs(self, model: "ImageClassifier", images: "Tensor") -> "Tensor":
        """Return log p of every label for images (N, C, H, W), as (N, K) in float64 on the CPU."""
        device = modes.device_of(model)
        with torch.no_grad():
            log_probs = [model(part.to(device)).logits.log_softmax(-1).cpu().double() for part in images.split(_ROWS)]
        return torch.cat(log_probs)


def _check_labels(images: "PreparedImages") -> None:
    """Raise ValueError for a label without training or held-out images."""
    assert images.train_labels is not None
    assert images.valid_labels is not None
    assert images.classes is not None
    counts = np.bincount(images.train_labels, minlength=len(images.classes))
    drawn = images.manifest["validation"] is None  # held out from the same images
    if drawn:
        counts += np.bincount(images.valid_labels, minlength=len(images.classes))
    few = [name for name, count in zip(images.classes, counts.tolist(), strict=True) if count < 1 + drawn]
    if few:
        wanted = "two images, one of them to hold out, got 1" if drawn else "an image to train on, got none"
        raise ValueError(
            f"{images.manifest['name']}: the label {few[0]!r}: expected at least {wanted}: add some, or leave it out"
        )
