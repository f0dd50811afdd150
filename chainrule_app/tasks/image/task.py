"""Images: likelihoods, samples and completions by models that visit one pixel after the other.

data/train.pixels, valid.pixels            the images, (N, C, H, W) bytes
data/train.labels, valid.labels            their labels, where there are any
data/images.json                           counts, levels, names of labels, fingerprints
samples.png                                drawn at the last validation
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from chainrule_app.printing import quoted
from chainrule_app.readers import images as image_reader
from chainrule_app.tasks.capabilities import CheckedRows, FileCodec
from chainrule_app.tasks.codes import CodedTask
from chainrule_app.tasks.config import Planned, Settled
from chainrule_app.tasks.image.image_data import ImageData, ImageDataTask
from chainrule_app.tasks.image.models import MODELS
from chainrule_app.tasks.likelihood_record import Basis, LikelihoodRecord
from chainrule_app.tasks.options import BatchSize, LearningRate, OptimisationOptions
from chainrule_app.tasks.size_schedule import SizeSchedule, describe_passes, record_resolved, time_passes
from chainrule_app.tasks.task import Shard, Source

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.data import Batch
    from chainrule.models import ImageModel
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import TrainingBatches, ValidationBatches

# Elements of the images that are scored together: the features of more no longer stay in a processor's cache, where
# each element has some; a model with a code has few.
_ELEMENTS, _ELEMENTS_OF_A_CODE = 1 << 13, 1 << 16
_CHECKED_ROWS, _CHECKED_SIDE = 4, 5
_OF_A_CODE = {"batch_size": 128, "learning_rate": {"muon": 1e-2, "adamw": 3e-3}}
_MEASURED = 256  # held-out images whose codes are looked at during training
_STEPS_AT_FULL_RATE, _LOWEST_RATE = 500, 1e-3  # of a PixelCNN++; the paper trains at 1e-3 (Salimans et al. 2017)


@dataclass(frozen=True)
class ImageTraining(OptimisationOptions):
    """Training options of an image model: each image has hundreds of elements."""

    batch_size: BatchSize = 16
    """Batch size; 128 by default for a model with a code."""
    optimiser: Literal["adamw", "muon"] = "muon"
    """adamw, default for autoencoder, or muon: orthogonal steps for matrices and kernels."""
    learning_rate: LearningRate = 4e-3
    """Peak learning rate; by default 0.01 for a model with a code; with AdamW 0.003, and 0.002 for pixelcnn++.
    With Muon, pixelcnn++ has 0.001 to 0.004, less for more steps."""


class ImageTask(CodedTask["ImageModel"], ImageDataTask["ImageModel"]):
    name = "image"
    help = "Train a model of images: exact likelihoods, samples and completions, or a latent code and bounds."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "A folder of image files, labelled by any sub-folders; x.npz, or x.npz:ARRAY; x.npy; or an idx file such "
            "as train-images-idx3-ubyte.gz, with labels in the same folder.",
            needed="images",
        ),
        "validation": Source(
            "Images to hold out; by default the array valid of an npz file with train and valid, else a random part of "
            "DATA.",
            "--validation",
        ),
    }
    Data = ImageData
    Training = ImageTraining
    APPLE = True
    MODELS = MODELS
    CODED = ("vae", "pixel-vae", "autoencoder")  # they know no labels
    BUDGET = "10m"
    SIZE_SCHEDULES: ClassVar[dict[str, SizeSchedule]] = {
        "gated-pixelcnn": SizeSchedule(
            "pixels", ({"channels": 16, "layers": 5}, {"channels": 8, "layers": 3}), steps=1000
        ),
        "image-transformer": SizeSchedule(
            "pixels", ({"num_layers": 3, "model_size": 96}, {"num_layers": 2, "model_size": 64}), steps=1000
        ),
        "pixel-vae": SizeSchedule("pixels", ({"decoder_channels": 32}, {"decoder_channels": 16}), steps=1000),
    } | dict.fromkeys(
        ("vae", "autoencoder"),
        SizeSchedule("pixels", ({"hidden_size": 150}, {"hidden_size": 75}), steps=1000),
    )
    DEFAULT_TRAINING: ClassVar[dict[str, dict[str, Any]]] = {
        "pixelcnn++": {"learning_rate": {"adamw": 2e-3}},
        "vae": _OF_A_CODE,
        "pixel-vae": _OF_A_CODE,
        "autoencoder": _OF_A_CODE | {"optimiser": "adamw"},
    }
    FILES = (".png",)
    DEFAULT_NUMBER = 16

    def plan(self, given: frozenset[str]) -> Planned:
        """Lower the rate of a PixelCNN++ that trains for long: at a high one its gates close, and stay closed."""
        planned = super().plan(given)
        training = planned.config.training
        if self.config.model != "pixelcnn++" or training.optimiser != "muon" or "learning_rate" in given:
            return planned
        run = type(self)(self.path, planned.config)
        batches, _ = run.batches((0, 1))
        (config, timed), passes = time_passes(run, planned, batches)
        share = min(1.0, _STEPS_AT_FULL_RATE / (passes * batches.steps_per_epoch)) ** 0.5
        rate = max(_LOWEST_RATE, float(f"{training.learning_rate * share:.2g}"))
        config = replace(config, settled=config.settled or Settled([]), training=replace(training, learning_rate=rate))
        return Planned(record_resolved(config, ["learning_rate"]), timed)

    def choice(self) -> str:
        if self.config.model != "pixelcnn++":
            return super().choice()
        settled, rate = self.config.settled, f"learning rate {self.config.training.learning_rate:g}"
        timed = settled is not None and settled.passes is not None
        return f"{describe_passes(self.config, 'pixels', 'images')}: {rate}" if timed else f"{rate} for this many steps"

    @property
    def conditions(self) -> tuple[str, ...] | None:
        """Return the labels that condition the model; None if it reads none."""
        return None if self.has_code else self.classes

    def held_out_batch(self, count: int) -> "Batch":
        """Return the first held-out images, with their labels if these condition the model."""
        images = self.images()
        labels = None if self.has_code or images.valid_labels is None else images.valid_labels[:count]
        return image_reader.image_batch(images.valid[:count], labels)

    @property
    def dimensions(self) -> int:
        return prod(self.shape)

    @property
    def rows_at_once(self) -> int:
        """Return the number of images scored together."""
        return max(1, (_ELEMENTS_OF_A_CODE if self.has_code else _ELEMENTS) // self.dimensions)

    def build(self) -> "ImageModel":
        return self.model_of(self.shape)

    def model_of(self, shape: tuple[int, int, int]) -> "ImageModel":
        """Build the run's model for another image size; the weights are shared by all pixels."""
        classes = None if self.conditions is None else len(self.conditions)
        return self.built(image_shape=shape, levels=self.reduction.levels, num_classes=classes)

    def prepare(self, old: "ImageTask | None" = None) -> dict[str, Any]:
        data = self.data
        binarise = None if data.binarise == "no" else data.binarise
        return self.prepared(old, bits=data.bits, binarise=binarise, labelled=data.labels).manifest

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        images, training = self.images(), self.training
        labels = (None, None) if self.has_code else (images.train_labels, images.valid_labels)
        drawn = images.reduction if images.reduction.binarise == "per-epoch" else None
        batches = image_reader.image_batches(images.train, labels[0], training.batch_size, training.seed, shard, drawn)
        return batches, lambda: image_reader.image_evaluation(images.valid, labels[1], self.rows_at_once)

    def coded_rows(self) -> "Tensor":
        return self.held_out_batch(_MEASURED).x

    def best(self, evaluation: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        read = evaluation.elements // self.dimensions
        part = "" if read >= self.facts.images.valid else f"first {read:,} of the "
        of = f"the {part}held-out images{', given their labels' if self.conditions else ''} ({self.reduction})"
        if self.basis.quantity != "nats":  # an autoencoder maximises minus half the squared error
            error = 2 * evaluation.nats_per_element
            figures = {"mean_squared_error": error, "values": str(self.reduction)}
            return figures, f"mean squared error {error:.6f} of values from 0 to 1 on {of}"
        nats, bits = evaluation.nats_per_element * self.dimensions, evaluation.bits_per_element
        bound = "at most " if self.basis.kind == "bound" else ""
        return (
            {"nats_per_image": nats, "bits_per_dimension": bits, "values": str(self.reduction)},
            f"{bound}{nats:.2f} nats per image, {bits:.4f} bits/dim on {of}",
        )

    def next_steps(self) -> Sequence[str]:
        path, source = quoted(self.path), quote(str(self.source))
        first = f"reconstruct {path} {source}" if self.has_code else f"sample {path} -n 16 --out grid.png"
        return [f"chainrule {first}", f"chainrule score {path} IMAGES --top 10", f"chainrule inspect {path}"]

    def codec(self) -> FileCodec:
        from chainrule_app.tasks.image.compression import ImageCodec

        return ImageCodec(self.shape, self.reduction, labelled=self.classes is not None)

    @property
    def basis(self) -> Basis:
        draw = f"binarised by one fixed draw, seed {self.training.seed}"
        base_measure = draw if self.reduction.draws else str(self.reduction)
        if self.config.model == "autoencoder":
            return Basis("dimension", base_measure, quantity="squared error")
        if self.has_code:  # held-out images are measured by the ELBO, of one draw
            return Basis("dimension", base_measure, kind="bound", samples=1)
        return Basis("dimension", base_measure, given="" if self.classes is None else "the label")

    def held_out(self) -> LikelihoodRecord | None:
        entry = super().held_out()
        # An autoencoder maximises minus half the squared error.
        return entry if entry is None or entry.basis.quantity == "nats" else replace(entry, nats=2 * entry.nats)

    def checked_rows(self) -> CheckedRows:
        """Return the middle of held-out images, and the trained weights in a model of that size."""
        if self.has_code:
            rows = self.held_out_batch(_CHECKED_ROWS).x
            return CheckedRows(self.model(), rows, note=f"on {len(rows)} held-out images")
        channels, height, width = self.shape
        small = self.model_of((channels, min(height, _CHECKED_SIDE), min(width, _CHECKED_SIDE)))
        trained, needed = self.model().state_dict(), small.state_dict()
        # Position embeddings keep the first rows and columns.
        cut = {name: weight[tuple(map(slice, needed[name].shape))] for name, weight in trained.items()}
        small.load_state_dict(cut)
        images, (_, height, width) = self.images(), small.image_shape
        top, left = (self.shape[1] - height) // 2, (self.shape[2] - width) // 2
        pieces = images.valid[:_CHECKED_ROWS, :, top : top + height, left : left + width]
        labels = None if images.valid_labels is None else images.valid_labels[:_CHECKED_ROWS]
        batch = image_reader.image_batch(pieces, labels)
        note = f"on the middle {height}×{width} pixels of {len(pieces)} held-out images, with the trained weights"
        return CheckedRows(small.eval(), batch.x, batch.context, note=note)
