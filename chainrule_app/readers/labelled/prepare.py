"""Prepare labelled texts on disk: labels and symbols from the training part, then all texts as numbers."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import isnan, nan
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule.data import Batch, Batches, Shuffled
from chainrule.files import Record, read_record
from chainrule.layers import NgramScores
from chainrule.option_error import UserError, option
from chainrule_app.readers.held_out import split_rows
from chainrule_app.readers.labelled.encoded_texts import EncodedTexts, Numbers, TextLevel, TextSymbols
from chainrule_app.readers.labelled.labelled_file import LabelledText, TextsSource, open_texts
from chainrule_app.readers.origin import Origin, origin_of
from chainrule_app.readers.records import Nested
from chainrule_app.readers.row_order import in_order
from chainrule_app.readers.sources import fingerprint
from chainrule_app.readers.store import Store, StoreWriter
from chainrule_app.readers.word_vectors import save_vectors


class Labels(Record):
    """Names of labels and their numbers, 0..C-1, in the order of the names (numbers by their value).

    With `several` a text may have any number of them: in a cell they are separated by `separator`, or are a JSON list.
    """

    def __init__(
        self, counts: Mapping[str, int], *, texts: int = 0, several: bool = False, separator: str | None = None
    ):
        if len(counts) < 2 or min(counts.values()) < 1:
            raise ValueError(
                f"counts: expected two labels or more, each seen, got {len(counts)} of {dict(counts)!r:.80}"
            )
        self.counts = {name: counts[name] for name in sorted(counts, key=_order)}
        self.texts, self.several, self.separator = texts or sum(counts.values()), several, separator
        self.names = tuple(self.counts)
        self._numbers = {name: number for number, name in enumerate(self.names)}

    @classmethod
    def fit(cls, labels: Iterable[str], separator: str | None = None) -> Self:
        """Labels of a training set; several of a text where there is a separator, or a list."""
        cells = list(labels)
        several = separator is not None or any(isinstance(cell, Nested) for cell in cells)
        counts = Counter(name for cell in cells for name in labels_in(cell, separator, several=several))
        return cls(counts, texts=len(cells), several=several, separator=separator)

    def __len__(self) -> int:
        return len(self.names)

    def encode(self, cell: str) -> int | list[int]:
        """Return the number of a label; of several, 0 or 1 for each name."""
        if not self.several:
            return self._number(cell)
        numbers = {self._number(name) for name in labels_in(cell, self.separator, several=True)}
        return [int(number in numbers) for number in range(len(self))]

    def joined(self, names: Iterable[str]) -> str:
        """Return the labels of a text in a cell."""
        return (self.separator or ", ").join(names)

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            raise ValueError(f"the label {name!r:.60} was not seen in training (labels: {self.listed()})")
        return self._numbers[name]

    def listed(self, most: int = 8) -> str:
        """Return the names in a line, the first few of many."""
        listing = ", ".join(name if len(name) <= 24 else name[:23] + "…" for name in self.names[:most])
        return listing if len(self) <= most else f"{listing}, ... ({len(self)})"

    @property
    def prior(self) -> tuple[float, ...]:
        """The share of each in training; of several, with a text more that has each and one that has none."""
        if self.several:
            return tuple((count + 1) / (self.texts + 2) for count in self.counts.values())
        total = sum(self.counts.values())
        return tuple(count / total for count in self.counts.values())

    def to_json(self) -> dict[str, Any]:
        about = {"texts": self.texts, "several": self.several, "separator": self.separator}
        return {"format": 1, "counts": self.counts} | about

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Build what `to_json` described; raise ValueError for anything else."""
        types = {"counts": dict[str, int], "texts": int, "several": bool, "separator": str | None}
        return read_record(cls, types, content)


