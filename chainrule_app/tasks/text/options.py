"""The options of a text: how it is read and trained on, its models and their sizes."""

from dataclasses import dataclass
from typing import Annotated, Literal

from chainrule.ranges import Layers, Probability, Range, Size
from chainrule_app.tasks.config import CheckedOptions, Model, Steps
from chainrule_app.tasks.options import BatchSize, LearningRate, Members, MinCount, OptimisationOptions
from chainrule_app.tasks.size_schedule import SizeSchedule

DROPOUTS = ("dropout", "ngram_dropout")  # of blocks, settled when a run is made
# Of training, settled when a run is made.
PLANNED = ("batch_size", "optimiser", "learning_rate", "weight_decay", "kneser_ney_order")


@dataclass(frozen=True)
class TextData(CheckedOptions):
    """Options for turning a text into symbols and holding out a part."""

    level: Literal["char", "byte", "word", "bpe"] = "char"
    """Unit of one symbol; bpe: pieces of words."""
    reading: Literal["stream", "lines"] | None = None
    """One continuous stream, or one example per line; by default lines for a log, whose lines have times."""
    validation_fraction: Annotated[float, Range(1e-6, 0.9)] | None = None
    """Share of the text to hold out, from the end; by default 0.01 from a megabyte on, up to 0.05 for shorter texts."""
    vocabulary_size: Annotated[int, Range(3, 1 << 24)] | None = None
    """Maximum number of symbols (word, bpe)."""
    min_count: MinCount = 1
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

    batch_size: BatchSize | None = None  # type: ignore[assignment]  # an int in every run that trains
    """Batch size; 32 by default, fewer for a short text."""
    optimiser: Literal["adamw", "muon"] | None = None  # type: ignore[assignment]  # a name in every run that trains
    """adamw, or muon: orthogonal steps for matrices, AdamW for the rest; default muon."""
    learning_rate: LearningRate | None = None  # type: ignore[assignment]  # a float in every run that trains
    kneser_ney_order: Annotated[int, Range(0, 16)] | None = None
    """Order of the n-gram counts, 2 or more, or 0; by default 5 for words, 12 for characters."""
    chunk_length: Annotated[int, Range(1, 1 << 24)] = 64
    """Symbols through which gradients flow."""
    line_length: Annotated[int, Range(1, 1 << 24)] = 1024
    """Maximum length of a line in training (--reading lines); the rest is cut."""
    watch_gradients: bool = False
    """Log how gradients flow back through time."""
    watch_every: Steps | None = None
    """Steps between gradient probes; 20 by default, 100 on a GPU."""


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


@dataclass(frozen=True)
class LSTMOptions(CheckedOptions):
    """Options of a recurrent language model; `plan` resolves those that are None."""

    embedding_size: Size | None = None
    """Width of the embedding; by default 64 for characters and bytes, the hidden size for words."""
    hidden_size: Size | None = None
    """Units of each layer."""
    num_layers: Layers | None = None
    """Recurrent layers."""
    dropout: Probability | None = None
    """Probability of zeroing in training, between layers and before the output."""
    tie_weights: bool | None = None
    """Use the embedding as output weights, too; requires an --embedding-size equal to --hidden-size."""
    embedding_dropout: Probability | None = None
    """Probability of zeroing features of the embedding in training; harmful for narrow embeddings."""
    ngram_order: Annotated[int, Range(1, 16)] | None = None
    """Maximum number of symbols that are embedded together; 1 embeds single symbols only."""
    ngram_buckets: Annotated[int, Range(1, 1 << 24)] = 1 << 14
    """Maximum rows of each n-gram table."""
    ngram_dropout: Probability | None = None
    """Probability of leaving out an n-gram in training."""
    adaptive_softmax: bool | None = None
    """Predict in clusters of ever rarer symbols: exact, and faster for a wide vocabulary (--level word)."""
    num_members: Members | None = None
    """Models to train separately and average; time and memory grow in proportion. Depends on the budget by default."""


@dataclass(frozen=True)
class GRUOptions(LSTMOptions):
    reset_after: bool = True
    """Apply the reset gate after the product with the state, as cuDNN does; else before, as in the paper."""


@dataclass(frozen=True)
class RNNOptions(LSTMOptions):
    nonlinearity: Literal["tanh", "relu", "sigmoid", "identity"] = "tanh"
    """Function of a unit."""


@dataclass(frozen=True)
class MinGRUOptions(CheckedOptions):
    """Options of blocks that read symbols."""

    model_size: Size = 256
    """Features between the blocks, a multiple of --num-heads where there are heads."""
    num_layers: Layers = 6
    """Blocks."""
    feed_forward_size: Size | None = None
    """Units of the feed-forward networks; by default 4 times the model size, 8/3 times for swiglu."""
    activation: Literal["gelu", "gelu-tanh", "relu", "swiglu"] = "gelu"
    """Function of the feed-forward networks; gelu-tanh is its approximation in GPT-2."""
    norm: Literal["layer", "rms"] = "layer"
    """Normalisation: of mean and variance, or of the root mean square."""
    norm_first: bool = True
    """Norms before each branch (pre-norm), or after each sum."""
    bias: bool = False
    """Biases in softmax attention and in the feed-forward networks."""
    dropout: Probability = 0.0
    """Probability of zeroing in training, of the input and of what each branch adds; by default 0 to 0.3, more for more
    passes over the text."""
    tie_weights: bool = False
    """Use the embedding as output weights, which saves weights for a large vocabulary."""
    ngram_order: Annotated[int, Range(1, 16)] = 4
    """Maximum number of symbols that are embedded together; 1 embeds single symbols only."""
    ngram_buckets: Annotated[int, Range(1, 1 << 24)] = 1 << 14
    """Maximum rows of each n-gram table."""
    ngram_dropout: Probability = 0.0
    """Probability of leaving out an n-gram in training; by default twice the dropout."""
    num_members: Members = 1
    """Models to train separately and average; time and memory grow in proportion."""


@dataclass(frozen=True)
class LinearTransformerOptions(MinGRUOptions):
    num_heads: Layers = 4
    """Heads of attention."""


@dataclass(frozen=True)
class TransformerOptions(LinearTransformerOptions):
    num_kv_heads: Layers | None = None
    """Key and value heads, a divisor of --num-heads: fewer make a smaller cache; by default as many."""
    position: Literal["rotary", "alibi", "sinusoidal", "learned"] | None = "rotary"
    """How positions are known, or none."""
    window: Size | None = None
    """Symbols that each block reads; the context length by default."""
    context_length: Size = 64
    """Maximum number of symbols that a block can read."""


MODELS: dict[str, Model] = {
    "lstm": Model("RecurrentLM", LSTMOptions, fixed={"cell": "lstm"}, planned=_PLANNED_SIZES),
    "gru": Model("RecurrentLM", GRUOptions, fixed={"cell": "gru"}, planned=_PLANNED_SIZES),
    "rnn": Model("RecurrentLM", RNNOptions, fixed={"cell": "rnn"}, planned=_PLANNED_SIZES),
    "transformer": Model("TransformerLM", TransformerOptions, fixed={"attention": "softmax"}),
    "linear-transformer": Model("TransformerLM", LinearTransformerOptions, fixed={"attention": "gated-linear"}),
    "min-gru": Model("TransformerLM", MinGRUOptions, fixed={"attention": "min-gru"}),
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
