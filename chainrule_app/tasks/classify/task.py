"""Labels: texts with a label each, and a classifier that learns p(label | text).

Everything about texts is in this file and `labelling`; `labels` serves images too.

data/symbols.json                     words and their n-grams, or characters
data/labels.json                      the labels, and how often each was seen
data/train.*, data/valid.*            the texts as numbers
data/counts                           in how many texts of each label each symbol was seen
data/ngrams                           scores of n-grams that a classifier of them begins with
data/valid.json                       the held-out texts, to show
data/labelled.json                    counts and fingerprints
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from chainrule.option_error import OptionError, option
from chainrule.ranges import Layers, Probability, Range, Size
from chainrule_app.heavy import np, torch
from chainrule_app.printing import counted, measured_part, spelled
from chainrule_app.readers import labelled as label_reader
from chainrule_app.tasks._vectors import VECTORS, describe_vectors, fill_embedding, resolve_size
from chainrule_app.tasks.baseline import Baseline
from chainrule_app.tasks.capabilities import CheckedRows
from chainrule_app.tasks.classify.labels import ROWS, TextColumn, label_baseline, label_metric
from chainrule_app.tasks.config import CheckedOptions, Counts, Facts, Fingerprint, Model, Planned, RunConfig
from chainrule_app.tasks.likelihood_record import Basis
from chainrule_app.tasks.options import LearningRate, MinCount, OptimisationOptions, SplitOptions
from chainrule_app.tasks.run_directory import DATA, WEIGHTS
from chainrule_app.tasks.size_schedule import describe_passes, limit_passes
from chainrule_app.tasks.task import Shard, Source, Task

if TYPE_CHECKING:
    from chainrule.models import SequenceClassifier
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import TrainingBatches, ValidationBatches, ValidationMetric
    from chainrule_app.readers.labelled.encoded_texts import TextSymbols
    from chainrule_app.readers.labelled.labelled_file import LabelledFile, LabelledItems
    from chainrule_app.readers.labelled.prepare import LabelledTexts, Labels

_ELEMENT = {"word": "words", "char": "characters", "byte": "bytes"}
_CHECKED_ROWS, _CHECKED_ELEMENTS = 4, 12
_NGRAM_ORDER = {"word": 2, "char": 6, "byte": 6}
_MOST_PASSES, _FEWEST_STEPS = 5, 1000  # of use, over texts read as words
_REPEATED, _VALIDATIONS = 2, 6  # passes that may overfit, and validations of a run that has no time for all its passes
_PLANNED = ("ngram_order",)
_MODEL = "SequenceClassifier"
_LISTED_LABELS = 12


@dataclass(frozen=True)
class LabelledData(TextColumn, SplitOptions):
    label_column: str | None = None
    """Column of the labels (name, or number from 1); detected by default."""
    label_separator: str | None = None
    """Separates the labels of a text that may have several, such as ; a JSON list of labels needs none."""
    level: Literal["word", "char", "byte"] = "word"
    """Unit of one element."""
    lower: bool = True
    """Convert to lower case; not for bytes."""
    ngrams: bool = True
    """Also read the character n-grams (3 to 6) of each word, which inform about unseen words."""
    min_count: MinCount = 2
    """Rarer words or characters are unknown."""
    max_length: Annotated[int, Range(1, 1 << 24)] = 1024
    """Maximum elements of a text; the rest is cut."""


@dataclass(frozen=True)
class _TextClassifierOptions(CheckedOptions):
    embedding_size: Size = 100
    """Features of a word, character or byte."""
    hidden_size: Size = 100
    """Units of each layer in each direction; of a Transformer, the width of its blocks, a multiple of --num-heads."""
    num_layers: Layers = 1
    """Layers, or blocks of a Transformer."""
    pooling: str = "attention+mean+max"
    """Combines all steps into one vector: last (the state after the whole sequence), mean, max, attention, or several
    of them joined by +, which are concatenated."""
    dropout: Probability = 0.5
    """Share of features zeroed in training: of the input, between layers and before the output."""
    symbol_dropout: Probability = 0.3
    """Share of symbols dropped in training."""
    ngram_order: Annotated[int, Range(0, 16)] | None = None
    """Longest n-grams of a linear classifier that is averaged with the network, 0 for none; by default 2 for words, 6
    for characters and bytes."""
    tfidf: bool = True
    """Also average a logistic regression of TF-IDF weights of n-grams and parts of words."""


@dataclass(frozen=True)
class TransformerOptions(_TextClassifierOptions):
    num_layers: Layers = 2
    num_heads: Layers = 2
    """Heads of attention."""


@dataclass(frozen=True)
class ClassifierOptions(_TextClassifierOptions):
    cell: Literal["lstm", "gru", "rnn", "transformer"] = "lstm"
    """Recurrence that reads the sequence; transformer attends to all of it."""
    bidirectional: bool = True
    """Read from both ends."""


@dataclass(frozen=True)
class ClassifierTraining(OptimisationOptions):
    learning_rate: LearningRate = 1e-3
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """Precision of matrix products; a classifier's are too small to gain from bfloat16 on a CPU."""
    naive_bayes: bool = True
    """Initialise from the counts of each symbol and n-gram per label."""


