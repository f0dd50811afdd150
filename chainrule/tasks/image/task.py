"""Images: likelihoods, samples and completions by models that visit one pixel after the other.

data/train.pixels, valid.pixels            the images, (N, C, H, W) bytes
data/train.labels, valid.labels            their labels, where there are any
data/images.json                           counts, levels, names of labels, fingerprints
samples.png                                drawn at the last validation
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, cast

from chainrule.tasks.abilities import (
    Answer,
    CheckedRows,
    Checks,
    Code,
    Compresses,
    Embeds,
    FileCodec,
    Inspects,
    Interpolates,
    Reconstructs,
    Samples,
    Scores,
)
from chainrule.tasks.config import RunConfig
from chainrule.tasks.display import flag, quoted, size_of
from chainrule.tasks.image.code_options import CODE_TRAINING, ImageEmbedding, ImageInterpolation, ImageReconstruction
from chainrule.tasks.image.image_data_task import ImageDataTask
from chainrule.tasks.image.inspection import ImageInspection, inspect_images
from chainrule.tasks.image.options import ImageData, ImageTraining
from chainrule.tasks.image.sampling import ImageSampling, sample_images
from chainrule.tasks.image.scoring import ImageScoring, score_images
from chainrule.tasks.image.words import best_figures, best_words, describe_labels, introduction
from chainrule.tasks.ladder import Ladder
from chainrule.tasks.ledger import Basis, LedgerEntry
from chainrule.tasks.model import Model
from chainrule.tasks.run_directory import DATA
from chainrule.tasks.task import Shard, Source, Task

if TYPE_CHECKING:
    from chainrule.data.images import Reduction
    from chainrule.models import ImageModel
    from chainrule.training import TrainingBatches, ValidationBatches
    from chainrule.training.loop import TrainingResult
    from chainrule.training.validation import Observe, OnValidation

SAMPLES = "samples.png"
_ELEMENTS = 1 << 16  # of the images that are validated on together
_PREVIEWED = 16
_LINE = 90  # characters in which the preview on the terminal has to fit
_CHECKED_ROWS, _CHECKED_SIDE = 4, 5
_FROM_DATA = ("levels", "num_classes")  # arguments of the models
_CODED = ("vae", "pixel-vae", "hierarchical-vae", "autoencoder")  # models with a code, which know no labels


class ImageTask(
    ImageDataTask["ImageModel"], Scores, Samples, Inspects, Checks, Compresses, Embeds, Reconstructs, Interpolates
):
    """A run on images, of an `ImageModel` or, where `has_code`, a `chainrule.latent.CodeModel`."""

    name = "image"
    help = "Train a model of images: exact likelihoods, samples, completions; or one with a code, and bounds."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "A folder of image files, labelled by its sub-folders if there are any; x.npz, or x.npz:ARRAY; x.npy; or "
            "an idx file such as train-images-idx3-ubyte.gz, labels in the same folder.",
            needed="images",
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
        "gated-pixelcnn": Model("chainrule.models.gated_pixel_cnn:GatedPixelCNN", hidden=_FROM_DATA),
        "pixelcnn": Model("chainrule.models.pixel_cnn:PixelCNN", hidden=_FROM_DATA),
        "pixelcnn++": Model("chainrule.models.pixel_cnn_pp:PixelCNNPP", hidden=_FROM_DATA),
        "row-lstm": Model("chainrule.models.pixel_rnn:PixelRNN", fixed={"kind": "row"}, hidden=_FROM_DATA),
        "diagonal-bilstm": Model("chainrule.models.pixel_rnn:PixelRNN", fixed={"kind": "diagonal"}, hidden=_FROM_DATA),
        "image-transformer": Model("chainrule.models.image_transformer:ImageTransformer", hidden=_FROM_DATA),
        "vae": Model("chainrule.models.vae:VAE", hidden=("levels",)),
        "pixel-vae": Model("chainrule.models.pixel_vae:PixelVAE", hidden=("levels",)),
        "hierarchical-vae": Model("chainrule.models.hierarchical_vae:HierarchicalVAE", hidden=("levels",)),
        "autoencoder": Model("chainrule.models.autoencoder:Autoencoder", hidden=("levels",)),
    }
    BUDGET = "10m"
    LADDERS: ClassVar[dict[str, Ladder]] = {
        "gated-pixelcnn": Ladder("pixels", ({"channels": 16, "layers": 5}, {"channels": 8, "layers": 3}), steps=1000),
        "pixel-vae": Ladder("pixels", ({"decoder_channels": 32}, {"decoder_channels": 16}), steps=1000),
    } | dict.fromkeys(
        ("vae", "hierarchical-vae", "autoencoder"),
        Ladder("pixels", ({"hidden_size": 150}, {"hidden_size": 75}), steps=1000),
    )
    Scoring = ImageScoring
    Sampling = ImageSampling
    USUAL_NUMBER = 16
    Inspection = ImageInspection
    Embedding = ImageEmbedding
    Reconstruction = ImageReconstruction
    Interpolation = ImageInterpolation

    @classmethod
    def recognises(cls, path: Path) -> bool:
        from chainrule.data.images.open import is_images

        return is_images(path)

    @classmethod
    def check_asked(cls, asked: RunConfig, given: frozenset[str]) -> None:
        super().check_asked(asked, given)
        _ = asked.data.reading  # an invalid size is rejected before anything is read

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

    @property
    def has_code(self) -> bool:
        """Whether the model of the run has a code: then it is a `chainrule.latent.CodeModel`."""
        return self.config.model in _CODED

    @classmethod
    def coded_models(cls) -> tuple[str, ...]:
        """The models that have a code."""
        return _CODED

    @property
    def conditions(self) -> tuple[str, ...] | None:
        """Names of the labels that the model is conditioned on; `None` where it knows none."""
        return None if self.has_code else self.classes

    @property
    def dimensions(self) -> int:
        """The numbers of an image."""
        return prod(self.shape)

    def plan(self, given: frozenset[str]) -> RunConfig:
        if not self.has_code:
            return super().plan(given)
        usual = {name: value for name, value in CODE_TRAINING.items() if flag(name) not in given}
        training = replace(self.training, **usual)
        return Task.plan(ImageTask(self.path, replace(self.config, training=training)), given)

    def build(self) -> "ImageModel":
        return self.model_of(self.shape)

    def model_of(self, shape: tuple[int, int, int]) -> "ImageModel":
        """The run's model for images of another size; weights are the same, as they are shared by all pixels."""
        classes = None if self.conditions is None else len(self.conditions)
        model = self.MODELS[self.config.model].build(
            self.config.options, image_shape=shape, levels=self.reduction.levels, num_classes=classes
        )
        return cast("ImageModel", model)

    def fewest_weights(self) -> int:
        if self.config.model == "image-transformer" or self.has_code:
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
            seed=self.training.seed,
        )
        return images.manifest

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data.images import image_batches, image_evaluation

        images, training = self.images(), self.training
        known = (None, None) if self.has_code else (images.train_labels, images.valid_labels)
        drawn = images.reduction if images.reduction.binarise == "per-epoch" else None
        batches = image_batches(images.train, known[0], training.batch_size, training.seed, shard, drawn)
        rows = max(1, _ELEMENTS // images.valid[0].size)
        return batches, lambda: image_evaluation(images.valid, known[1], rows)

    def introduce(self) -> Iterable[str]:
        return introduction(self)

    def on_validation(self) -> "OnValidation":
        from chainrule.data.atomic import write_bytes
        from chainrule.data.images import block_image, grid, png
        from chainrule.tasks.image.sampler import Sampler

        if self.has_code:
            from chainrule.tasks.image.code_preview import CodePreview

            return CodePreview(self, _LINE)

        def preview(trained: Any, step: int, seconds: float) -> str:
            sampler = Sampler(self, trained)
            images = sampler.sketches(_PREVIEWED, sampler.labels_in_turn(_PREVIEWED), step, seconds)
            write_bytes(self.path / SAMPLES, png(grid(images)))
            shown = max(1, _LINE // (min(self.shape[2], 32) + 2))
            return block_image(images[:shown])

        return preview

    def observe(self) -> "Observe | None":
        from chainrule.tasks.image.code_preview import observer

        return observer(self) if self.has_code else None

    def summary(self, result: "TrainingResult") -> tuple[dict[str, Any], str]:
        best, count = result.best, self.config.facts["images"]["valid"]
        part = "" if best.elements >= self.dimensions * count else f"first {best.elements // self.dimensions:,} of the "
        values = {"values": str(self.reduction)}
        return best_figures(self, best.nats_per_element) | values, best_words(self, best.nats_per_element, part)

    def next_steps(self) -> Sequence[str]:
        path = quoted(self.path)
        if self.has_code:
            source = quote(str(self.config.sources["source"]))
            scored = f"chainrule score {path} {source} --top 10"
            return [f"chainrule reconstruct {path} {source}", scored, f"chainrule inspect {path}"]
        return [
            f"chainrule sample {path} -n 16 --out grid.png",
            f"chainrule score {path} {quote(str(self.config.sources['source']))} --top 10",
            f"chainrule inspect {path}",
        ]

    def describe(self, facts: dict[str, Any]) -> dict[str, str]:
        from chainrule.data.images import format_shape

        images, data, best = facts["facts"], facts["data"], facts["best"]
        held_out = images["validation"]["name"] if images["validation"] else f"{data['validation_fraction']:.0%}, drawn"
        counts = images["images"]
        rows = {
            "data": f"{images['name']} ({size_of(images['source']['bytes'])}), images of {format_shape(self.shape)}",
            "values": str(self.reduction),
            "labels": describe_labels(self.classes),
            "split": f"{counts['train']:,} images to train on, {counts['valid']:,} held out ({held_out})",
            "sample": f"chainrule sample {quoted(self.path)} -n 16",
        }
        if best is not None:
            nats = best["nats_per_element"]
            best.update(best_figures(self, nats))
            rows["best"] = f"{best_words(self, nats)}, at step {best['step']:,}"
        return rows

    def codec(self) -> FileCodec:
        from chainrule.tasks.image.compression import ImageCodec

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

    def held_out(self) -> LedgerEntry | None:
        entry = super().held_out()
        # An autoencoder maximises minus half the squared error.
        return entry if entry is None or entry.basis.quantity == "nats" else replace(entry, nats=2 * entry.nats)

    def score(self, data: str, options: ImageScoring, *, ranked: bool, device: str) -> Answer:
        return score_images(self, data, options, device=device)

    def sample(self, n: int, options: ImageSampling, *, out: Path | None, seed: int, device: str, json: bool) -> Answer:
        return sample_images(self, n, options, out=out, seed=seed, device=device)

    def embed(self, data: str, options: ImageEmbedding, *, device: str) -> Iterator[Code]:
        from chainrule.tasks.image.code_images import embed_images

        return embed_images(self, data, options, device=device)

    def reconstruct(
        self, data: str, options: ImageReconstruction, *, out: Path | None, seed: int, device: str
    ) -> Answer:
        from chainrule.tasks.image.code_images import reconstruct_images

        return reconstruct_images(self, data, options, out=out, seed=seed, device=device)

    def interpolate(
        self, ends: tuple[str, str], options: ImageInterpolation, *, out: Path | None, seed: int, device: str
    ) -> Answer:
        from chainrule.tasks.image.code_images import interpolate_images

        return interpolate_images(self, ends, options, out=out, seed=seed, device=device)

    def checked_rows(self) -> CheckedRows:
        """The middle of held-out images, and the trained weights in the same model for images of that size."""
        from chainrule.data.images import image_batch

        if self.has_code:
            rows = image_batch(self.images().valid[:_CHECKED_ROWS], None).x
            return CheckedRows(self.model(), rows, note=f"on {len(rows)} held-out images")
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
        told = f"on the middle {height}×{width} pixels of {len(pieces)} held-out images, with the trained weights"
        return CheckedRows(small.eval(), batch.x, batch.context, note=told)

    def inspect(self, data: str | None, options: ImageInspection, *, out: Path | None, seed: int) -> Answer:
        if data is not None:
            raise ValueError(f"inspect: reads the held-out images of the run, got {data}: leave it out")
        if self.has_code:
            from chainrule.tasks.image.code_inspection import inspect_codes

            return inspect_codes(self, options, out=out, seed=seed)
        return inspect_images(self, options, out=out)
