"""The options of tagging: how sentences are read and trained on, and its models."""

from dataclasses import dataclass
from typing import Annotated, Literal

from chainrule.ranges import Layers, Probability, Range, Size
from chainrule_app.tasks.config import CheckedOptions, Model
from chainrule_app.tasks.options import ClipNorm, LearningRate, OptimisationOptions, SplitOptions


@dataclass(frozen=True)
class TagData(SplitOptions):
    column: str | None = None
    """Column of the tags: upos, xpos or another CoNLL-U name, or a number from 1; upos or the last by default."""
    word_column: Annotated[int, Range(1, 1 << 20)] = 1
    """Column of the words, a number from 1; CoNLL-U uses form."""
    tag_key: str | None = None
    """Key of the tags or spans in JSON or Parquet, such as ner_tags, or who annotated; detected by default."""
    spans: bool = False
    """Tags are spans of characters of texts, in which signs are words too; detected by default."""
    max_length: Annotated[int, Range(1, 1 << 20)] = 512
    """Maximum words of a sentence."""
    repair: bool = False
    """Replace impossible sequences of BIO tags, such as I-X after O, by the nearest possible ones."""


@dataclass(frozen=True)
class TagTraining(OptimisationOptions):
    learning_rate: LearningRate = 4e-3
    clip_norm: ClipNorm | None = 5.0
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """Precision of matrix products; a tagger's are too small to gain from bfloat16 on a CPU."""
    word_dropout: Annotated[float, Range(0.0, 1e6)] = 4.0
    """W: a word seen c times is read as unknown with probability W / (W + c); by default lower for few passes."""
    template_passes: Annotated[float, Range(0.0, 1e3)] | None = None
    """Passes that fit the templates before training, 0 for none; by default 3, fewer in a short run, 0 for spans."""


@dataclass(frozen=True)
class TaggerOptions(CheckedOptions):
    head: Literal["crf", "softmax"] = "crf"
    """crf chooses the tags of a sentence together, softmax each by itself."""
    embedding_size: Size = 100
    """Features of a word."""
    character_encoder: Literal["cnn+affixes", "affixes", "lstm", "cnn", "none"] = "cnn+affixes"
    """Encoder of the characters of each word: affixes reads its first and last four, lstm and cnn read all of them,
    cnn+affixes does both, none reads words only; by default affixes for few passes."""
    character_size: Annotated[int, Range(2, 65536)] = 128
    """Features of a word from its characters; an even number for an LSTM."""
    affix_dropout: Probability = 0.5
    """Share of words whose affixes are dropped in training, for cnn+affixes."""
    hidden_size: Size = 200
    """Units of each layer in each direction; of a Transformer, the width of its blocks."""
    num_layers: Layers = 1
    """Layers that read the sentence from both ends."""
    dropout: Probability = 0.4
    """Share of features zeroed in training: of words, between layers, and before the output."""


@dataclass(frozen=True)
class RecurrentTaggerOptions(TaggerOptions):
    cell: Literal["lstm", "gru", "rnn", "transformer"] = "lstm"
    """Recurrence that reads the sentence; transformer attends to all of it."""


@dataclass(frozen=True)
class TransformerTaggerOptions(TaggerOptions):
    num_layers: Layers = 2
    num_heads: Layers = 4
    """Heads of attention, a divisor of --hidden-size."""


MODELS = {
    "tagger": Model("SequenceTagger", RecurrentTaggerOptions),
    "transformer": Model("SequenceTagger", TransformerTaggerOptions, fixed={"cell": "transformer"}),
}
