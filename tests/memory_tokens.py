"""Symbols in memory: texts of tests."""

import numpy as np
import numpy.typing as npt

from chainrule.data._vocabulary import Ids, Tokens


class MemoryTokens(Tokens):
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

    def rows(self, starts: Ids, stops: Ids) -> list[npt.NDArray[np.integer]]:
        return [self._ids[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]

    def line_bounds(self, lines: Ids) -> tuple[Ids, Ids]:
        return self._offsets[lines], self._offsets[lines + 1]
