"""Prepare labelled texts on disk: labels and symbols from those to train on, then all of them as numbers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.data.arrays import open_array
from chainrule.data.atomic import read_json, write_json
from chainrule.data.labelled.encoded_texts import EncodedTexts, Numbers, load_array
from chainrule.data.labelled.labelled_file import LabelledFile, LabelledText
from chainrule.data.labelled.labels import Labels
from chainrule.data.labelled.text_symbols import TextLevel, TextSymbols
from chainrule.data.source import fingerprint

_MANIFEST = "labelled.json"
_COUNTS = "counts.npy"
_FEWEST = 2  # rows to train on


@dataclass(frozen=True)
class LabelledPart:
    """Texts of one part.

    Attributes:
        texts: N of them, as numbers.
        labels: (N,) numbers of labels.
        lines: (N,) where each stands in its file.
    """

    texts: EncodedTexts
    labels: Numbers
    lines: Numbers

    def save(self, directory: Path, part: str) -> None:
        """Write all arrays, each as PART.NAME.npy."""
        self.texts.save(directory, part)
        np.save(directory / f"{part}.labels.npy", self.labels)
        np.save(directory / f"{part}.lines.npy", self.lines)

    @classmethod
    def load(cls, directory: Path, part: str) -> "LabelledPart":
        """Open what `save` wrote; raises ValueError where it is damaged."""
        texts = EncodedTexts.load(directory, part)
        labels, lines = (load_array(directory / f"{part}.{name}.npy") for name in ("labels", "lines"))
        if not len(texts) == len(labels) == len(lines):
            raise ValueError(f"{directory}: the arrays of {part} do not fit together: prepare the data again")
        return cls(texts, labels, lines)


@dataclass(frozen=True)
class LabelledTexts:
    """A prepared classification.

    Attributes:
        symbols: of the texts.
        labels: of the classification.
        train: to train on.
        valid: held out.
        valid_texts: the same as they stand in the file, to show.
        manifest: what labelled.json holds: fingerprints, columns and counts.
    """

    symbols: TextSymbols
    labels: Labels
    train: LabelledPart
    valid: LabelledPart
    valid_texts: tuple[str, ...]
    manifest: dict[str, Any]


def prepare_labelled(
    path: str | Path,
    directory: str | Path,
    *,
    validation: str | Path | None = None,
    validation_fraction: float = 0.1,
    text_column: str | None = None,
    label_column: str | None = None,
    level: TextLevel = "word",
    lower: bool = True,
    ngrams: bool = True,
    min_count: int = 2,
    limit: int = 1024,
    seed: int = 0,
) -> LabelledTexts:
    """Read labelled texts, hold some out, and write both parts as numbers into a directory.

    Symbols and labels are made of the training part alone.

    Args:
        path: see `LabelledFile`.
        directory: made if it is missing; `labelled.json` is the last file written into it.
        validation: a file to hold out in place of rows of the first; its columns are found as those of the first.
        validation_fraction: share of the rows that is held out otherwise, drawn from the seed.
        text_column, label_column: see `LabelledFile`.
        level, lower, ngrams, min_count: see `TextSymbols`.
        limit: elements after which a text will be cut; here only counted.
        seed: of the rows held out.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: columns are missing, there is one label or one text alone, too few rows, or a label that is held
            out was never trained on.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     rows = Path(folder) / "rows.tsv"
    ...     _ = rows.write_text("\\n".join(f"it is {word} {n}\\t{word}" for n in range(20) for word in ("good", "bad")))
    ...     data = prepare_labelled(rows, Path(folder) / "data")
    ...     data.labels.names, len(data.train.texts), len(data.valid.texts)
    (('bad', 'good'), 36, 4)
    """
    if not 0 < validation_fraction <= 0.5:
        raise ValueError(f"validation_fraction: expected above 0 and at most 0.5, got {validation_fraction}")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _MANIFEST).unlink(missing_ok=True)
    file = LabelledFile(path, text_column=text_column, label_column=label_column)
    train_rows = _checked(str(path), list(file))
    if validation is not None:
        valid_rows = list(
            LabelledFile(validation, text_column=text_column, label_column=label_column, like=file.columns)
        )
    else:
        train_rows, valid_rows = _split(train_rows, validation_fraction, seed)
    if len(train_rows) < _FEWEST or not valid_rows:
        raise ValueError(f"{path}: expected at least {_FEWEST} rows to train on and one to hold out: give more rows")
    labels = Labels.fit(row.label for row in train_rows)
    symbols = TextSymbols.fit((row.text for row in train_rows), level, lower=lower, ngrams=ngrams, min_count=min_count)
    parts = {
        "train": encoded_part(train_rows, symbols, labels, str(path)),
        "valid": encoded_part(valid_rows, symbols, labels, str(validation or path)),
    }
    for part, encoded in parts.items():
        encoded.save(directory, part)
    np.save(directory / _COUNTS, label_counts(parts["train"], len(symbols), len(labels)))
    write_json(directory / "valid.json", {"texts": [row.text for row in valid_rows]})
    write_json(directory / "symbols.json", symbols.to_json())
    write_json(directory / "labels.json", labels.to_json())
    manifest = {
        "format": 1,
        "source": fingerprint(path),
        "validation": None if validation is None else fingerprint(validation),
        "columns": asdict(file.columns),
        **{part: part_facts(encoded, limit) for part, encoded in parts.items()},
        "labels": labels.counts,
        "symbols": len(symbols),
    }
    write_json(directory / _MANIFEST, manifest)
    return open_labelled(directory)


def open_labelled(directory: str | Path) -> LabelledTexts:
    """Open what `prepare_labelled` wrote.

    Raises:
        FileNotFoundError: there is none, or its preparation was cut short.
        ValueError: a file in it was changed or cut.
    """
    directory = Path(directory)
    if not (directory / _MANIFEST).is_file():
        raise FileNotFoundError(f"{directory}: no prepared texts here ({_MANIFEST} is missing): prepare them again")
    manifest = read_json(directory / _MANIFEST)
    symbols, labels = load_symbols(directory), load_labels(directory)
    train, valid = (LabelledPart.load(directory, part) for part in ("train", "valid"))
    for part in (train, valid):
        texts = part.texts
        ranges = [(part.labels, len(labels)), (texts.bags if len(texts.bag_offsets) else texts.tokens, len(symbols))]
        ranges += [(texts.tokens, len(texts.bag_offsets) - 1)] if len(texts.bag_offsets) else []
        if any(len(values) and not 0 <= values.min() <= values.max() < size for values, size in ranges):
            raise ValueError(f"{directory}: holds numbers of no symbol or label: prepare the data again")
    shown = read_json(directory / "valid.json").get("texts")
    if not isinstance(shown, list) or len(shown) != len(valid.labels):
        raise ValueError(f"{directory / 'valid.json'}: expected {len(valid.labels)} texts: prepare the data again")
    return LabelledTexts(symbols, labels, train, valid, tuple(map(str, shown)), manifest)


def load_symbols(directory: Path) -> TextSymbols:
    """The symbols that a directory holds."""
    return TextSymbols.from_json(read_json(directory / "symbols.json"))


def load_labels(directory: Path) -> Labels:
    """The labels that a directory holds."""
    return Labels.from_json(read_json(directory / "labels.json"))


def load_counts(directory: Path, shape: tuple[int, int]) -> npt.NDArray[np.int64]:
    """What `label_counts` was, as it was prepared.

    Raises:
        ValueError: the file is missing, or holds something else.
    """
    path = directory / _COUNTS
    counts = np.array(open_array(path))
    if counts.shape != shape or counts.dtype != np.int64:
        raise ValueError(f"{path}: expected {shape} counts, got {counts.shape}: prepare the data again")
    return counts


def label_counts(part: LabelledPart, symbols: int, labels: int) -> npt.NDArray[np.int64]:
    """(V, C) in how many texts of each label each symbol stands.

    >>> texts = EncodedTexts.of(["aab", "b"], TextSymbols("char", "ab"))
    >>> label_counts(LabelledPart(texts, np.array([1, 0]), np.array([1, 2])), symbols=3, labels=2).tolist()
    [[0, 0], [0, 1], [1, 1]]
    """
    counts = np.zeros((symbols, labels), dtype=np.int64)
    texts = part.texts
    for row, label in enumerate(part.labels.tolist()):
        tokens = np.unique(texts.tokens[texts.offsets[row] : texts.offsets[row + 1]])
        if len(texts.bag_offsets):
            bags = [texts.bags[texts.bag_offsets[token] : texts.bag_offsets[token + 1]] for token in tokens]
            tokens = np.unique(np.concatenate(bags)) if bags else tokens
        counts[tokens, label] += 1
    return counts


def encoded_part(rows: Sequence[LabelledText], symbols: TextSymbols, labels: Labels, path: str) -> LabelledPart:
    """Rows as numbers.

    Raises:
        ValueError: a label was not seen in training; the file and its line are named.
    """
    numbers = []
    for row in rows:
        try:
            numbers.append(labels.encode(row.label))
        except ValueError as error:
            raise ValueError(f"{path} line {row.line}: {error}") from None
    texts = EncodedTexts.of((row.text for row in rows), symbols)
    return LabelledPart(texts, np.array(numbers, dtype=np.int64), np.array([row.line for row in rows], dtype=np.int64))


def part_facts(part: LabelledPart, limit: int) -> dict[str, int]:
    """What a part comes to: rows, elements, empty texts, and those that are cut."""
    lengths = part.texts.lengths
    return {
        "rows": len(lengths),
        "elements": int(lengths.sum()),
        "longest": int(lengths.max(initial=0)),
        "empty": int((lengths == 0).sum()),
        "cut": int((lengths > limit).sum()),
    }


def _checked(path: str, rows: list[LabelledText]) -> list[LabelledText]:
    counts = Counter(row.label for row in rows)
    if len(counts) == 1:
        raise ValueError(
            f"{path}: all {len(rows)} rows have the label {rows[0].label!r:.60}: expected at least two labels; "
            "is the label in another column (--label-column)?"
        )
    if rows and len({row.text for row in rows}) == 1:
        raise ValueError(f"{path}: all {len(rows)} texts are equal: is the text in another column (--text-column)?")
    if len(counts) > max(len(rows) // 2, 2):
        raise ValueError(
            f"{path}: {len(counts)} different labels in {len(rows)} rows: expected few labels, each seen often: "
            "is the label in another column (--label-column)?"
        )
    return rows


def _split(rows: list[LabelledText], fraction: float, seed: int) -> tuple[list[LabelledText], list[LabelledText]]:
    """Rows to train on and rows held out, both in the order of the file; a label seen once stays to train on."""
    count = max(round(len(rows) * fraction), 1)
    seen = Counter(row.label for row in rows)
    held: set[int] = set()
    for place in np.random.default_rng(seed).permutation(len(rows)).tolist():
        if len(held) < count and seen[rows[place].label] > 1:
            held.add(place)
            seen[rows[place].label] -= 1
    return (
        [row for place, row in enumerate(rows) if place not in held],
        [row for place, row in enumerate(rows) if place in held],
    )
