"""The directory of a run of a tagger, whose sentences are kept in `data/`.

data/vocabulary.json                  words, characters, tags and the scheme of the tags
data/train.*.npy, data/valid.*.npy    the sentences as numbers
data/valid.json                       the words of the sentences held out, to show
data/corpus.json                      counts and fingerprints
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from chainrule.runs.config import FINGERPRINT, CheckedOptions, OptimisationOptions, check_entries, within
from chainrule.runs.run import DATA, Run

if TYPE_CHECKING:
    from chainrule.data.tagged import TaggedCorpus, TaggedVocabulary
    from chainrule.models import SequenceTagger


@dataclass(frozen=True)
class TaggerOptions(CheckedOptions):
    """The options of `chainrule.models.SequenceTagger`."""

    head: Literal["crf", "softmax"] = "crf"
    """crf chooses the tags of a sentence together, softmax each by itself."""
    cell: Literal["lstm", "gru", "rnn"] = "lstm"
    """Of the layers that read the sentence."""
    embedding_size: int = within(100, 1, 1 << 16)
    """Features of a word."""
    character_encoder: Literal["lstm", "cnn", "none"] = "lstm"
    """What reads the characters of each word."""
    character_size: int = within(100, 2, 1 << 16)
    """Features of a word from its characters."""
    hidden_size: int = within(200, 1, 1 << 16)
    """Units of each layer in each direction."""
    num_layers: int = within(1, 1, 64)
    """Layers that read the sentence from both ends."""
    dropout: float = within(0.4, 0.0, 0.99)
    """Share of features dropped in training."""


@dataclass(frozen=True)
class TaggedData(CheckedOptions):
    """How a file of tagged sentences is read."""

    column: str | None = None
    """Of the tags: upos, xpos or another name of CoNLL-U, or a number from 1; upos, or the last one, if not given."""
    dev_fraction: float = within(0.1, 1e-4, 0.5)
    """Share of the sentences that is held out where there is no --dev."""
    max_length: int = within(512, 1, 1 << 20)
    """Words of the longest sentence that is taken."""
    repair: bool = False
    """Read impossible sequences of BIO tags, such as I-X after O, as the nearest possible ones."""


@dataclass(frozen=True)
class TaggerTraining(OptimisationOptions):
    """How a tagger is trained."""

    batch_size: int = within(32, 1, 1 << 24)
    """Sentences of a batch."""
    learning_rate: float = within(4e-3, 0.0, 1e3)
    """Peak learning rate of AdamW."""
    clip_norm: float | None = within(5.0, 0.0, 1e9)
    """Largest global norm of the gradient."""
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """Of matrix products; those of a tagger are too small to gain by bfloat16 on a processor."""
    word_dropout: float = within(0.25, 0.0, 1e6)
    """A word seen c times is read as unknown with probability W / (W + c), W being this number."""


class TagRun(Run["SequenceTagger"]):
    """A run of a tagger."""

    KIND = "tag"
    SOURCES: ClassVar[dict[str, str]] = {"source": "DATA", "dev": "--dev"}
    DATA = TaggedData
    MODELS: ClassVar[dict[str, type]] = {"tagger": TaggerOptions}
    TRAINING = TaggerTraining

    @property
    def data(self) -> TaggedData:
        """How the files are read."""
        return cast(TaggedData, self.config.data)

    @property
    def options(self) -> TaggerOptions:
        """Those of the model."""
        return cast(TaggerOptions, self.config.options)

    @classmethod
    def check_config(cls, config: Any) -> None:
        options = config.options
        if options.character_encoder == "lstm" and options.character_size % 2:
            raise ValueError(
                f"--character-size: expected an even number for --character-encoder lstm, got {options.character_size}"
            )

    @classmethod
    def check_facts(cls, facts: dict[str, Any]) -> None:
        if not {"source", "dev", "conllu", "column", "scheme", "repaired", "different_words"} <= facts.keys():
            raise ValueError("facts: expected what preparing tagged sentences leaves, with source, column and scheme")
        check_entries("facts", facts, "source", FINGERPRINT)
        if facts["dev"] is not None:
            check_entries("facts", facts, "dev", FINGERPRINT)
        for counts in ("sentences", "words"):
            check_entries("facts", facts, counts, {"train": int, "valid": int})
        kinds = {"conllu": bool, "column": str, "repaired": int, "different_words": int}
        for name, kind in kinds.items():
            if type(facts[name]) is not kind:
                raise ValueError(f"facts.{name}: expected {kind.__name__}, got {facts[name]!r:.80}")
        if facts["scheme"] not in (None, "bio", "bioes"):
            raise ValueError(f"facts.scheme: expected bio, bioes or null, got {facts['scheme']!r:.80}")

    @cached_property
    def vocabulary(self) -> "TaggedVocabulary":
        """Words, characters and tags, read once."""
        from chainrule.data.tagged import TaggedVocabulary

        return TaggedVocabulary.load(self.path / DATA / "vocabulary.json")

    def corpus(self) -> "TaggedCorpus":
        """The prepared sentences."""
        from chainrule.data.tagged import open_tagged

        return open_tagged(self.path / DATA)

    def build(self) -> "SequenceTagger":
        from chainrule.heads import bio_constraints, bioes_constraints
        from chainrule.models import SequenceTagger

        options, vocabulary = self.options, self.vocabulary
        constraints = None
        if options.head == "crf" and vocabulary.scheme is not None:
            constraints = {"bio": bio_constraints, "bioes": bioes_constraints}[vocabulary.scheme](vocabulary.tags)
        characters = options.character_encoder != "none"
        return SequenceTagger(
            len(vocabulary.tags),
            vocabulary.word_symbols,
            vocabulary.character_symbols if characters else None,
            head=options.head,
            constraints=constraints,
            cell=options.cell,
            embedding_size=options.embedding_size,
            character_encoder=options.character_encoder if characters else "lstm",
            character_size=options.character_size,
            hidden_size=options.hidden_size,
            num_layers=options.num_layers,
            dropout=options.dropout,
        )

    def fewest_weights(self) -> int:
        options, vocabulary = self.options, self.vocabulary
        recurrences = 2 * options.num_layers * options.hidden_size * options.hidden_size
        return vocabulary.word_symbols * options.embedding_size + recurrences