@dataclass(frozen=True)
class LabelledCounts(Counts):
    rows: int
    elements: int
    longest: int
    empty: int
    cut: int


@dataclass(frozen=True)
class LabelledFacts(Facts):
    validation: Fingerprint | None
    columns: label_reader.Columns
    train: LabelledCounts
    valid: LabelledCounts
    labels: dict[str, int]  # number of texts per label
    symbols: int
    vectors: Fingerprint | None
    words_without_vector: int

    def __post_init__(self) -> None:
        if self.columns.label is None:
            raise ValueError("columns.label: expected a column, got none")


class ClassifyTask(Task["SequenceClassifier"]):
    name = "classify"
    help = "Train a classifier on labelled texts; the best likelihood of held-out labels selects the weights."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "Texts and labels: one pair per line, separated by a tab, or .csv.", needed="a file of texts and labels"
        ),
        "validation": Source("Texts to hold out; a random part of DATA by default.", "--validation"),
        "vectors": VECTORS,
    }
    Data = LabelledData
    Facts = LabelledFacts
    Training = ClassifierTraining
    MODELS: ClassVar[dict[str, Model]] = {
        "classifier": Model(_MODEL, ClassifierOptions, planned=_PLANNED),
        "transformer": Model(_MODEL, TransformerOptions, fixed={"cell": "transformer"}, planned=_PLANNED),
    }
    BUDGET = "1m"
    PLAIN: ClassVar[dict[str, Any]] = {"ngram_order": 1, "tfidf": False, "ngrams": False, "naive_bayes": False}
    PREPARED = f"{DATA}/labelled.json"
    NEXT = ("echo 'a text' | chainrule classify {run} -", "chainrule evaluate {run} TEST")
    metric_name = "accuracy"

    @classmethod
    def resolve_reading(cls, request: RunConfig) -> RunConfig:
        """Choose the default n-gram order by level, and the embedding size by the vectors."""
        if request.sources.get("vectors") is not None and request.data.level != "word":
            raise OptionError("vectors", f"requires {option('level', 'word')}")
        request = resolve_size(request)
        if request.options.ngram_order is not None:
            return request
        return replace(request, options=replace(request.options, ngram_order=_NGRAM_ORDER[request.data.level]))

    @cached_property
    def symbols(self) -> "TextSymbols":
        from chainrule_app.readers.labelled.encoded_texts import TextSymbols

        return TextSymbols.load(self.path / DATA / "symbols.json")

    @cached_property
    def labels(self) -> "Labels":
        return label_reader.Labels.load(self.path / DATA / "labels.json")

    def file(self, source: Any, *, labelled: bool = True, **columns: str | None) -> "LabelledFile | LabelledItems":
        """Read other texts with the training file's layout, unless columns are named or the layout differs."""
        several = labelled and self.labels.several
        return label_reader.open_texts(source, labelled=labelled, several=several, like=self.facts.columns, **columns)

    def texts(self) -> "LabelledTexts":
        return label_reader.open_labelled(self.path / DATA)

    def prepare(self, old: "ClassifyTask | None" = None) -> dict[str, Any]:
        sources, options = self.config.sources, asdict(self.data)
        return label_reader.prepare_labelled(
            self.source,
            self.path / DATA,
            limit=options.pop("max_length"),
            validation=sources["validation"],
            ngram_order=self.config.options.ngram_order if self.training.naive_bayes else 0,
            seed=self.training.seed,
            like=None if old is None else (old.symbols, old.labels),
            vectors=sources.get("vectors"),
            **options,
        ).manifest

    def plan(self, given: frozenset[str]) -> Planned:
        """Limit training on words to five passes and at least 1,000 steps: more would overfit."""
        config = self.config
        if config.duration.budget is None or self.data.level != "word":
            return Planned(config)
        batches, _ = self.batches((0, 1))
        most = float(max(_MOST_PASSES, math.ceil(_FEWEST_STEPS / batches.steps_per_epoch)))
        timed = self.timed(batches)
        rows = len(batches.at(0).x)
        limited = limit_passes(config, timed.steps_per_second, batches, most, elements=rows, spare=1)
        settled, training = limited.settled, limited.training
        if limited.duration.budget is not None and settled is not None and training.validate_every is None:
            passes = settled.passes or 0.0
            if passes >= _REPEATED:  # it may overfit: long texts get too few validations by their share of the time
                every = max(1, round(passes * batches.steps_per_epoch / _VALIDATIONS))
                training = replace(training, validate_every=every)
                settled = replace(settled, options=[*settled.options, "validate_every"])
        return Planned(replace(limited, settled=settled, training=training), timed)

    def choice(self) -> str:
        return describe_passes(self.config, "texts", "texts")

    def added_parts(self) -> Sequence[str]:
        order = self.config.options.ngram_order or 1
        parts = {
            f"linear {order}-gram classifier": order > 1,
            "TF-IDF regression": self.config.options.tfidf,
            "subword embeddings": self.data.ngrams and self.data.level == "word",
            "naive Bayes start": self.training.naive_bayes,
        }
        return [part for part, is_added in parts.items() if is_added]

    def build(self) -> "SequenceClassifier":
        options, labels, symbols = self.config.options, len(self.labels), len(self.symbols)
        model = self._network()
        if self.training.naive_bayes and not (self.path / WEIGHTS).is_file():
            if 2 * labels <= options.embedding_size:
                model.start_from_counts(torch.from_numpy(label_reader.load_counts(self.path / DATA, (symbols, labels))))
            if model.ngrams is not None and not self.labels.several:
                table = model.ngrams.table.weight.data
                table.copy_(torch.from_numpy(label_reader.load_ngrams(self.path / DATA, (len(table), labels))))
        if model.embedding is not None:
            fill_embedding(self, model.embedding)
        if model.tfidf is not None and not model.tfidf.weight.is_meta and not (self.path / WEIGHTS).is_file():
            texts, limit = self.texts(), self.data.max_length
            model.tfidf.fit(*(label_reader.contexts(part, ROWS, limit) for part in (texts.train, texts.valid)))
        return model

    def _network(self) -> "SequenceClassifier":
        model: SequenceClassifier = self.built(
            num_classes=len(self.labels),
            vocab_size=len(self.symbols),
            ngram_symbols=self.symbols.elements,
            prior=self.labels.prior,
            several=self.labels.several,
        )
        return model

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        texts, training, limit = self.texts(), self.training, self.data.max_length
        batches = label_reader.labelled_batches(
            texts.train.texts, texts.train.labels, training.batch_size, limit, training.seed, shard
        )
        return batches, lambda: label_reader.labelled_evaluation(texts.valid.texts, texts.valid.labels, ROWS, limit)

    def introduce(self) -> Iterable[str]:
        facts, element = self.facts, _ELEMENT[self.data.level]
        train, valid, columns = facts.train, facts.valid, facts.columns
        held_out = "held out" if facts.validation is None else f"held out ({facts.validation.name})"
        header = "with a header" if columns.header else "without a header"
        text, label = _column(columns.text, columns.text_name), _column(columns.label, columns.label_name)
        yield (
            f"{facts.source.name}, {header}, texts in {text}, labels in {label}: "
            f"{counted(train.rows, 'text')} ({train.elements:,} {element}) to train on, "
            f"{valid.rows:,} {held_out}"
        )
        several = ", of which a text may have several" if self.is_prepared() and self.labels.several else ""
        yield f"{counted(len(self.labels), 'label')}{several}: {labels_with_shares(facts.labels)}"
        yield from describe_vectors(self, len(self.symbols.symbols))
        if self.is_prepared():
            yield from self._unnamed_header()
        for part, what in ((train, "to train on"), (valid, "held out")):
            if part.empty:
                yield f"{counted(part.empty, 'empty text')} {what}: predicted as these shares"
            if part.cut:
                limit = self.data.max_length
                yield f"{counted(part.cut, 'text')} {what} cut after {limit:,} {element} ({spelled('max_length')})"

    def _unnamed_header(self) -> Iterator[str]:
        """Warn if only the first row has its label, like an unrecognised header."""
        texts = self.texts()
        if texts.labels.several:
            return
        name, line = texts.labels.names[int(texts.train.labels[0])], int(texts.train.lines[0])
        first = self.facts.validation is not None or line < min(texts.valid.lines)
        if first and not (self.facts.columns.header or name.isdigit()) and texts.labels.counts[name] == 1:
            yield (
                f"the label {name!r:.60} occurs once, in line {line}: if that is a header, pass "
                + spelled("label_column", name)
            )

    def validation_metric(self) -> "ValidationMetric":
        texts, limit = self.texts(), self.data.max_length
        part = texts.valid
        return label_metric(
            texts.labels.names,
            torch.from_numpy(part.labels.copy()),
            lambda rows: label_reader.labelled_evaluation(part.texts, part.labels, ROWS, limit, rows),
            lambda row: (f"line {part.lines[row]}", texts.valid_texts[row]),
            selects=False,
        )

    def best(self, evaluation: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        counts, nats = self.facts.labels, evaluation.nats_per_element
        if self.labels.several:
            part = measured_part(rows, self.facts.valid.rows)
            line = f"all labels right for {value:.2%} of {part}held-out texts ({nats:.4f} nats per text and label)"
            return {"accuracy": value, "nats_per_label": nats}, line
        most_frequent = max(counts.values()) / sum(counts.values())
        part = measured_part(rows, self.facts.valid.rows)
        return (
            {"accuracy": value, "nats_per_text": nats},
            f"accuracy {value:.2%} on {part}held-out texts; always predicting the most frequent label gives about "
            f"{most_frequent:.0%} ({nats:.4f} nats per text)",
        )

    def baseline(self, model: Any, seconds: float) -> Baseline | None:
        texts, limit = self.texts(), self.data.max_length
        return label_baseline(model, label_reader.contexts(texts.valid, ROWS, limit), seconds)

    @property
    def basis(self) -> Basis:
        return Basis("label", f"{counted(len(self.labels), 'label')}", given="the text")

    def checked_rows(self) -> CheckedRows:
        part = self.texts().valid
        rows = np.argsort(-np.minimum(part.texts.lengths, _CHECKED_ELEMENTS), kind="stable")[:_CHECKED_ROWS]
        context = part.texts.context(rows, _CHECKED_ELEMENTS)
        note = f"{len(rows)} held-out texts, the first {_CHECKED_ELEMENTS} {_ELEMENT[self.data.level]} of each"
        return CheckedRows(self.model(), torch.from_numpy(np.array(part.labels[rows], np.int64)), context, note=note)


def _column(index: int | None, name: str | None) -> str:
    assert index is not None
    return f"column {index + 1}" if name is None else f"column {index + 1} ({name})"


def labels_with_shares(counts: dict[str, int]) -> str:
    """Format labels with their shares, the first few of many.

    >>> labels_with_shares({"bad": 1, "good": 3})
    'bad 25%, good 75%'
    """
    total = sum(counts.values())
    first = [f"{name} {count / total:.0%}" for name, count in list(counts.items())[:_LISTED_LABELS]]
    return ", ".join(first) + (f", and {len(counts) - _LISTED_LABELS} more" if len(counts) > _LISTED_LABELS else "")
