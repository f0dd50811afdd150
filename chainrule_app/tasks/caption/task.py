"""Captioned images: pixels, words and captions in `data/`; a captioner looks at an image and writes a sentence."""

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from chainrule.files import check_header, copy_file, naming
from chainrule.option_error import OptionError, option
from chainrule.printing import printable
from chainrule.ranges import Layers, Probability, Range, Size
from chainrule_app.heavy import caption_data, np
from chainrule_app.printing import counted, measured_part, spelled
from chainrule_app.readers.sources import check_file, holds_records, is_path
from chainrule_app.tasks.config import CheckedOptions, Counts, Facts, Fingerprint, Model, RunConfig
from chainrule_app.tasks.likelihood_record import Basis
from chainrule_app.tasks.options import (
    BatchSize,
    CaptionLength,
    Cell,
    HeldOutShare,
    LearningRate,
    MinCount,
    OptimisationOptions,
    SplitOptions,
)
from chainrule_app.tasks.run_directory import DATA
from chainrule_app.tasks.size_schedule import SizeSchedule
from chainrule_app.tasks.task import Shard, Source, Task

if TYPE_CHECKING:
    from chainrule.data import WordVocabulary
    from chainrule.models import Captioner
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import TrainingBatches, ValidationBatches
    from chainrule_app.readers.captions import PreparedCaptions

BACKBONE = f"{DATA}/backbone.safetensors"
_SIZES = SizeSchedule("words", ({"hidden_size": 128, "embedding_size": 128, "image_features": 64},), passes=5)


@dataclass(frozen=True)
class CaptionData(SplitOptions):
    """Options for reading images and captions, and for holding some out."""

    image_size: Annotated[int, Range(8, 1024)] = 64
    """Height and width in pixels to which every image is scaled."""
    fit: Literal["crop", "pad", "stretch"] = "crop"
    """Way to make an image square: cut two sides, add black bars, or change the proportions."""
    min_count: MinCount = 3
    """Rarer words become unknown."""
    lower_case: bool = True
    """Read captions in lower case."""
    max_length: CaptionLength = 100
    """Maximum words of a caption."""
    validation_fraction: HeldOutShare = 0.1
    """Share of the images to hold out without --validation-captions."""


@dataclass(frozen=True)
class CaptionerOptions(CheckedOptions):
    cell: Cell = "lstm"
    """Recurrence of the decoder."""
    embedding_size: Size = 192
    """Features of each word, for its embedding and for its prediction."""
    hidden_size: Size = 256
    """Units of each layer."""
    num_layers: Layers = 1
    """Recurrent layers."""
    image_features: Annotated[int, Range(8, 16384)] = 128
    """Features of each place of the built-in encoder's grid; earlier stages have a half and a quarter of them."""
    blocks: Layers = 1
    """Residual blocks of each stage of the built-in encoder."""
    backbone: Literal["resnet18", "resnet34", "resnet50"] | None = None
    """Published image network that replaces the built-in encoder; its weights come from a file and are not trained."""
    dropout: Probability = 0.4
    """Share of features dropped in training: embeddings, grid, between layers and before the output."""
    attention: Literal["additive", "multiplicative"] | None = "additive"
    """Score of the decoder's attention to the image; none reads a single vector, the mean of the grid."""
    input_feeding: bool = False
    """Feed the attention output for the last word back to the decoder (Luong et al. 2015)."""
    tie_weights: bool = True
    """Use the embeddings as output weights."""
    label_smoothing: Probability = 0.0
    """Share of each target that is spread over all words, in training."""


@dataclass(frozen=True)
class CaptionTraining(OptimisationOptions):
    batch_size: BatchSize = 64
    optimiser: Literal["adamw", "muon"] = "muon"
    learning_rate: LearningRate = 4e-3
    """Peak learning rate; 0.002 by default with AdamW."""


@dataclass(frozen=True)
class CaptionCounts(Counts):
    images: int
    captions: int
    words: int
    unknown: int


@dataclass(frozen=True)
class CaptionFacts(Facts):
    captions: Fingerprint
    validation: Fingerprint | None
    validation_captions: Fingerprint | None
    backbone_weights: Fingerprint | None
    train: CaptionCounts
    valid: CaptionCounts
    words: int  # vocabulary size
    size: int  # pixels per side

    def __post_init__(self) -> None:
        for name, value in (("words", self.words), ("size", self.size)):
            if not 2 <= value <= 1 << 24:
                raise ValueError(f"{name}: expected a whole number from 2 to {1 << 24}, got {value}")


