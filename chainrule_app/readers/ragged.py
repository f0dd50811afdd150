"""Rows of unequal length, one after another: sentences, texts, bags of n-grams."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule_app.readers.store import Ids, Store, StoreWriter

Integers = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Ragged:
    """N rows of integers."""

    values: Integers  # (T,) the values of all rows
    offsets: Ids  # (N + 1,) int64, where each row begins in `values`, and T

    @classmethod
    def of(cls, rows: Iterable[npt.ArrayLike]) -> Self:
        """Rows that are there one by one."""
        parts = [np.asarray(row, dtype=np.int32) for row in rows]
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return cls(np.concatenate([np.zeros(0, dtype=np.int32), *parts]), offsets)

    @classmethod
    def load(
        cls, store: Store, values: str, offsets: str, below: int, *, rows: int | None = None, shortest: int = 0
    ) -> Self:
        """Open two arrays that `save` wrote, on the disk; ValueError unless all numbers are in [0, below)."""
        numbers = store.array(values, "i4", below=below)
        return cls(numbers, store.offsets(offsets, len(numbers), rows=rows, shortest=shortest))

    def save(self, writer: StoreWriter, values: str, offsets: str) -> None:
        """Write both arrays under these names."""
        writer.array(values, self.values)
        writer.array(offsets, self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Ids:
        """(N,)."""
        return np.diff(self.offsets)

    def row(self, number: int) -> Integers:
        """Return one row, (length,)."""
        return self.values[self.offsets[number] : self.offsets[number + 1]]

    def padded(self, rows: Integers, limit: int | None = None, fill: int = 0) -> tuple[Tensor, Tensor]:
        """Return the chosen rows, (B, W) int64, padded with `fill` and cut to `limit`, and their lengths (B,)."""
        lengths, places = row_places(self.offsets, rows, limit)
        x = np.full(places.shape, fill, dtype=np.int64)
        x[places >= 0] = self.values[places[places >= 0]]
        return torch.from_numpy(x), torch.from_numpy(lengths)


def row_places(offsets: Ids, rows: Integers, limit: int | None = None) -> tuple[Ids, Ids]:
    """Lengths (B,) of the chosen rows, and where their values are, (B, W), -1 past their ends.

    >>> row_places(np.array([0, 2, 3]), np.array([1, 0]))
    (array([1, 2]), array([[ 2, -1],
           [ 0,  1]]))
    """
    starts = offsets[rows]
    lengths = offsets[np.asarray(rows) + 1] - starts
    if limit is not None:
        lengths = np.minimum(lengths, limit)
    steps = np.arange(lengths.max(initial=0))
    return lengths, np.where(steps < lengths[:, None], starts[:, None] + steps, -1)
