"""Symbols of a corpus: one stream, or lines that end in `<eos>`."""

import numpy as np
import numpy.typing as npt

from chainrule.data._vocabulary import Ids


class Tokens:
    """Symbols in memory, as one stream or as lines.

    Args:
        ids: the symbols (T,).
        eos: the symbol that ends every line, if they are lines.

    Raises:
        ValueError: the last line does not end in `eos`.

    >>> tokens = Tokens([3, 0, 4, 5, 0], eos=0)
    >>> len(tokens), tokens.line_count, tokens.slice(2, 4).tolist()
    (5, 2, [4, 5])
    """

    def __init__(self, ids: npt.ArrayLike, *, eos: int | None = None) -> None:
        self._ids = np.asarray(ids, dtype=np.int64).reshape(-1)
        self._offsets = np.zeros(1, dtype=np.int64)
        if eos is not None and len(self._ids):
            stops = np.flatnonzero(self._ids == eos) + 1
            if not len(stops) or stops[-1] != len(self._ids):
                raise ValueError(f"ids: expected the last line to end in the symbol {eos}, got {self._ids[-1]}")
            self._offsets = np.concatenate([self._offsets, stops])
        self.line_count = len(self._offsets) - 1

    def __len__(self) -> int:
        return len(self._ids)

    def slice(self, start: int, stop: int) -> Ids:
        """Return the symbols from `start` up to `stop`, int64; `ValueError` where they are not all there."""
        if not 0 <= start <= stop <= len(self):
            raise ValueError(f"slice: expected 0 <= start <= stop <= {len(self)}, got {start} and {stop}")
        return self.rows(np.array([start]), np.array([stop]))[0].astype(np.int64)

    def rows(self, starts: Ids, stops: Ids) -> list[npt.NDArray[np.integer]]:
        """Return the symbols from each start up to its stop."""
        return [self._ids[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]

    def line_bounds(self, lines: Ids) -> tuple[Ids, Ids]:
        """Start and end of each of the given lines, `<eos>` included."""
        return self._offsets[lines], self._offsets[lines + 1]
