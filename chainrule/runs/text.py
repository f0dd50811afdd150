"""The directory of a run on a text: symbols in `vocabulary.json`, the text as symbols in `corpus/`."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args

from chainrule.runs.config import (
    FINGERPRINT,
    CheckedOptions,
    OptimisationOptions,
    RunConfig,
    check_entries,
    check_keys,
    within,
)
from chainrule.runs.run import CONFIG, VOCABULARY, Run

if TYPE_CHECKING:
    from chainrule.data.vocabulary import Vocabulary
    from chainrule.models.recurrent_lm import RecurrentLM

ModelName = Literal["lstm", "gru", "rnn"]
PLANNED = ("batch_size", "learning_rate")  # options of training that are settled when a run is made
OPTION_OF = {"reset_after": "gru", "nonlinearity": "rnn"}  # options of one model alone
_COUNTS = {"elements": int, "lines": int, "unknown": int, "characters": int, "bytes": int}


@dataclass(frozen=True)
class RecurrentOptions(CheckedOptions):
    """The options of `chainrule.models.RecurrentLM`, its cell apart: that is the name of the model.

    `chainrule.cli.text.plan` settles those that are None, from the data, the budget and the speed of the machine.
    """

    hidden_size: int | None = within(None, 1, 1 << 16)
    """Units of each layer."""
    num_layers: int | None = within(None, 1, 256)
    """Layers, one above the other."""
    embedding_size: int | None = within(None, 1, 1 << 16)
    """Features of each symbol."""
    ngram_order: int | None = within(None, 1, 16)
    """Symbols that are embedded together at most, beside each symbol alone; 1 for none together."""
    ngram_buckets: int = within(1 << 14, 1, 1 << 24)
    """Rows of the table of embeddings of each n-gram order at most."""
    ngram_dropout: float | None = within(None, 0.0, 0.99)
    """Share of n-grams left out in training."""
    dropout: float | None = within(None, 0.0, 0.99)
    """Share of features dropped in training, between layers and before the output."""
    embedding_dropout: float | None = within(None, 0.0, 0.99)
    """The same of the embedding's features."""
    tie_weights: bool | None = None
    """Use the embedding as the output matrix."""
    adaptive_softmax: bool | None = None
    """Predict in clusters of ever rarer words (Grave et al. 2017); exact, and faster for a wide vocabulary."""
    reset_after: bool = True
    """Which GRU: reset after the product, or before it."""
    nonlinearity: Literal["tanh", "relu", "sigmoid", "identity"] = "tanh"
    """Of the plain RNN."""


