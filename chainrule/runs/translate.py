"""The directory of a run of a translator, whose pairs of sentences are kept in `data/`.

data/source.json, target.json     the vocabularies
data/train.*, data/valid.*        the pairs as numbers; of those held out the text, too
data/pairs.json                   counts and fingerprints
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from chainrule.runs.config import FINGERPRINT, CheckedOptions, OptimisationOptions, check_entries, within
from chainrule.runs.run import DATA, Run

if TYPE_CHECKING:
    from chainrule.data.pairs import Pairs
    from chainrule.models import Seq2Seq


@dataclass(frozen=True)
class TranslatorOptions(CheckedOptions):
    """The options of `chainrule.models.Seq2Seq`."""

    cell: Literal["lstm", "gru", "rnn"] = "gru"
    """Of encoder and decoder."""
    embedding_size: int = within(256, 1, 1 << 16)
    """Features of a word."""
    hidden_size: int = within(256, 1, 1 << 16)
    """Units of each layer of the decoder, and of each layer and direction of the encoder."""
    num_layers: int = within(1, 1, 64)
    """Recurrent layers of the encoder, and of the decoder."""
    dropout: float = within(0.4, 0.0, 0.99)
    """Share of features dropped in training."""
    attention: Literal["multiplicative", "additive", "none"] = "multiplicative"
    """How the decoder looks at the source; none gives it a fixed vector."""
    input_feeding: bool = True
    """Show the decoder what the last word was predicted from."""
    tie_weights: bool = True
    """Use the target embeddings as output weights."""
    label_smoothing: float = within(0.1, 0.0, 0.99)
    """Share of the target spread over all words, in training."""


@dataclass(frozen=True)
class PairsData(CheckedOptions):
    """How pairs of sentences are read."""

    level: Literal["word", "bpe"] = "word"
    """word: what stands between blanks; bpe: pieces of words, for text as people write it."""
    min_count: int = within(2, 1, 1 << 40)
    """Rarer words are <unk>."""
    vocabulary_size: int | None = within(None, 4, 1 << 24)
    """Most symbols of each vocabulary; no limit to words, 4096 pieces, if not given."""
    max_length: int = within(256, 1, 1 << 20)
    """Most symbols of a sentence."""
    dev_fraction: float = within(0.1, 1e-4, 0.5)
    """Share of the pairs that is held out where there is no --dev-source."""
    tokenize: Literal["auto", "13a", "intl", "char", "none"] = "auto"
    """How BLEU cuts words: 13a, or none where words and punctuation stand apart already; auto: none at level word."""


@dataclass(frozen=True)
class TranslatorTraining(OptimisationOptions):
    """How a translator is trained."""

    batch_size: int = within(64, 1, 1 << 24)
    """Pairs of a batch."""
    learning_rate: float = within(2e-3, 0.0, 1e3)
    """Peak learning rate of AdamW."""
    scheduled_sampling: Literal["none", "linear", "inverse-sigmoid"] = "none"
    """How the share of words that are the model's own, not the reference's, rises to one half in training."""
    sampling_steps: int = within(10_000, 1, 1 << 53)
    """In how many steps it rises."""


class TranslateRun(Run["Seq2Seq"]):
    """A run of a translator."""

    KIND = "translate"
    SOURCES: ClassVar[dict[str, str]] = {
        "source": "DATA",
        "target": "--target",
        "dev_source": "--dev-source",
        "dev_target": "--dev-target",
    }
    DATA = PairsData
    MODELS: ClassVar[dict[str, type]] = {"seq2seq": TranslatorOptions}
    TRAINING = TranslatorTraining

    @property
    def data(self) -> PairsData:
        """How the files are read."""
        return cast(PairsData, self.config.data)

    @property
    def options(self) -> TranslatorOptions:
        """Those of the model."""
        return cast(TranslatorOptions, self.config.options)

    @classmethod
    def check_facts(cls, facts: dict[str, Any]) -> None:
        if not facts:
            return
        if not {*cls.SOURCES, "counts", "symbols"} <= facts.keys():
            raise ValueError("facts: expected what preparing pairs leaves, with source, counts and symbols")
        check_entries("facts", facts, "source", FINGERPRINT)
        check_entries("facts", facts, "symbols", {"source": int, "target": int})

    @property
    def tokenize(self) -> str:
        """How sacrebleu is to cut words."""
        if self.data.tokenize != "auto":
            return self.data.tokenize
        return "none" if self.data.level == "word" else "13a"

    @property
    def longest(self) -> int:
        """Elements of the longest translation that is looked for: some more than training ever saw."""
        return int(self.config.facts["counts"]["train"]["target_longest"]) + 10

    @cached_property
    def pairs(self) -> "Pairs":
        """The prepared pairs and their vocabularies."""
        from chainrule.data.pairs import open_pairs

        return open_pairs(self.path / DATA)

    def build(self) -> "Seq2Seq":
        from chainrule.models import Seq2Seq

        options, symbols = self.options, self.config.facts["symbols"]
        return Seq2Seq(
            symbols["source"],
            symbols["target"],
            options.cell,
            options.embedding_size,
            options.hidden_size,
            options.num_layers,
            options.dropout,
            attention=None if options.attention == "none" else options.attention,
            input_feeding=options.input_feeding,
            tie_weights=options.tie_weights,
            label_smoothing=options.label_smoothing,
        )

    def fewest_weights(self) -> int:
        options, symbols = self.options, self.config.facts["symbols"]
        recurrences = 3 * options.num_layers * options.hidden_size * options.hidden_size
        return (symbols["source"] + symbols["target"]) * options.embedding_size + recurrences
