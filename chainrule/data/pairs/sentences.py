"""Sentences as numbers, and pairs of a sentence and its translation, from two files or one."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule.data.batches import Batch, padded
from chainrule.data.delimited import DelimitedFile
from chainrule.data.store import Store, StoreWriter
from chainrule.data.vocabulary import Ids


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation, and the number of their line, from 1."""

    line: int
    source: str
    target: str


def read_pairs(source: str | Path, target: str | Path | None = None) -> Iterator[Pair]:
    """The pairs of two files, line n of the one being the translation of line n of the other, or of one of two columns.

    Sentences lose the white space around them, and may be empty.

    Args:
        source: the source sentences, a line each; or, where there is no `target`, lines of source TAB target.
        target: the target sentences, a line each.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the files have different numbers of lines, a line of two columns has more or fewer, or is no UTF-8.
    """
    if target is None:
        for line, text in read_sentences(source):
            columns = text.split("\t")
            if len(columns) != 2:
                raise ValueError(
                    f"{source} line {line}: expected a source, a tab and a target, got {_columns(len(columns))}: "
                    "two files of lines are given as --source and --target"
                )
            yield Pair(line, columns[0].strip(), columns[1].strip())
        return
    counts = [0, 0]
    for one, other in zip_longest(read_sentences(source), read_sentences(target)):
        counts = [count + (side is not None) for count, side in zip(counts, (one, other), strict=True)]
        if counts[0] == counts[1]:
            yield Pair(one[0], one[1].strip(), other[1].strip())
    if counts[0] != counts[1]:
        raise ValueError(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}: "
            "expected as many, line n of the one being the translation of line n of the other"
        )


def read_sentences(path: str | Path) -> Generator[tuple[int, str], None, None]:
    """The lines of a file with their numbers from 1; see `DelimitedFile`."""
    return DelimitedFile(path).lines()


def _columns(count: int) -> str:
    return "one column" if count == 1 else f"{count} columns"


@dataclass(frozen=True)
class Sentences:
    """N sentences, each with its `<eos>`, one after the other.

    Args:
        symbols: of all of them, int32.
        ends: (N,) int64, where each ends in `symbols`.

    >>> sentences = Sentences.of([np.array([5, 1]), np.array([1])])
    >>> len(sentences), sentences.lengths(np.array([0, 1])).tolist(), sentences.padded(np.array([1, 0]))[0].tolist()
    (2, [2, 1], [[1, 0], [5, 1]])
    """

    symbols: npt.NDArray[np.int32]
    ends: Ids

    @classmethod
    def of(cls, rows: Sequence[Ids]) -> "Sentences":
        """Sentences that are there one by one."""
        ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
        return cls(np.concatenate([np.zeros(0, dtype=np.int32), *rows]).astype(np.int32), ends)

    @classmethod
    def load(cls, store: Store, name: str, symbols: int) -> "Sentences":
        """Sentences that `save` wrote, of numbers below `symbols`; ValueError where they are damaged."""
        numbers = store.array(f"{name}.symbols", "i4", below=symbols)
        return cls(numbers, store.offsets(f"{name}.offsets", len(numbers), shortest=1)[1:])

    def save(self, writer: StoreWriter, name: str) -> None:
        """Write the arrays NAME.symbols and NAME.offsets."""
        writer.array(f"{name}.symbols", self.symbols)
        writer.array(f"{name}.offsets", np.concatenate([[0], self.ends]))

    def __len__(self) -> int:
        return len(self.ends)

    def lengths(self, chosen: Ids) -> Ids:
        """Symbols of each of the chosen sentences, `<eos>` included."""
        return self.ends[chosen] - self._starts(chosen)

    def padded(self, chosen: Ids) -> tuple[Tensor, Tensor]:
        """The chosen sentences, (B, T), 0 past their ends, and their lengths, (B,)."""
        starts, lengths = self._starts(chosen), self.lengths(chosen)
        rows = [self.symbols[start : start + length] for start, length in zip(starts, lengths, strict=True)]
        return padded(rows, int(lengths.max(initial=0))), torch.from_numpy(lengths)

    def _starts(self, chosen: Ids) -> Ids:
        return np.where(chosen > 0, self.ends[chosen - 1], 0)


@dataclass(frozen=True)
class PairedSentences:
    """As many sentences of a source and of a target."""

    source: Sentences
    target: Sentences

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, chosen: Ids) -> Batch:
        """The targets as x, given their sources."""
        x, lengths = self.target.padded(chosen)
        return Batch(x, lengths, context=source_context(self.source, chosen))


def source_context(source: Sentences, chosen: Ids) -> dict[str, Tensor]:
    """Source sentences as the context of `chainrule.models.Seq2Seq`."""
    tokens, lengths = source.padded(chosen)
    return {"tokens": tokens, "lengths": lengths}