@dataclass(frozen=True)
class TextData(CheckedOptions):
    """How a text becomes symbols, and which part of it is held out."""

    level: Literal["char", "byte", "word", "bpe", "subword"] = "char"
    """What one symbol is; subword is another name of bpe."""
    reading: Literal["stream", "lines"] = "stream"
    """One continuous stream, or one example per line."""
    validation_fraction: float | None = within(None, 0.0, 0.9)
    """Tail of the text that is held out; 0.01 of a megabyte or more where not given, up to 0.05 of a shorter text."""
    vocabulary_size: int | None = within(None, 3, 1 << 24)
    """Keep this many symbols at most (word, bpe)."""
    min_count: int = within(1, 1, 1 << 40)
    """Rarer symbols become unknown."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.level == "subword":
            object.__setattr__(self, "level", "bpe")


@dataclass(frozen=True)
class TextTraining(OptimisationOptions):
    """How a model of a text is trained; None is settled as in `RecurrentOptions`.

    `watch_gradients` decides on what `chainrule.training.train` is given to look with; the others are options of
    `chainrule.training.TrainingOptions`, with the same defaults.
    """

    batch_size: int | None = within(None, 1, 1 << 24)  # type: ignore[assignment]  # an int in every run that trains
    """Rows of a batch; 32 where not given, fewer of a short text."""
    learning_rate: float | None = within(None, 0.0, 1e3)  # type: ignore[assignment]  # a float in every run that trains
    """Peak learning rate of AdamW."""
    chunk_length: int = within(64, 1, 1 << 24)
    """Symbols that gradients flow through."""
    line_length: int = within(1024, 1, 1 << 24)
    """Longer lines are cut in training (--reading lines)."""
    watch_gradients: bool = False
    """Log how gradients flow back through time."""
    watch_every: int | None = within(None, 1, 1 << 53)
    """Steps between looks at the gradients; 20 where not given, 100 on a GPU."""


class TextRun(Run["RecurrentLM"]):
    """A run on a text."""

    KIND = "text"
    DATA = TextData
    MODELS: ClassVar[dict[str, type]] = dict.fromkeys(get_args(ModelName), RecurrentOptions)
    TRAINING = TextTraining

    @property
    def data(self) -> TextData:
        """How the text is read."""
        return cast(TextData, self.config.data)

    @property
    def options(self) -> RecurrentOptions:
        """Those of the model."""
        return cast(RecurrentOptions, self.config.options)

    @property
    def training(self) -> TextTraining:
        """How it is trained."""
        return cast(TextTraining, self.config.training)

    @classmethod
    def check_facts(cls, facts: dict[str, Any]) -> None:
        check_keys("facts", facts, {"source", "validation", "train", "valid", "chosen"})
        check_entries("facts", facts, "source", FINGERPRINT)
        if facts["validation"] is not None:
            check_entries("facts", facts, "validation", FINGERPRINT)
        for part in ("train", "valid"):
            check_entries("facts", facts, part, _COUNTS)
            if min(facts[part].values()) < 0 or not facts[part]["elements"]:
                raise ValueError(f"facts.{part}: expected counts of a text, got a negative one or no elements")

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        if config.facts:  # prepared: nothing is left open any more
            settled = asdict(config.options) | {name: getattr(config.training, name) for name in PLANNED}
            if missing := [name for name, value in settled.items() if value is None]:
                raise ValueError(f"{missing[0]}: expected a value, got none")
        for name, model in OPTION_OF.items():
            if config.model != model and getattr(config.options, name) != getattr(RecurrentOptions, name):
                raise ValueError(
                    f"{name}: an option of the model {model}, but the model is {config.model}: leave it out"
                )
        if config.options.adaptive_softmax and config.data.level != "word":
            raise ValueError(
                "adaptive_softmax: needs symbols numbered by frequency, which --level word has, "
                f"got --level {config.data.level}: leave it out"
            )

    @cached_property
    def vocabulary(self) -> "Vocabulary":
        """The symbols, read once."""
        from chainrule.data.levels import load_vocabulary

        vocabulary = load_vocabulary(self.path / VOCABULARY)
        if vocabulary.level != self.data.level:
            raise ValueError(
                f"{self.path / VOCABULARY}: the level is {vocabulary.level!r}, but {CONFIG} says "
                f"{self.data.level!r}: one of the two files was changed"
            )
        return vocabulary

    def build(self) -> "RecurrentLM":
        from chainrule.layers import default_cutoffs
        from chainrule.models.recurrent_lm import RecurrentLM

        options = asdict(self.options)
        cutoffs = default_cutoffs(len(self.vocabulary)) if options.pop("adaptive_softmax") else None
        return RecurrentLM(len(self.vocabulary), cell=cast(ModelName, self.config.model), cutoffs=cutoffs, **options)

    def _unfilled(self) -> "RecurrentLM":
        import torch

        with torch.device("meta"):  # no memory and no random weights
            model = self.build()
        return model.to_empty(device="cpu")

    def fewest_weights(self) -> int:
        options = self.options
        size, layers = options.hidden_size or 1, options.num_layers or 1
        return (options.embedding_size or size) * len(self.vocabulary) + layers * size**2
