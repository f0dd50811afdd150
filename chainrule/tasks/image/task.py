"""Images: likelihoods, samples and completions by models that visit one pixel after the other.

data/train.pixels, valid.pixels            the images, (N, C, H, W) bytes
data/train.labels, valid.labels            their labels, where there are any
data/images.json                           counts, levels, names of labels, fingerprints
samples.png                                drawn at the last validation
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, cast

from chainrule.tasks.abilities import Answer, CheckedRows, Checks, Inspects, Samples, Scores
from chainrule.tasks.commands import quoted, size_of
from chainrule.tasks.config import FINGERPRINT, RunConfig, check_entries
from chainrule.tasks.image.inspection import ImageInspection
from chainrule.tasks.image.options import LARGEST, ImageData, ImageTraining
from chainrule.tasks.image.sampling import ImageSampling
from chainrule.tasks.image.scoring import ImageScoring
from chainrule.tasks.ladder import Ladder
from chainrule.tasks.ledger import Basis
from chainrule.tasks.model import Model
from chainrule.tasks.run_directory import DATA
from chainrule.tasks.task import Shard, Source, Task

if TYPE_CHECKING:
    from chainrule.data.images import PreparedImages, Reduction
    from chainrule.models import ImageModel
    from chainrule.training import TrainingBatches, ValidationBatches
    from chainrule.training.loop import TrainingResult
    from chainrule.training.validation import OnValidation

SAMPLES = "samples.png"
_ELEMENTS = 1 << 16  # of the images that are validated on together
_PREVIEWED = 16
_LINE = 90  # characters in which the preview on the terminal has to fit
_CHECKED_ROWS, _CHECKED_SIDE = 4, 5


def _model(name: str, **fixed: Any) -> Model:
    return Model(f"chainrule.models.{name}", fixed=fixed, hidden=("levels", "num_classes"))


class ImageTask(Task["ImageModel"], Scores, Samples, Inspects, Checks):
    """A run on images."""

    name = "image"
    help = "Train an autoregressive model of images: exact likelihoods, samples, completions."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "A folder of image files, labelled by its sub-folders if there are any; x.npz, or x.npz:ARRAY; x.npy; or "
            "an idx file such as train-images-idx3-ubyte.gz, labels beside it."
        ),
        "validation": Source(
            "Images to hold out in place of some of DATA; of an npz file with arrays train and valid, the latter is "
            "held out where nothing is said.",
            "--validation",
        ),
    }
    Data = ImageData
    Training = ImageTraining
    MODELS: ClassVar[dict[str, Model]] = {
        "gated-pixelcnn": _model("gated_pixel_cnn:GatedPixelCNN"),
        "pixelcnn": _model("pixel_cnn:PixelCNN"),
        "pixelcnn++": _model("pixel_cnn_pp:PixelCNNPP"),
        "row-lstm": _model("pixel_rnn:PixelRNN", kind="row"),
        "diagonal-bilstm": _model("pixel_rnn:PixelRNN", kind="diagonal"),
        "image-transformer": _model("image_transformer:ImageTransformer"),
    }
    BUDGET = "10m"
    LADDERS: ClassVar[dict[str, Ladder]] = {
        "gated-pixelcnn": Ladder("pixels", ({"channels": 16, "layers": 5}, {"channels": 8, "layers": 3}), steps=1000),
    }
    PREPARED = f"{DATA}/images.json"
    Scoring = ImageScoring
    Sampling = ImageSampling
    USUAL_NUMBER = 16
    Inspection = ImageInspection

    @classmethod
    def recognises(cls, path: Path) -> bool:
        from chainrule.data.images.open import is_images

        return is_images(path)

    @classmethod
    def check_asked(cls, asked: RunConfig, given: frozenset[str]) -> None:
        if asked.sources["source"] is None:
            raise ValueError("DATA: expected images to train on, got none")
        _ = asked.data.reading  # an invalid size is rejected before anything is read

    @property
    def data(self) -> ImageData:
        """How the pictures are read."""
        return cast(ImageData, self.config.data)

    @classmethod
    def check_facts(cls, facts: dict[str, Any]) -> None:
        if not {"source", "validation", "shape", "pictures", "found_levels", "bits", "binarise", "classes"} <= set(
            facts
        ):
            raise ValueError("facts: expected what preparing pictures leaves: source, shape, pictures, levels, classes")
        check_entries("facts", facts, "source", FINGERPRINT)
        shape, classes = facts["shape"], facts["classes"]
        if not isinstance(shape, list) or len(shape) != 3 or not all(type(side) is int for side in shape):
            raise ValueError(f"facts.shape: expected three whole numbers, got {shape!r:.80}")
        if shape[0] not in (1, 3) or not all(1 <= side <= LARGEST for side in shape):
            raise ValueError(f"facts.shape: expected 1 or 3 channels of at most {LARGEST} pixels a side, got {shape}")
        if classes is not None and not (isinstance(classes, list) and all(isinstance(name, str) for name in classes)):
            raise ValueError(f"facts.classes: expected names of labels or null, got {classes!r:.80}")
        if type(facts["found_levels"]) is not int or not 2 <= facts["found_levels"] <= 256:
            raise ValueError(
                f"facts.found_levels: expected a whole number from 2 to 256, got {facts['found_levels']!r:.80}"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        channels, height, width = self.config.facts["shape"]
        return channels, height, width

    @property
    def reduction(self) -> "Reduction":
        """From stored values to levels."""
        from chainrule.data.images import Reduction

        facts = self.config.facts
        return Reduction(facts["found_levels"], facts["bits"], facts["binarise"])

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the labels."""
        classes = self.config.facts["classes"]
        return None if classes is None else tuple(classes)

    def images(self) -> "PreparedImages":
        """The prepared pictures."""
        from chainrule.data.images import open_images

        return open_images(self.path / DATA)

    def build(self) -> "ImageModel":
        return self.model_of(self.shape)

    def model_of(self, shape: tuple[int, int, int]) -> "ImageModel":
        """The run's model for images of another size; weights are the same, as they are shared by all pixels."""
        classes = None if self.classes is None else len(self.classes)
        model = self.MODELS[self.config.model].build(
            self.config.options, image_shape=shape, levels=self.reduction.levels, num_classes=classes
        )
        return cast("ImageModel", model)

    def fewest_weights(self) -> int:
        if self.config.model == "image-transformer":
            return super().fewest_weights()
        return int(self.config.options.channels) ** 2 // 4

    def prepare(self) -> dict[str, Any]:
        from chainrule.data.images import prepare_images

        data, sources = self.data, self.config.sources
        assert sources["source"] is not None
        images = prepare_images(
            sources["source"],
            self.path / DATA,
            bits=data.bits,
            binarise=None if data.binarise == "no" else data.binarise,
            labelled=data.labels,
            reading=data.reading,
            skip_bad=data.skip_bad,
            validation=sources["validation"],
            validation_fraction=data.validation_fraction,
            seed=self.config.training.seed,
        )
        return images.manifest

    @classmethod
    def fingerprint(cls, path: str | None) -> dict[str, Any]:
        from chainrule.data.images import source_fingerprint

        assert path is not None
        return source_fingerprint(path)

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data.images import ImageBatches, image_evaluation

        images, training = self.images(), self.config.training
        drawn = images.reduction if images.reduction.binarise == "per-epoch" else None
        batches = ImageBatches(images.train, images.train_labels, training.batch_size, training.seed, shard, drawn)
        rows = max(1, _ELEMENTS // images.valid[0].size)
        return batches, lambda: image_evaluation(images.valid, images.valid_labels, rows)

    def introduce(self) -> Iterable[str]:
        from chainrule.data.images import said_shape

        facts = self.config.facts
        counts = facts["pictures"]
        yield f"{facts['name']}: pictures of {said_shape(self.shape)}; {self.reduction}; {said_labels(self.classes)}"
        held_out = facts["validation"]["name"] if facts["validation"] else f"drawn, seed {self.config.training.seed}"
        yield f"{counts['train']:,} pictures to train on, {counts['valid']:,} held out ({held_out})"
        for count, what in (
            (facts["scaled_to_8_bits"], "of 16 bits, scaled to 8"),
            (facts["put_on_white"], "transparent, put on white"),
        ):
            if count:
                yield f"{count:,} pictures are {what}"
        left_out = facts["left_out"]
        if left_out["count"]:
            names = ", ".join(left_out["names"][:5]) + (", ..." if left_out["count"] > 5 else "")
            yield f"{left_out['count']} picture files cannot be read and are left out: {names}"

    def on_validation(self) -> "OnValidation":
        from chainrule.data.atomic import write_bytes
        from chainrule.data.images import block_picture, grid, png
        from chainrule.tasks.image.sampler import Sampler

        def preview(trained: Any, step: int, seconds: float) -> str:
            sampler = Sampler(self, trained)
            pictures = sampler.sketches(_PREVIEWED, sampler.labels_in_turn(_PREVIEWED), step, seconds)
            write_bytes(self.path / SAMPLES, png(grid(pictures)))
            shown = max(1, _LINE // (min(self.shape[2], 32) + 2))
            return block_picture(pictures[:shown])

        return preview

    def summary(self, result: "TrainingResult") -> tuple[dict[str, Any], str]:
        best, size, count = result.best, int(self.images().valid[0].size), self.config.facts["pictures"]["valid"]
        part = "" if best.elements >= size * count else f"first {best.elements // size:,} of the "
        nats = best.nats_per_element * size
        given = ", given their labels" if self.classes else ""
        return (
            {"nats_per_picture": nats, "bits_per_dimension": best.bits_per_element, "values": str(self.reduction)},
            f"{nats:.2f} nats per picture, {best.bits_per_element:.4f} bits/dim on the {part}held-out pictures{given} "
            f"({self.reduction})",
        )

    def next_steps(self) -> Sequence[str]:
        path = quoted(self.path)
        return [
            f"chainrule sample {path} -n 16 --out grid.png",
            f"chainrule score {path} {quote(str(self.config.sources['source']))} --top 10",
            f"chainrule inspect {path}",
        ]

    def describe(self, facts: dict[str, Any]) -> dict[str, str]:
        from chainrule.data.images import said_shape

        images, data, best = facts["facts"], facts["data"], facts["best"]
        channels, height, width = self.shape
        if best is not None:
            best["nats_per_picture"] = best["nats_per_element"] * channels * height * width
        held_out = images["validation"]["name"] if images["validation"] else f"{data['validation_fraction']:.0%}, drawn"
        counts = images["pictures"]
        rows = {
            "data": f"{images['name']} ({size_of(images['source']['bytes'])}), pictures of {said_shape(self.shape)}",
            "values": str(self.reduction),
            "labels": said_labels(self.classes),
            "split": f"{counts['train']:,} pictures to train on, {counts['valid']:,} held out ({held_out})",
            "sample": f"chainrule sample {quoted(self.path)} -n 16",
        }
        if best is not None:
            rows["best"] = (
                f"{best['nats_per_picture']:.2f} nats per picture, {best['bits_per_element']:.4f} bits/dim of the "
                f"held-out pictures ({self.reduction}), at step {best['step']:,}"
            )
        return rows

    @property
    def basis(self) -> Basis:
        draw = f"binarised by one fixed draw, seed {self.config.training.seed}"
        base_measure = draw if self.reduction.draws else str(self.reduction)
        return Basis("dimension", base_measure, given="" if self.classes is None else "the label")

    def score(self, data: str, options: ImageScoring, *, ranked: bool, device: str) -> Answer:
        from chainrule.tasks.image.scoring import score_images

        return score_images(self, data, options, device=device)

    def sample(self, n: int, options: ImageSampling, *, out: Path | None, seed: int, device: str, json: bool) -> Answer:
        from chainrule.tasks.image.sampling import sample_images

        return sample_images(self, n, options, out=out, seed=seed, device=device)

    def checked_rows(self) -> CheckedRows:
        """The middle of held-out images, and the trained weights in the same model for images of that size."""
        from chainrule.data.images import image_batch

        channels, height, width = self.shape
        small = self.model_of((channels, min(height, _CHECKED_SIDE), min(width, _CHECKED_SIDE)))
        trained, needed = self.model().state_dict(), small.state_dict()
        # Embeddings of places keep those of the first rows and columns.
        cut = {name: weight[tuple(map(slice, needed[name].shape))] for name, weight in trained.items()}
        small.load_state_dict(cut)
        images, (_, height, width) = self.images(), small.image_shape
        top, left = (self.shape[1] - height) // 2, (self.shape[2] - width) // 2
        pieces = images.valid[:_CHECKED_ROWS, :, top : top + height, left : left + width]
        labels = None if images.valid_labels is None else images.valid_labels[:_CHECKED_ROWS]
        batch = image_batch(pieces, labels)
        told = f"on the middle {height}×{width} pixels of {len(pieces)} held-out pictures, with the trained weights"
        return CheckedRows(small.eval(), batch.x, batch.context, told=told)

    def inspect(self, data: str | None, options: ImageInspection, *, out: Path | None, seed: int) -> Answer:
        from chainrule.tasks.image.inspection import inspect_images

        if data is not None:
            raise ValueError(f"inspect: reads the held-out pictures of the run, got {data}: leave it out")
        return inspect_images(self, options, out=out)


def said_labels(classes: tuple[str, ...] | None) -> str:
    """
    >>> said_labels(("cat", "dog")), said_labels(None)
    ('2 labels: cat, dog', 'no labels')
    """
    if classes is None:
        return "no labels"
    return f"{len(classes)} labels: {', '.join(classes[:10])}" + (", ..." if len(classes) > 10 else "")
