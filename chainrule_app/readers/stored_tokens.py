"""Symbols of a prepared store, read from the disk when they are asked for."""

import numpy as np
import numpy.typing as npt

from chainrule.data import Tokens
from chainrule_app.readers.store import DamagedDataError, Store

Ids = npt.NDArray[np.int64]


def token_dtype(symbols: int) -> str:
    """Return the smallest unsigned type that holds the symbols 0..V-1, such as uint16."""
    return np.min_scalar_type(symbols - 1).name


class StoredTokens(Tokens):
    """Symbols in a file of raw little-endian unsigned integers, memory-mapped for each read alone.

    `name` is the array of symbols below `symbols`, `lines` the offsets (line_count + 1,) where lines start, if any.
    A map that lives only for one read keeps resident memory small however much of the file has been read.
    """

    def __init__(
        self, store: Store, name: str, count: int, symbols: int, lines: str | None = None, line_count: int = 0
    ) -> None:
        self._dtype = np.dtype(token_dtype(symbols)).newbyteorder("<")
        store.array(name, self._dtype, (count,))
        if lines is not None:
            store.array(lines, "i8", (line_count + 1,))
        self._path, self._count, self._symbols = store.directory / name, count, symbols
        self._lines, self.line_count = None if lines is None else store.directory / lines, line_count

    def __len__(self) -> int:
        return self._count

    def slice(self, start: int, stop: int) -> Ids:
        """Return the symbols from `start` up to `stop`, int64; `ValueError` where they are not all there."""
        if not 0 <= start <= stop <= len(self):
            raise ValueError(f"slice: expected 0 <= start <= stop <= {len(self)}, got {start} and {stop}")
        return self.rows(np.array([start]), np.array([stop]))[0].astype(np.int64)

    def rows(self, starts: Ids, stops: Ids) -> list[npt.NDArray[np.integer]]:
        """Return the symbols from each start up to its stop, in the smallest type that holds them."""
        if not self._count:
            return [np.zeros(0, dtype=self._dtype) for _ in starts]
        ids = np.asarray(np.memmap(self._path, dtype=self._dtype, mode="r", shape=(self._count,)))
        rows = [ids[start:stop].copy() for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        if self._symbols <= np.iinfo(self._dtype).max:
            largest = max((int(row.max()) for row in rows if len(row)), default=0)
            if largest >= self._symbols:
                raise DamagedDataError(self._path, f"expected symbols from 0 to {self._symbols - 1}, got {largest}")
        return rows

    def line_bounds(self, lines: Ids) -> tuple[Ids, Ids]:
        """Start and end of each of the given lines, `<eos>` included."""
        if self._lines is None:
            raise ValueError("this corpus is one stream: prepare it with reading='lines' to read it by lines")
        offsets = np.asarray(np.memmap(self._lines, dtype="<i8", mode="r", shape=(self.line_count + 1,)))
        starts, stops = offsets[lines].astype(np.int64), offsets[lines + 1].astype(np.int64)
        if len(starts) and not (starts.min() >= 0 and (starts < stops).all() and stops.max() <= self._count):
            raise DamagedDataError(self._lines, "expected where each line begins, in order, got other numbers")
        return starts, stops
