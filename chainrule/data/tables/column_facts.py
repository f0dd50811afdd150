"""What the cells of a column come to, collected row by row in bounded memory."""

import math
from itertools import pairwise
from typing import Literal

from chainrule.data.tables.cells import MISSING, as_integer, as_number
from chainrule.heads.column import Column

DISTINCT = 10_000  # different cells that are counted; more are only averaged
MOST_CATEGORIES = 1_000
MOST_ATOMS = 256
ColumnKind = Literal["categorical", "integer", "real", "skip"]
COLUMN_KINDS = ("categorical", "integer", "real", "skip")


class ColumnFacts:
    """Counts and moments of a column, and the kind that follows from them.

    Args:
        name: the name of the column, for errors.
        where: the name of the file, for errors.
    """

    def __init__(self, name: str, where: str):
        self.name, self._where = name, where
        self.missing = self.count = 0
        self._cells: dict[str, tuple[float | None, list[int]]] = {}
        self._overflowed = False
        self._word: tuple[int, str] | None = None  # the first cell that is no number
        self._fraction: tuple[int, str] | None = None  # the first one that is no integer
        self._infinite: tuple[int, str] | None = None
        self._mean = self._squares = 0.0
        self._lowest = math.inf
        self._numbers = 0

    def add(self, cell: str, line: int) -> None:
        """Take one more cell."""
        if cell in MISSING:
            self.missing += 1
            return
        self.count += 1
        known = self._cells.get(cell)
        number = self._look_at(cell, line) if known is None else known[0]
        if known is not None:
            known[1][0] += 1
        elif len(self._cells) < DISTINCT:
            self._cells[cell] = (number, [1])
        else:
            self._overflowed = True
        if number is not None:  # Welford (1962)
            self._numbers += 1
            step = number - self._mean
            self._mean += step / self._numbers
            self._squares += step * (number - self._mean)
            self._lowest = min(self._lowest, number)

    def kind(self) -> ColumnKind:
        """Integer or real where all cells spell such numbers, of which there are at least three; else categorical."""
        if self._word is not None or (self.distinct < 3 and self._fraction is None) or self.distinct < 2:
            return "categorical"
        return "integer" if self._fraction is None and self._infinite is None else "real"

    @property
    def distinct(self) -> int:
        """Different cells, missing ones left out; at least so many where there are more than are counted."""
        return len(self._cells)

    def counted(self) -> str:
        """How many different cells there are, to be shown."""
        return f"{self.distinct:,}" + ("+" if self._overflowed else "")

    def check(self, kind: ColumnKind) -> None:
        """Refuse a column that cannot be of a kind, or that has nothing to learn.

        Raises:
            ValueError: it is constant or all missing; a cell does not fit the kind; there are too many categories.
        """
        leave = f"leave it out with --types {self.name}=skip"
        if self.count == 0:
            raise self._error(f"all {self.missing} training rows are missing: {leave}")
        if self.distinct == 1 and self.missing == 0:
            value = next(iter(self._cells))
            raise self._error(f"constant, {value!r} in all {self.count} training rows: {leave}")
        if kind == "categorical":
            if self._overflowed or self.distinct > MOST_CATEGORIES:
                raise self._error(
                    f"{self.counted()} different texts in {self.count} rows, an identifier or free text "
                    f"(at most {MOST_CATEGORIES} categories): {leave}"
                )
            return
        self._refuse_cell(self._word, "a number", "or say --types {}=categorical")
        self._refuse_cell(self._infinite, "a finite number", "correct it, or leave the cell empty")
        if kind == "integer":
            self._refuse_cell(self._fraction, "an integer", "say --types {}=real")
        if self._squares <= 0:
            raise self._error(f"one number only, or missing: say --types {self.name}=categorical")

    def categories(self, min_count: int) -> list[str]:
        """Texts that occur at least so often, sorted."""
        return sorted(cell for cell, (_, count) in self._cells.items() if count[0] >= min_count)

    def numbers(self, kind: Literal["integer", "real"], *, missing: bool) -> Column:
        """The column as a head takes it: unit, atoms and bounds."""
        scale = math.sqrt(self._squares / self._numbers)
        counts: dict[float, int] = {}
        for number, count in self._cells.values():
            if number is not None:
                counts[number] = counts.get(number, 0) + count[0]
        values = sorted(counts)
        gap = min((right - left for left, right in pairwise(values)), default=0.0)
        return Column(
            kind,
            atoms=self._atoms(counts, kind),
            missing=missing,
            centre=self._mean,
            scale=scale,
            low=0 if kind == "integer" and self._lowest >= 0 else None,
            # Half the step in which values were written down, or a thousandth of their spread.
            finest=1e-3 if kind == "integer" else min(max(gap / 2 / scale, 1e-3), 0.5),
        )

    def _atoms(self, counts: dict[float, int], kind: Literal["integer", "real"]) -> tuple[float, ...]:
        """Integers that repeat, where they are most of the column; else single values that stand out."""
        total = self._numbers
        often = sorted((value for value, count in counts.items() if count >= 5), key=lambda value: -counts[value])
        often = often[:MOST_ATOMS]
        if kind == "real" or 2 * sum(counts[value] for value in often) < total:
            often = [value for value in often if counts[value] >= 0.1 * total]
        return tuple(sorted(often))

    def _look_at(self, cell: str, line: int) -> float | None:
        number = as_number(cell)
        if number is None:
            self._word = self._word or (line, cell)
        elif math.isinf(number):
            self._infinite = self._infinite or (line, cell)
            number = None
        elif as_integer(cell) is None:
            self._fraction = self._fraction or (line, cell)
        return number

    def _refuse_cell(self, found: tuple[int, str] | None, expected: str, remedy: str) -> None:
        if found is not None:
            line, cell = found
            raise ValueError(
                f"{self._where} line {line}, column {self.name!r}: expected {expected}, got {cell!r}: "
                f"{remedy.format(self.name)}"
            )

    def _error(self, what: str) -> ValueError:
        return ValueError(f"{self._where}, column {self.name!r}: {what}")
