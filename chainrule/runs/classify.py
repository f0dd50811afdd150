"""The directory of a run of a classifier, whose texts are kept in `data/`.

data/symbols.json                     words and their n-grams, or characters
data/labels.json                      the labels, and how often each was seen
data/train.*.npy, data/valid.*.npy    the texts as numbers
data/counts.npy                       in how many texts of each label each symbol was seen
data/valid.json                       the texts held out, to show
data/labelled.json                    counts and fingerprints
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from chainrule.runs.config import (
    FINGERPRINT,
    CheckedOptions,
    OptimisationOptions,
    check_entries,
    check_keys,
    read_object,
    within,
)
from chainrule.runs.run import DATA, WEIGHTS, Run

if TYPE_CHECKING:
    from chainrule.data.labelled import LabelledFile, LabelledTexts, Labels, TextSymbols
    from chainrule.models import SequenceClassifier

_COUNTS = {"rows": int, "elements": int, "longest": int, "empty": int, "cut": int}


@dataclass(frozen=True)
class ClassifierOptions(CheckedOptions):
    """The options of `chainrule.models.SequenceClassifier`."""

    cell: Literal["lstm", "gru", "rnn"] = "lstm"
    """Of the layers that read the text."""
    embedding_size: int = within(100, 1, 1 << 16)
    """Features of a word, character or byte."""
    hidden_size: int = within(100, 1, 1 << 16)
    """Units of each layer in each direction."""
    num_layers: int = within(1, 1, 64)
    """Layers, one above the other."""
    bidirectional: bool = True
    """Read from both ends."""
    pooling: str = "attention+mean+max"
    """From all steps to one vector: last, mean, max or attention, or several joined by +."""
    dropout: float = within(0.5, 0.0, 0.99)
    """Share of features dropped in training."""
    symbol_dropout: float = within(0.3, 0.0, 0.99)
    """Share of words and n-grams left out in training."""
    naive_bayes: bool = True
    """Begin with how often each symbol was seen with each label."""


@dataclass(frozen=True)
class LabelledData(CheckedOptions):
    """How a file of labelled texts is read."""

    text_column: str | None = None
    """Name, or number from 1, of the column of texts; found by itself where it can be."""
    label_column: str | None = None
    """The same of the labels."""
    level: Literal["word", "char", "byte"] = "word"
    """What one element is."""
    lower: bool = True
    """Read upper case as lower case; not of bytes."""
    ngrams: bool = True
    """Read a word also by its runs of 3 to 6 characters, so that one never seen says something too."""
    min_count: int = within(2, 1, 1 << 40)
    """Rarer words or characters are unknown."""
    dev_fraction: float = within(0.1, 1e-4, 0.5)
    """Share of the rows that is held out where there is no --dev."""
    max_length: int = within(1024, 1, 1 << 24)
    """Elements after which a text is cut."""


@dataclass(frozen=True)
class ClassifierTraining(OptimisationOptions):
    """How a classifier is trained."""

    batch_size: int = within(32, 1, 1 << 24)
    """Texts of a batch."""
    learning_rate: float = within(1e-3, 0.0, 1e3)
    """Peak learning rate of AdamW."""
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """Of matrix products; those of a classifier are too small to gain by bfloat16 on a processor."""


class ClassifyRun(Run["SequenceClassifier"]):
    """A run of a classifier."""

    KIND = "classify"
    SOURCES: ClassVar[dict[str, str]] = {"source": "DATA", "dev": "--dev"}
    DATA = LabelledData
    MODELS: ClassVar[dict[str, type]] = {"classifier": ClassifierOptions}
    TRAINING = ClassifierTraining

    @property
    def data(self) -> LabelledData:
        """How the files are read."""
        return cast(LabelledData, self.config.data)

    @property
    def options(self) -> ClassifierOptions:
        """Those of the model."""
        return cast(ClassifierOptions, self.config.options)

    @classmethod
    def check_facts(cls, facts: dict[str, Any]) -> None:
        if not facts:
            return
        known = {"format", "source", "dev", "columns", "train", "valid", "labels", "symbols"}
        check_keys("facts", facts, known)
        check_entries("facts", facts, "source", FINGERPRINT)
        check_keys(
            "facts.columns", read_object(facts, "columns"), {"text", "label", "header", "text_name", "label_name"}
        )
        for part in ("train", "valid"):
            check_entries("facts", facts, part, _COUNTS)

    @cached_property
    def symbols(self) -> "TextSymbols":
        """What texts are made of, read once."""
        from chainrule.data.labelled import load_symbols

        return load_symbols(self.path / DATA)

    @cached_property
    def labels(self) -> "Labels":
        """The labels, read once."""
        from chainrule.data.labelled import load_labels

        return load_labels(self.path / DATA)

    def file(
        self,
        path: str | Path,
        *,
        text_column: str | None = None,
        label_column: str | None = None,
        labelled: bool = True,
    ) -> "LabelledFile":
        """Another file, read as that of training was where nothing else is said and it has as many columns.

        Raises:
            FileNotFoundError, ValueError: as `chainrule.data.labelled.LabelledFile`.
        """
        from chainrule.data.labelled import Columns, LabelledFile

        like = Columns(**self.config.facts["columns"])
        return LabelledFile(path, text_column=text_column, label_column=label_column, labelled=labelled, like=like)

    def texts(self) -> "LabelledTexts":
        """The prepared texts."""
        from chainrule.data.labelled import open_labelled

        return open_labelled(self.path / DATA)

    def build(self) -> "SequenceClassifier":
        import torch

        from chainrule.data.labelled import load_counts
        from chainrule.models import SequenceClassifier

        options, labels = self.options, len(self.labels)
        model = SequenceClassifier(
            labels,
            len(self.symbols),
            cell=options.cell,
            embedding_size=options.embedding_size,
            hidden_size=options.hidden_size,
            num_layers=options.num_layers,
            bidirectional=options.bidirectional,
            pooling=options.pooling,
            dropout=options.dropout,
            symbol_dropout=options.symbol_dropout,
            prior=self.labels.prior,
        )
        if options.naive_bayes and 2 * labels <= options.embedding_size and not (self.path / WEIGHTS).is_file():
            model.start_from_counts(torch.from_numpy(load_counts(self.path / DATA, (len(self.symbols), labels))))
        return model

    def fewest_weights(self) -> int:
        options = self.options
        return len(self.symbols) * options.embedding_size + options.num_layers * options.hidden_size**2