def labels_in(cell: str, separator: str | None, *, several: bool) -> tuple[str, ...]:
    """Return the labels of a cell, each once.

    >>> labels_in("war, love, war", ",", several=True), labels_in('["war", 2]', None, several=True)
    (('war', 'love'), ('war', '2'))
    """
    if not several:
        return (cell,)
    parts: Iterable[str] = (cell,)
    if cell[:1] == "[":
        with suppress(ValueError):
            parts = map(str, json.loads(cell))
    elif separator is not None:
        parts = cell.split(separator)
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _order(name: str) -> tuple[bool, float, str]:
    try:
        value = float(name)
    except ValueError:
        value = nan
    return (True, 0.0, name) if isnan(value) else (False, value, name)


_BATCHES_IN_POOL = 32


def labelled_batches(
    texts: EncodedTexts,
    labels: Numbers,  # (N,) their numbers
    batch_size: int,
    limit: int | None = None,  # longer texts are cut to this many elements
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
) -> Batches:
    """Labels given texts, in the order of `Shuffled`, sorted by length in pools of 32 batches."""
    sort = Shuffled.by_length(texts.lengths)
    order = Shuffled(
        len(texts), batch_size, seed, shard, name="texts", sort=sort, pool=_BATCHES_IN_POOL, within_pool=True
    )
    return Batches(order, lambda _, rows: _batch(texts, labels, order.own(rows), limit))


def labelled_evaluation(
    texts: EncodedTexts, labels: Numbers, batch_size: int, limit: int | None = None, rows: Numbers | None = None
) -> Iterator[Batch]:
    """Every row once, or those with the numbers in `rows`, in order."""
    lengths = texts.lengths if limit is None else np.minimum(texts.lengths, limit)
    return (_batch(texts, labels, chosen, limit) for chosen in in_order(len(texts), batch_size, rows, lengths))


def _batch(texts: EncodedTexts, labels: Numbers, rows: Numbers, limit: int | None) -> Batch:
    numbers = torch.from_numpy(np.asarray(labels[rows], dtype=np.int64))
    return Batch(numbers, context=texts.context(rows, limit), whole=True)


_MANIFEST = "labelled.json"
_COUNTS = "counts"
_NGRAMS = "ngrams"
_TOGETHER = 128  # texts whose n-grams are counted together
_FEWEST = 2  # rows to train on


@dataclass(frozen=True)
class LabelledPart:
    """Texts of one part."""

    texts: EncodedTexts  # N of them, as numbers
    labels: Numbers  # (N,) numbers of labels; of several (N, C) 0 or 1
    lines: Numbers  # (N,) line of each in its file

    def save(self, writer: StoreWriter, part: str) -> None:
        """Write all arrays, each as PART.NAME."""
        self.texts.save(writer, part)
        writer.array(f"{part}.labels", np.asarray(self.labels, np.int64))
        writer.array(f"{part}.lines", np.asarray(self.lines, np.int64))

    @classmethod
    def load(cls, store: Store, part: str, symbols: TextSymbols, labels: Labels) -> "LabelledPart":
        """Open what `save` wrote; raises ValueError where it is damaged."""
        texts = EncodedTexts.load(store, part, symbols)
        shape, kinds = ((len(texts), len(labels)), 2) if labels.several else ((len(texts),), len(labels))
        numbers = store.array(f"{part}.labels", "i8", shape, kinds)
        return cls(texts, numbers, store.array(f"{part}.lines", "i8", (len(texts),)))


@dataclass(frozen=True)
class LabelledTexts:
    """A prepared classification."""

    symbols: TextSymbols  # of the texts
    labels: Labels  # of the classification
    train: LabelledPart  # to train on
    valid: LabelledPart  # held out
    valid_texts: tuple[str, ...]  # held-out texts as written in the file, to show
    manifest: dict[str, Any]  # content of labelled.json: fingerprints, columns and counts


