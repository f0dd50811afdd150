"""All cells of a file of series, as columns in memory."""

from contextlib import closing

import numpy as np
import numpy.typing as npt

from chainrule_app.readers.tables.columns import CellColumn
from chainrule_app.readers.tables.frame_table import FrameTable
from chainrule_app.readers.tables.table_file import TableFile

MOST_CELLS = 1 << 24
Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


class Cells:
    """The rows of a file, as columns."""

    def __init__(self, file: TableFile | FrameTable):
        most, lines, parts, count = MOST_CELLS // len(file.names), [], [list[CellColumn]() for _ in file.names], 0
        with closing(file.blocks()) as blocks:
            for block in blocks:
                count += len(block)
                if count > most:
                    raise ValueError(
                        f"{file.origin}: expected at most {MOST_CELLS:,} cells, got more: keep the last rows"
                    )
                lines.append(block.lines)
                for part, column in zip(parts, block.columns, strict=True):
                    part.append(column)
        self.lines: Places = np.concatenate(lines or [np.zeros(0, dtype=np.int64)])
        self._parts = parts
        self._texts, self._numbers = dict[int, list[str | None]](), dict[int, Floats]()

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, index: int) -> list[CellColumn]:
        """Return the cells of a column, some rows after others."""
        return self._parts[index]

    def texts(self, index: int) -> list[str | None]:
        """Return the texts of a column."""
        if index not in self._texts:
            self._texts[index] = [text for part in self._parts[index] for text in part.texts()]
        return self._texts[index]

    def missing(self, index: int) -> npt.NDArray[np.bool_]:
        """(N,) which cells of a column say that there is nothing."""
        return np.concatenate([part.missing() for part in self._parts[index]])

    def numbers(self, index: int) -> Floats:
        """(N,) the finite numbers of a column; NaN for any other cell."""
        if index not in self._numbers:
            values = [part.numbers(fraction=False).values for part in self._parts[index]]
            self._numbers[index] = np.concatenate(values)
        return self._numbers[index]

    def first(self, index: int) -> str:
        """Return the first cell of a column that is not missing; empty where all are."""
        for part in self._parts[index]:
            present = np.flatnonzero(~part.missing())
            if len(present):
                return part.cell(int(present[0])) or ""
        return ""
