"""Sentences as numbers, and pairs of a sentence and its translation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule.data.batches import Batch, padded
from chainrule.data.store import Store, StoreWriter
from chainrule.data.vocabulary import Ids


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
