"""A row of a table some of whose cells are to be drawn or predicted."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from operator import not_


@dataclass(frozen=True)
class PartialRow:
    """A row to be completed."""

    # as they are in the data, of the columns that `TableSchema.partial` names
    cells: list[str | None]
    drawn: list[bool]  # which of these are to be drawn
    numbers: list[float]  # (D,) of the cells of the kept columns; 0 where one is to be drawn
    known: list[bool]  # (D,) which of these are known
    line: int = 0  # of the file
    place: int = 0  # among its rows, from 0

    def filled(self, drawn: Sequence[str | None]) -> list[str | None]:
        """Return the known cells as in the data, and the others from the drawn cells of the kept columns."""
        unknown = compress(drawn, map(not_, self.known))
        return [next(unknown) if own else cell for cell, own in zip(self.cells, self.drawn, strict=True)]
