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
OPTION_OF = {"reset_after": "gru", "nonlinearity": "rnn"}  # options of one model alone
_COUNTS = {"elements": int, "lines": int, "unknown": int, "characters": int, "bytes": int}


@dataclass(frozen=True)
class RecurrentOptions(CheckedOptions):
    """The options of `chainrule.models.RecurrentLM`, its cell apart: that is the name of the model."""

    hidden_size: int = within(512, 1, 1 << 16)
    """Units of each layer."""
    num_layers: int = within(1, 1, 256)
    """Layers, one above the other."""
    embedding_size: int | None = within(None, 1, 1 << 16)
    """Features of each symbol; where not given, hidden-size for words and subwords, else one-hot."""
    dropout: float = within(0.3, 0.0, 0.99)
    """Share of features dropped in training; 0 where the text is far larger than the model can learn."""
    tie_weights: bool = False
    """Use the embedding as the output matrix."""
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
    """How a model of a text is trained.

    `watch_gradients` decides on what `chainrule.training.train` is given to look with; the others are options of
    `chainrule.training.TrainingOptions`, with the same defaults.
    """

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
        check_keys("facts", facts, {"source", "validation", "train", "valid"})
        check_entries("facts", facts, "source", FINGERPRINT)
        if facts["validation"] is not None:
            check_entries("facts", facts, "validation", FINGERPRINT)
        for part in ("train", "valid"):
            check_entries("facts", facts, part, _COUNTS)
            if min(facts[part].values()) < 0 or not facts[part]["elements"]:
                raise ValueError(f"facts.{part}: expected counts of a text, got a negative one or no elements")

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        for name, model in OPTION_OF.items():
            if config.model != model and getattr(config.options, name) != getattr(RecurrentOptions, name):
                raise ValueError(
                    f"{name}: an option of the model {model}, but the model is {config.model}: leave it out"
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
        from chainrule.models.recurrent_lm import RecurrentLM

        return RecurrentLM(len(self.vocabulary), cell=cast(ModelName, self.config.model), **asdict(self.options))

    def _unfilled(self) -> "RecurrentLM":
        import torch

        with torch.device("meta"):  # no memory and no random weights
            model = self.build()
        return model.to_empty(device="cpu")

    def fewest_weights(self) -> int:
        options = self.options
        first = (options.embedding_size or options.hidden_size) * len(self.vocabulary)
        return first + options.num_layers * options.hidden_size**2