def prepare_labelled(
    path: TextsSource,
    directory: str | Path,  # created if it is missing; `labelled.json` is the last file written into it
    *,
    validation: TextsSource | None = None,  # a validation file, with columns found as in the first file
    validation_fraction: float = 0.1,  # share of the rows that is held out otherwise, drawn from the seed
    text_column: str | None = None,
    label_column: str | None = None,
    label_separator: str | None = None,
    level: TextLevel = "word",
    lower: bool = True,
    ngrams: bool = True,
    min_count: int = 2,
    limit: int = 1024,  # elements after which a text will be cut
    ngram_order: int = 0,  # symbols of the longest n-grams that naive Bayes of the training part counts; 0 for none
    seed: int = 0,
    like: tuple[TextSymbols, Labels] | None = None,  # other texts whose symbols and labels are reused
    vectors: str | Path | None = None,  # of words, to begin with; see `read_vectors`
) -> LabelledTexts:
    """Read labelled texts, hold some out and write both parts as numbers; training texts define the symbols."""
    several = label_separator is not None
    file = open_texts(path, text_column=text_column, label_column=label_column, several=several)
    train_rows = _checked(str(path), list(file), label_separator)
    if validation is not None:
        columns = {"text_column": text_column, "label_column": label_column}
        valid_rows = list(open_texts(validation, **columns, several=several, like=file.columns))
    else:
        labels_of_rows = [{row.label} for row in train_rows]
        train_rows, valid_rows = split_rows(train_rows, validation_fraction, seed, labels_of_rows)
    if len(train_rows) < _FEWEST or not valid_rows:
        raise ValueError(f"{path}: too few rows: expected at least {_FEWEST} to train on and one to hold out")
    if like is not None:
        symbols, labels = like
    else:
        labels = Labels.fit((row.label for row in train_rows), label_separator)
        texts = (row.text for row in train_rows)
        symbols = TextSymbols.fit(texts, level, lower=lower, ngrams=ngrams, min_count=min_count)
    parts = {
        "train": encoded_part(train_rows, symbols, labels, origin_of(path)),
        "valid": encoded_part(valid_rows, symbols, labels, origin_of(validation or path)),
    }
    manifest = {
        "source": fingerprint(path),
        "validation": None if validation is None else fingerprint(validation),
        "columns": asdict(file.columns),
        **{part: part_facts(encoded, limit) for part, encoded in parts.items()},
        "labels": labels.counts,
        "symbols": len(symbols),
    }
    with StoreWriter(directory, _MANIFEST) as writer:
        manifest |= save_vectors(vectors, symbols.symbols, writer)
        for part, encoded in parts.items():
            encoded.save(writer, part)
        writer.array(_COUNTS, label_counts(parts["train"], len(symbols), len(labels)))
        if ngram_order and not labels.several:
            writer.array(_NGRAMS, ngram_weights(parts["train"], symbols.elements, labels.prior, ngram_order, limit))
        writer.json("valid.json", {"texts": [row.text for row in valid_rows]})
        symbols.save(writer.path("symbols.json"))
        labels.save(writer.path("labels.json"))
        writer.finish(manifest)
    return open_labelled(directory)


def open_labelled(directory: str | Path) -> LabelledTexts:
    """Open a folder written by `prepare_labelled`; raises the errors of `Store`."""
    store = Store(directory, _MANIFEST, "texts")
    symbols = TextSymbols.load(store.directory / "symbols.json")
    labels = Labels.load(store.directory / "labels.json")
    train, valid = (LabelledPart.load(store, part, symbols, labels) for part in ("train", "valid"))
    with store.checked("valid.json"):
        texts = tuple(map(str, store.json("valid.json")["texts"]))
        if len(texts) != len(valid.labels):
            raise ValueError(f"expected {len(valid.labels)} texts, got {len(texts)}")
    return LabelledTexts(symbols, labels, train, valid, texts, store.manifest)


def load_counts(directory: Path, shape: tuple[int, int]) -> npt.NDArray[np.int64]:
    """Read the result of `label_counts` from a prepared folder."""
    return np.array(Store(directory, _MANIFEST, "texts").array(_COUNTS, "i8", shape))