class CaptionTask(Task["Captioner"]):
    name = "caption"
    help = "Train a captioner: a convolutional network, and a recurrent one that looks at it word by word."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source("The images: an archive (zip, tar) or a folder.", needed="images"),
        "captions": Source(
            "Captions: NAME, a tab and the caption per line, or JSON in COCO's format; by default the file of captions "
            "among the images.",
            "--captions",
        ),
        "validation": Source("Images to hold out, if they are not in DATA.", "--validation"),
        "validation_captions": Source(
            "Captions of the images to hold out; a random part of DATA by default.", "--validation-captions"
        ),
        "backbone_weights": Source(
            "A safetensors file with the weights of --backbone, which are not trained.", "--backbone-weights"
        ),
    }
    Data = CaptionData
    Facts = CaptionFacts
    Training = CaptionTraining
    DEFAULT_TRAINING: ClassVar[dict[str, dict[str, Any]]] = {"captioner": {"learning_rate": {"adamw": 2e-3}}}
    APPLE = True
    MODELS: ClassVar[dict[str, Model]] = {"captioner": Model("Captioner", CaptionerOptions)}
    BUDGET = "10m"
    SIZE_SCHEDULES: ClassVar[dict[str, SizeSchedule]] = dict.fromkeys(MODELS, _SIZES)
    WORDS: ClassVar[dict[str, str]] = {"captioner": "caption"}
    NEEDS: ClassVar[tuple[str, ...]] = ("sacrebleu",)
    PREPARED = f"{DATA}/captions.json"
    NEXT = (
        "chainrule caption {run} image.jpg --beam 5 --plot look.png",
        "chainrule evaluate {run} IMAGES --captions CAPTIONS --beam 5",
    )
    metric_name = "bleu"
    CHECKED = (3, 8)
    plots = True
    several = True

    @cached_property
    def prepared(self) -> "PreparedCaptions":
        return caption_data.open_captions(self.path / DATA)

    @cached_property
    def vocabulary(self) -> "WordVocabulary":
        from chainrule.data import WordVocabulary

        return WordVocabulary.load(self.path / DATA / "vocabulary.json")

    def held_out_captions(self, image: int) -> list[str]:
        """Return the reference captions of a held-out image, as the vocabulary decodes them."""
        valid, decode = self.prepared.valid, self.vocabulary.decode
        padded, lengths = valid.captions.padded(np.array(valid.captions_of(image)))
        rows = zip(padded.tolist(), lengths.tolist(), strict=True)
        return [decode(row[:length]).strip() for row, length in rows]

    @classmethod
    def check_asked(cls, request: RunConfig, given: frozenset[str]) -> None:
        super().check_asked(request, given)
        sources = request.sources
        if sources["validation"] is not None and sources["validation_captions"] is None:
            raise OptionError("validation", f"expected {option('validation_captions')} too", "give both")
        weights = sources["backbone_weights"]
        if (weights is None) != (request.options.backbone is None):
            raise OptionError(
                "backbone", f"expected a network, and a file with its {option('backbone_weights')}", "give both"
            )
        if weights is not None:
            check_file(weights)

    @classmethod
    def fingerprint(cls, path: Any) -> dict[str, Any]:
        return caption_data.store_fingerprint(path)

    def prepare(self, old: "CaptionTask | None" = None) -> dict[str, Any]:
        sources, options = self.config.sources, asdict(self.data)
        with ExitStack() as stack:
            captions = sources["captions"]
            if captions is None:
                file = caption_data.captions_in(self.source)
                folder = stack.enter_context(TemporaryDirectory(prefix="chainrule-"))
                captions = str(Path(folder) / PurePosixPath(file.name).name)
                with file.open() as content, naming(Path(captions)):
                    Path(captions).write_bytes(content.read())
            if is_path(captions) and holds_records(captions):
                image, text = caption_data.caption_keys(captions)
                name = PurePosixPath(captions).name
                print(printable(f"{name}: images under the key {image!r}, captions under {text!r}"), file=sys.stderr)
            manifest = caption_data.prepare_captions(
                self.path / DATA,
                self.source,
                captions,
                dev_images=sources["validation"],
                validation_captions=sources["validation_captions"],
                size=options.pop("image_size"),
                seed=self.training.seed,
                vocabulary=None if old is None else old.vocabulary,
                **options,
            ).manifest
        weights = sources["backbone_weights"]
        if weights is not None:  # kept in the run, so that nothing else is needed to go on with it
            copy_file(Path(weights), self.path / BACKBONE)
        return manifest | {"backbone_weights": None if weights is None else self.fingerprint(weights)}

    def build(self) -> "Captioner":
        model = self._network()
        if self.config.options.backbone is not None:
            if (self.path / BACKBONE).exists():
                check_header(self.path / BACKBONE)
            encoder: Any = model.encoder
            encoder.load(self.path / BACKBONE)
        return model

    def _network(self) -> "Captioner":
        model: Captioner = self.built(vocab_size=self.facts.words)
        return model

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        prepared, training = self.prepared, self.training
        batches = caption_data.caption_batches(prepared.train, training.batch_size, training.seed, shard)
        return batches, lambda: caption_data.caption_evaluation(prepared.valid)

    def introduce(self) -> Iterable[str]:
        facts = self.facts
        yield f"{facts.source.name}: {_split(facts)}, {counted(facts.words, 'word')}"
        how = {"crop": "cropped", "pad": "padded", "stretch": "stretched"}
        others = " or ".join(spelled("fit", name) for name in how if name != self.data.fit)
        yield f"images are {how[self.data.fit]} to {facts.size}×{facts.size} pixels ({others} for another way)"

    def best(self, evaluation: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        part, perplexity = measured_part(rows, self.facts.valid.images), evaluation.perplexity
        return (
            {"bleu": value, "perplexity": perplexity},
            f"BLEU-4 {value:.2f} on {part}held-out images (greedy), perplexity of their captions {perplexity:.4g}",
        )

    @property
    def basis(self) -> Basis:
        return Basis("symbol", tokens=f"word level, {counted(self.facts.words, 'symbol')}", given="the image")


def _split(facts: CaptionFacts) -> str:
    return (
        f"{counted(facts.train.images, 'image')} with {counted(facts.train.captions, 'caption')} to train on, "
        f"{facts.valid.images:,} with {facts.valid.captions:,} held out"
    )
