"""The symbols of a corpus, in memory or in a file."""

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from chainrule.data.store import DamagedDataError, Store

Ids = npt.NDArray[np.int64]


class Tokens(ABC):
    """A sequence of symbols, and the lines in it where the corpus is read by lines."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of symbols."""

    @abstractmethod
    def rows(self, starts: Ids, stops: Ids) -> list[npt.NDArray[np.integer]]:
        """The symbols from each start up to its stop, in the smallest type that holds them."""

    @property
    @abstractmethod
    def line_count(self) -> int:
        """The number of lines; 0 where the corpus is one stream."""

    @abstractmethod
    def line_bounds(self, lines: Ids) -> tuple[Ids, Ids]:
        """Start and end of each of the given lines, `<eos>` included."""

    def slice(self, start: int, stop: int) -> Ids:
        """The symbols from `start` up to `stop`, int64; `ValueError` where they are not all there."""
        if not 0 <= start <= stop <= len(self):
            raise ValueError(f"slice: expected 0 <= start <= stop <= {len(self)}, got {start} and {stop}")
        return self.rows(np.array([start]), np.array([stop]))[0].astype(np.int64)


class MemoryTokens(Tokens):
    """Symbols in memory: for tests, short texts, and corpora made by other means.

    Args:
        ids: (N,) symbols.
        eos: the symbol that ends a line, where the corpus is to be read by lines.

    Example:
        >>> tokens = MemoryTokens([5, 1, 6, 7, 1], eos=1)
        >>> tokens.line_count
        2
    """

    def __init__(self, ids: npt.ArrayLike, *, eos: int | None = None) -> None:
        self._ids = np.asarray(ids, dtype=np.int64).reshape(-1)
        self._offsets = np.zeros(1, dtype=np.int64)
        if eos is not None and len(self._ids):
            stops = np.flatnonzero(self._ids == eos) + 1
            if not len(stops) or stops[-1] != len(self._ids):
                raise ValueError(f"ids: expected the last line to end in the symbol {eos}, got {self._ids[-1]}")
            self._offsets = np.concatenate([self._offsets, stops])

    def __len__(self) -> int:
        return len(self._ids)

    def rows(self, starts: Ids, stops: Ids) -> list[npt.NDArray[np.integer]]:
        return [self._ids[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]

    @property
    def line_count(self) -> int:
        return len(self._offsets) - 1

    def line_bounds(self, lines: Ids) -> tuple[Ids, Ids]:
        return self._offsets[lines], self._offsets[lines + 1]


class FileTokens(Tokens):
    """Symbols in a file of raw little-endian unsigned integers, memory-mapped for each read alone.

    A map that lives only for one read keeps resident memory small however much of the file has been read.

    Args:
        store: the prepared folder.
        name: the array of symbols.
        dtype: their type.
        count: how many there must be.
        lines: the array of int64 offsets where lines start, and the end of the last; `None` for a stream.
        line_count: how many lines there must be.
        symbols: V, one more than the largest symbol there may be; checked in what is read.

    Raises:
        ValueError: a file has not the size it must have; in reading, a symbol or an offset is out of range.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        dtype: str,
        count: int,
        lines: str | None = None,
        line_count: int = 0,
        *,
        symbols: int,
    ) -> None:
        store.array(name, dtype, (count,))
        if lines is not None:
            store.array(lines, "i8", (line_count + 1,))
        self._path, self._dtype, self._count = store.directory / name, np.dtype(dtype).newbyteorder("<"), count
        self._lines, self._line_count = None if lines is None else store.directory / lines, line_count
        self._symbols = symbols

    def __len__(self) -> int:
        return self._count

    def rows(self, starts: Ids, stops: Ids) -> list[npt.NDArray[np.integer]]:
        if not self._count:
            return [np.zeros(0, dtype=self._dtype) for _ in starts]
        ids = np.asarray(np.memmap(self._path, dtype=self._dtype, mode="r", shape=(self._count,)))
        rows = [ids[start:stop].copy() for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        if self._symbols <= np.iinfo(self._dtype).max:
            largest = max((int(row.max()) for row in rows if len(row)), default=0)
            if largest >= self._symbols:
                raise DamagedDataError(self._path, f"expected symbols from 0 to {self._symbols - 1}, got {largest}")
        return rows

    @property
    def line_count(self) -> int:
        return self._line_count

    def line_bounds(self, lines: Ids) -> tuple[Ids, Ids]:
        if self._lines is None:
            raise ValueError("this corpus is one stream: prepare it with reading='lines' to read it by lines")
        offsets = np.asarray(np.memmap(self._lines, dtype="<i8", mode="r", shape=(self._line_count + 1,)))
        starts, stops = offsets[lines].astype(np.int64), offsets[lines + 1].astype(np.int64)
        if len(starts) and not (starts.min() >= 0 and (starts < stops).all() and stops.max() <= self._count):
            raise DamagedDataError(self._lines, "expected where each line begins, in order, got other numbers")
        return starts, stops


def token_dtype(symbols: int) -> str:
    """The smallest unsigned type that holds the symbols 0..V-1.

    >>> token_dtype(256), token_dtype(257)
    ('uint8', 'uint16')
    """
    return np.min_scalar_type(symbols - 1).name