def load_ngrams(directory: Path, shape: tuple[int, int]) -> npt.NDArray[np.float32]:
    """Read the result of `ngram_weights` from a prepared folder."""
    return np.array(Store(directory, _MANIFEST, "texts").array(_NGRAMS, "f4", shape))


def ngram_weights(
    part: LabelledPart, symbols: int, prior: Sequence[float], order: int, limit: int
) -> npt.NDArray[np.float32]:
    """Fit naive Bayes of n-grams: the rows of a `NgramScores`, (rows, C)."""
    scores = NgramScores(symbols, len(prior), order)
    scores.fit(contexts(replace(part, texts=part.texts.without_parts()), _TOGETHER, limit), torch.tensor(prior))
    return scores.table.weight.detach().numpy()


def contexts(part: LabelledPart, batch_size: int, limit: int) -> Callable[[], Iterator[tuple[Tensor, Tensor, Tensor]]]:
    """Return a function that reads the texts of a part in turn: symbols or bags, lengths and labels."""

    def batches() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for batch in labelled_evaluation(part.texts, part.labels, batch_size, limit):
            context = cast("dict[str, Tensor]", batch.context)
            yield context["inputs"], context["lengths"], batch.x

    return batches


def label_counts(part: LabelledPart, symbols: int, labels: int) -> npt.NDArray[np.int64]:
    """Count the texts of each label in which each symbol occurs, (V, C).

    >>> texts = EncodedTexts.of(["aab", "b"], TextSymbols("char", "ab"))
    >>> label_counts(LabelledPart(texts, np.array([1, 0]), np.array([1, 2])), symbols=3, labels=2).tolist()
    [[0, 0], [0, 1], [1, 1]]
    """
    counts = np.zeros((symbols, labels), dtype=np.int64)
    tokens, bags = part.texts.tokens, part.texts.bags
    for row, label in enumerate(part.labels.tolist()):
        present = np.unique(tokens.row(row))
        if bags is not None and len(present):
            present = np.unique(np.concatenate([bags.row(token) for token in present]))
        if isinstance(label, list):
            counts[present] += np.array(label)
        else:
            counts[present, label] += 1
    return counts


def encoded_part(rows: Sequence[LabelledText], symbols: TextSymbols, labels: Labels, where: Origin) -> LabelledPart:
    """Rows as numbers."""
    numbers: list[int | list[int]] = []
    for row in rows:
        try:
            numbers.append(labels.encode(row.label))
        except ValueError as error:
            raise ValueError(f"{where.at(row.line)}: {error}") from None
    texts = EncodedTexts.of((row.text for row in rows), symbols)
    return LabelledPart(texts, np.array(numbers, dtype=np.int64), np.array([row.line for row in rows], dtype=np.int64))


def part_facts(part: LabelledPart, limit: int) -> dict[str, int]:
    """Counts of a part: rows, elements, empty texts, and texts that are cut."""
    lengths = part.texts.lengths
    return {
        "rows": len(lengths),
        "elements": int(lengths.sum()),
        "longest": int(lengths.max(initial=0)),
        "empty": int((lengths == 0).sum()),
        "cut": int((lengths > limit).sum()),
    }


def _checked(path: str, rows: list[LabelledText], separator: str | None) -> list[LabelledText]:
    several = separator is not None or any(isinstance(row.label, Nested) for row in rows)
    counts = Counter(name for row in rows for name in labels_in(row.label, separator, several=several))
    if len(counts) == 1:
        raise UserError(
            f"{path}: all {len(rows)} rows have the label {rows[0].label!r:.60}: expected at least two labels; "
            f"is the label in another column ({option('label_column')})?"
        )
    if rows and len({row.text for row in rows}) == 1:
        raise UserError(
            f"{path}: all {len(rows)} texts are equal", f"is the text in another column ({option('text_column')})?"
        )
    if len(counts) > max(len(rows) // 2, 2):
        raise UserError(
            f"{path}: {len(counts)} different labels in {len(rows)} rows: expected few labels, each seen often",
            f"is the label in another column ({option('label_column')})?",
        )
    return rows
