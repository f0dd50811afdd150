"""The options of a text: how it is read and trained on, its models and their sizes."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from chainrule_app.tasks.config import CheckedOptions, OptimisationOptions, within
from chainrule_app.tasks.model import Model
from chainrule_app.tasks.size_schedule import SizeSchedule

DROPOUTS = ("dropout", "ngram_dropout")  # of blocks, settled when a run is made
# Of training, settled when a run is made.
PLANNED = ("batch_size", "optimiser", "learning_rate", "weight_decay", "kneser_ney_order")


@dataclass(frozen=True)
class TextData(CheckedOptions):
    """Options for turning a text into symbols and holding out a part."""

    level: Literal["char", "byte", "word", "bpe"] = "char"
    """Unit of one symbol; bpe: pieces of words."""
    reading: Literal["stream", "lines"] = "stream"
    """One continuous stream, or one example per line."""
    validation_fraction: float | None = within(None, 1e-6, 0.9)
    """Share of the text to hold out, from the end; by default 0.01 from a megabyte on, up to 0.05 for shorter texts."""
    vocabulary_size: int | None = within(None, 3, 1 << 24)
    """Maximum number of symbols (word, bpe)."""
    min_count: int = within(1, 1, 1 << 40)
    """Rarer symbols become unknown."""
    split_punctuation: bool = False
    """Make punctuation marks separate words; samples join them again (word)."""
    text_column: str | None = None
    """Column of the texts in JSON Lines or Parquet; text by default."""


@dataclass(frozen=True)
class TextTraining(OptimisationOptions):
    """Training options of a text model; `plan` resolves those that are None.

    `watch_gradients` decides on what `chainrule.training.train` is given to look with, `kneser_ney_order` on what is
    counted before; the others are options of `chainrule.training.TrainingOptions`.
    """

    batch_size: int | None = within(None, 1, 1 << 24)  # type: ignore[assignment]  # an int in every run that trains
    """Batch size; 32 by default, fewer for a short text."""
    optimiser: Literal["adamw", "muon"] | None = None  # type: ignore[assignment]  # a name in every run that trains
    """adamw, or muon: orthogonal steps for matrices, AdamW for the rest; default muon."""
    learning_rate: float | None = within(None, 0.0, 1e3)  # type: ignore[assignment]  # a float in every run that trains
    kneser_ney_order: int | None = within(None, 0, 16)
    """Order of the n-gram counts, 2 or more, or 0; by default 5 for words, 12 for characters."""
    chunk_length: int = within(64, 1, 1 << 24)
    """Symbols through which gradients flow."""
    line_length: int = within(1024, 1, 1 << 24)
    """Maximum length of a line in training (--reading lines); the rest is cut."""
    watch_gradients: bool = False
    """Log how gradients flow back through time."""
    watch_every: int | None = within(None, 1, 1 << 53)
    """Steps between gradient probes; 20 by default, 100 on a GPU."""


_OF_SOFTMAX = ("num_kv_heads", "position", "window", "context_length")  # no effect on other mixers
_PLANNED_SIZES = (
    "hidden_size",
    "num_layers",
    "embedding_size",
    "ngram_order",
    "ngram_dropout",
    "dropout",
    "embedding_dropout",
    "tie_weights",
    "adaptive_softmax",
    "num_members",
)


_recurrent = partial(Model, "RecurrentLM", planned=_PLANNED_SIZES, members=True)
_transformer = partial(Model, "TransformerLM", members=True, model_size=256, num_layers=6, ngram_order=4)
MODELS: dict[str, Model] = {
    "lstm": _recurrent(fixed={"cell": "lstm"}, hidden=("reset_after", "nonlinearity")),
    "gru": _recurrent(fixed={"cell": "gru"}, hidden=("nonlinearity",)),
    "rnn": _recurrent(fixed={"cell": "rnn"}, hidden=("reset_after",)),
    "transformer": _transformer(fixed={"attention": "softmax"}, context_length=64),
    "linear-transformer": _transformer(fixed={"attention": "gated-linear"}, hidden=_OF_SOFTMAX),
    "min-gru": _transformer(fixed={"attention": "min-gru"}, hidden=(*_OF_SOFTMAX, "num_heads")),
}
_BLOCKS = (  # smaller ones
    {"model_size": 192, "num_layers": 5},
    {"model_size": 128, "num_layers": 4},
    {"model_size": 96, "num_layers": 3},
    {"model_size": 64, "num_layers": 2},
)
SIZE_SCHEDULES: dict[str, SizeSchedule] = dict.fromkeys(
    ("transformer", "linear-transformer", "min-gru"), SizeSchedule("symbols", _BLOCKS, steps=800)
)
