"""Counts and moments of the cells of a column, collected block by block in bounded memory."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from chainrule.heads import Column
from chainrule.option_error import UserError, option
from chainrule_app.readers.delimited import types_option
from chainrule_app.readers.origin import Origin
from chainrule_app.readers.tables.cell import (
    LARGEST,
    MOST_DECIMALS,
    as_integer,
    as_number,
    decimals,
    is_large_integer,
    is_odd_number,
)
from chainrule_app.readers.tables.columns import CellColumn, Flags, Floats, MomentColumn
from chainrule_app.readers.tables.dates import DateFormat, as_date, is_date_like, is_too_fine

DISTINCT = 10_000  # different cells that are counted; more are only averaged
MOST_CATEGORIES = 1_000
MOST_ATOMS = 256
ColumnKind = Literal["categorical", "integer", "real", "date", "skip"]
COLUMN_KINDS: tuple[ColumnKind, ...] = get_args(ColumnKind)
_TOGETHER = 1024  # numbers whose moments are taken at once: always the same ones, however the rows were read
_FEW = 20  # rows: fewer say nothing of whether a column identifies them
_ALMOST_ALL = 0.9  # of the cells of a column, where the others may be slips, or occur twice by chance
_SENTENCE = 4  # words of a cell on average, where it is a text and no name
_MOST_RARE = 0.5  # of the rows, where a column is not said to be categorical
_WHOLE = re.compile(r"-?[0-9]+\.0")
_SHEET_ERROR = re.compile("#[A-Z]+(?:/0)?[!?]")  # as #DIV/0!
_CODE = re.compile("0[0-9]+")  # as a postal code
_MANY = 1000  # different integers in so many rows identify them, whatever their order


class ColumnFacts:
    """Counts and moments of a column, and the kind that follows from them."""

    def __init__(
        self,
        name: str,
        where: Origin,
        distinct: int = DISTINCT,
        dates: DateFormat | None = None,
        *,
        texts: bool = False,  # whether the owner of typed data says that these are texts, not numbers
        named: bool = False,  # whether a user says that these are categories
    ):
        self.name, self._where, self._most, self.dates, self._texts = name, where, distinct, dates, texts
        self._named = named
        self.missing = self.count = 0
        self._cells: dict[str, int] = {}
        self._overflowed = False
        self._word: tuple[int, str] | None = None  # the first cell that is no number
        self._fraction: tuple[int, str] | None = None  # the first one that is no integer
        self._infinite: tuple[int, str] | None = None
        self._mean = self._squares = 0.0
        self._numbers = 0
        self.lowest, self.highest = math.inf, -math.inf
        self._waiting: Floats = np.zeros(0)  # numbers that are not yet in the moments
        self._last = -math.inf
        self._ascending = True  # every number is above the one before it

    def add(self, given: CellColumn, chosen: Flags, lines: npt.NDArray[np.int64]) -> CellColumn:
        """Take more cells, of which those of training are `chosen`, with their lines.

        Returns the column as it can be kept: without its texts, where these are numbers.
        """
        cells = given
        if self.dates is not None:
            cells = self.dates.integers(cells, alike=True)
        elif isinstance(cells, MomentColumn):
            cells = cells.as_texts()
        self._count(cells.part(chosen))
        if self._word is not None:
            return given  # no column of numbers: its moments are not asked for
        every = cells.numbers(fraction=self._fraction is None)
        numbers = every.at(chosen)
        for name, position in (
            ("_word", numbers.word),
            ("_infinite", numbers.infinite),
            ("_fraction", numbers.fraction),
        ):
            if position is not None and getattr(self, name) is None:
                row = int(np.flatnonzero(chosen)[position])
                setattr(self, name, (int(lines[row]), str(given.cell(row))))
        values = numbers.values[~np.isnan(numbers.values)]
        if len(values):
            self.lowest, self.highest = min(self.lowest, float(values.min())), max(self.highest, float(values.max()))
            self._ascending &= bool(values[0] > self._last and (np.diff(values) > 0).all())
            self._last = float(values[-1])
            self._waiting = np.concatenate([self._waiting, values])
            self._take(len(self._waiting) // _TOGETHER * _TOGETHER)
        return given if self.dates is not None else given.as_numbers(every)

    def _count(self, cells: CellColumn) -> None:
        self.count += len(cells)
        among = {*self._frequent(), *cells.missing_texts} if self._overflowed else None
        most = None if self._cells else self._most + len(cells.missing_texts) + 2  # one more than are counted
        for cell, count in cells.counts(among, most):
            if cell is None or cell in cells.missing_texts:
                self.missing += count
                self.count -= count
            elif cell in self._cells:
                self._cells[cell] += count
            elif len(self._cells) < self._most:
                self._cells[cell] = count
            else:
                self._overflowed = True

    def _frequent(self) -> Iterable[str]:
        """Return the cells that are still counted once there are too many: numbers if they have come twice."""
        if self._word is not None or self._texts or self._named:
            return self._cells
        return (cell for cell, count in self._cells.items() if count > 1)

    def _take(self, count: int) -> None:
        """Take the first numbers that wait into mean and squares (Chan, Golub and LeVeque 1979)."""
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        whole = count // _TOGETHER * _TOGETHER
        for some in (taken[:whole].reshape(-1, _TOGETHER), taken[whole:].reshape(1, -1)):
            if not some.size:
                continue
            with np.errstate(over="ignore", invalid="ignore"):  # refused by `check`
                means = some.mean(1)
                squares = np.square(some - means[:, None]).sum(1)
            for mean, square in zip(means.tolist(), squares.tolist(), strict=True):
                step, before, self._numbers = mean - self._mean, self._numbers, self._numbers + some.shape[1]
                self._mean += step * some.shape[1] / self._numbers
                self._squares += square + step * step * before * some.shape[1] / self._numbers

    def kind(self) -> ColumnKind:
        """Return integer, real or date if all cells spell such; else categorical.

        At least three numbers must differ, or two if one is no integer. Numbers that lose digits in a float64 are
        categorical, like identifiers: integers always, others if they repeat.
        """
        if self._texts or self._word is not None or (self.distinct < 3 and self._fraction is None) or self.distinct < 2:
            return "categorical"
        if self._infinite is None and (self._fraction is None or self.gaps):
            return "integer" if self.dates is None else "date"
        return "categorical" if self._large or self._loses_digits() else "real"

    @property
    def gaps(self) -> bool:
        """True if the numbers are integers written as 3.0, as pandas writes integers of a column with missing cells."""
        if self._fraction is None or self._word is not None or not self.missing or self._overflowed:
            return False
        return all(_WHOLE.fullmatch(cell) and as_integer(cell[:-2]) is not None for cell in self._cells)

    @property
    def _large(self) -> bool:
        """True if all cells are integers and a float64 cannot hold some of them."""
        if self._fraction is None or self._word is not None or not is_large_integer(self._fraction[1]):
            return False
        return all(as_integer(cell) is not None or is_large_integer(cell) for cell in self._cells)

    def _loses_digits(self) -> bool:
        """Return whether numbers that repeat have more digits than a float64 keeps."""
        if self._overflowed or self.distinct > MOST_CATEGORIES or 2 * self.distinct > self.count:
            return False
        long = [cell for cell in self._cells if len(cell) > MOST_DECIMALS and decimals(cell) is not None]
        return any(f"{float(cell):.{decimals(cell)}f}" != cell.removeprefix("+") for cell in long)

    @property
    def distinct(self) -> int:
        """Different cells, missing ones left out; at least so many where there are more than are counted."""
        return len(self._cells)

    def counted(self) -> str:
        """Return how many different cells there are, to be shown."""
        return f"{self.distinct:,}" + ("+" if self._overflowed else "")

    def doubt(self) -> str | None:
        """Why a column may be numbers or dates although not all of its cells spell them; None if nothing says so."""
        if self._word is None or self._texts:
            return None
        if self.dates is None and len(DateFormat.find_all(self._cells)) > 1:
            return f"{self._word[1]!r} may have the day or the month first: write dates as 2024-01-31"
        dated = [text for text in self._cells if is_date_like(text) and ":" not in text[:3]]  # no times of a day
        if self.dates is None and self.distinct >= _FEW and len(dated) >= _ALMOST_ALL * self.distinct:
            return f"its cells look like dates: write them as 2024-01-31, not {dated[0]!r}"
        line, cell = self._word
        numbers = sum(as_number(text) is not None for text in self._cells)
        errors = [text for text in self._cells if _SHEET_ERROR.fullmatch(text)]
        if errors and numbers > 0 and numbers + len(errors) >= _ALMOST_ALL * self.distinct:
            return f"{errors[0]!r} is an error of a spreadsheet among numbers: empty such cells"
        odd = [text for text in self._cells if is_odd_number(text)]
        if odd and numbers + len(odd) >= _ALMOST_ALL * self.distinct:
            return (
                "its cells look like numbers, which are written with a point, ungrouped and without a unit, as 66.96, "
                f"not {odd[0]!r}"
            )
        if self.distinct < _FEW or numbers < _ALMOST_ALL * self.distinct or _CODE.fullmatch(cell):
            return None
        return (
            f"{numbers:,} of {self.distinct:,} different cells are numbers, but not {cell!r} in {self._where.unit} "
            f"{line}: empty such cells where they say that a number is missing"
        )

    @property
    def constant(self) -> bool:
        """True if all cells are the same, or missing: then any other cell is a surprise, and nothing else is."""
        return self.distinct + (self.missing > 0) == 1

    def check(self, kind: ColumnKind, min_count: int) -> None:
        """Refuse a column that cannot be of a kind."""
        leave = f"leave it out with {self._kept_as('skip')}"
        if kind == "categorical":
            if self._overflowed and min_count == 1:
                raise self._error(
                    f"{self.counted()} distinct values: merge the rare ones into one category with "
                    f"{option('min_count')} 2 or more, or {leave}"
                )
            return
        if self.count == 0:
            raise self._error(f"all {self.missing} training rows are missing: {leave}")
        expected = "a number" if kind != "date" else "a date in the format of the others, such as 2024-01-31"
        remedy = f"correct it, clear it if the value is unknown, or pass {self._kept_as('categorical')}"
        self._refuse_cell(self._word, expected, remedy)
        if kind == "date" and self.dates is None:
            raise self._error(
                f"expected at least three dates in one format, such as 2024-01-31, got other cells: {leave}"
            )
        self._refuse_cell(self._infinite, "a finite number", "correct it, or leave the cell empty")
        if kind == "integer":
            large = f"an integer of at most {LARGEST:,}, because larger ones lose digits", self._kept_as("categorical")
            expected, flag = large if self._large else ("an integer", self._kept_as("real"))
            self._refuse_cell(None if self.gaps else self._fraction, expected, f"pass {flag}")
        self._take(len(self._waiting))
        if not math.isfinite(self._squares):
            raise self._error(f"values span too wide a range to standardise: rescale them, or {leave}")
        if self._squares <= 0:
            raise self._error(f"the same number, or none, in every row: pass {self._kept_as('categorical')}")

    @property
    def free_text(self) -> bool:
        """True if most cells are texts of several words; single words are among all longer lists of sentences."""
        return self._word is not None and 2 * sum(" " in cell for cell in self._cells) >= len(self._cells)

    def refuse_identifier(self, min_count: int, *, texts: str) -> None:
        """Refuse names of rows or free texts: nothing repeats, or categories are too many or too rare.

        Args:
            min_count: rows of a category.
            texts: the option to use instead where the cells are free texts.
        """
        kind = self.kind()
        leave, keep = f"leave it out with {self._kept_as('skip')}", f"keep it with {self._kept_as(kind)}"
        if kind == "categorical" and (fine := self._too_fine()):
            raise self._error(
                f"times finer than a microsecond, such as {fine!r}, which float64 cannot hold: round them, {leave}, or "
                f"{keep}"
            )
        if kind == "categorical" and self._cells and all(map(_is_nested, self._cells)):
            raise self._error(f"lists or objects in JSON, which a table treats as categories: {leave}, or {keep}")
        if kind == "date":
            leave = f"use {option('task', 'forecast')} for a series, {leave}"
        elif self.free_text:
            leave = f"use {texts}, {leave}"
        repeats = self.count >= _FEW and max(self._cells.values()) > 1
        long = sum(cell.count(" ") + 1 for cell in self._cells) >= _SENTENCE * self.distinct
        if repeats and self.free_text and long and self.distinct > _ALMOST_ALL * self.count:
            raise self._error(
                f"{self.counted()} distinct values in {self.count} rows, apparently free text: {leave}, or {keep}"
            )
        if kind == "categorical" and (repeats or self._overflowed or self.distinct > MOST_CATEGORIES):
            categories = self.categories(min_count)
            rare = 1 - sum(self._cells[category] for category in categories) / self.count
            if self._overflowed or len(categories) > MOST_CATEGORIES or rare > _MOST_RARE:
                what = "integers, too large for float64," if self._large else "texts"
                doubt = self.doubt()
                raise self._error(
                    f"{self.counted()} different {what} in {self.count} rows, "
                    + (f"though {doubt}: correct them, or {leave}" if doubt else f"an identifier or free text: {leave}")
                    + f", or keep those that occur {option('min_count')} times with {self._kept_as(kind)}"
                )
        if self.count < _FEW or kind == "real" or repeats:
            return
        if kind == "date" and not self._ascending:
            return
        if kind == "integer" and not (
            self._ascending or self.highest - self.lowest < 2 * self.count or self.count >= _MANY
        ):
            return
        what = "date" if kind == "date" else "integer" if kind == "integer" or self._large else "text"
        doubt = self.doubt()
        why = f"though {doubt}: correct them," if doubt else "an identifier:"
        raise self._error(f"a different {what} in each of {self.count} rows, {why} {leave}, or {keep}")

    def _too_fine(self) -> str | None:
        """Return a time with nanoseconds where all cells are times."""
        if self._texts or not all(as_date(cell) is not None for cell in self._cells):
            return None
        return next(filter(is_too_fine, self._cells), None)

    def decimals(self) -> tuple[int, int] | None:
        """Return the fewest and the most decimals; None if a cell has an exponent or too many decimals."""
        digit_ranges = [decimals(cell) for cell in self._cells]
        ranges = [digits for digits in digit_ranges if digits is not None]
        if len(ranges) < len(digit_ranges) or max(ranges) > MOST_DECIMALS:
            return None
        return min(ranges), max(ranges)

    def categories(self, min_count: int) -> list[str]:
        """Texts that occur at least so often, sorted."""
        return sorted(cell for cell, count in self._cells.items() if count >= min_count)

    def category_shares(self, categories: Sequence[str | None], other: str) -> tuple[float, ...]:
        """Return the share of each category in training; `other` has all that are not listed, None what is missing."""
        counts = {category: self._cells.get(category, 0) if category is not None else 0 for category in categories}
        if other in counts:
            counts[other] += self.count - sum(counts.values())
        if None in counts:
            counts[None] = self.missing
        return _smoothed(counts.values())

    def number_shares(self, column: Column) -> tuple[float, ...]:
        """Return the share of each symbol of a numeric column in training: atoms, missing, any other number."""
        atoms = [self._number_counts[atom] for atom in column.atoms]
        return _smoothed([*atoms, *[self.missing] * column.missing, self._numbers - sum(atoms)])

    def numbers(self, kind: Literal["integer", "real"], *, missing: bool) -> Column:
        """Return the column as a head takes it: unit, atoms and bounds."""
        self._take(len(self._waiting))
        scale = math.sqrt(self._squares / self._numbers)
        counts = self._number_counts
        values = sorted(counts)
        gap = min((right - left for left, right in pairwise(values)), default=0.0)
        return Column(
            kind,
            atoms=self._atoms(counts, kind),
            missing=missing,
            centre=self._mean,
            scale=scale,
            low=0 if kind == "integer" and self.dates is None and self.lowest >= 0 else None,
            # Half the step in which values were written down, or a thousandth of their spread.
            finest=1e-3 if kind == "integer" else min(max(gap / 2 / scale, 1e-3), 0.5),
        )

    @cached_property
    def _number_counts(self) -> dict[float, int]:
        """How often each number is among the counted cells, once all are counted."""
        counts: dict[float, int] = {}
        for cell, count in self._cells.items():
            number = float(cell)  # all cells spell numbers
            counts[number] = counts.get(number, 0) + count
        return counts

    def _atoms(self, counts: dict[float, int], kind: Literal["integer", "real"]) -> tuple[float, ...]:
        """Integers that repeat, where they are most of the column; else single frequent values."""
        total = self._numbers
        often = sorted((value for value, count in counts.items() if count >= 5), key=lambda value: -counts[value])
        often = often[:MOST_ATOMS]
        if kind == "real" or 2 * sum(counts[value] for value in often) < total:
            often = [value for value in often if counts[value] >= 0.1 * total]
        return tuple(sorted(often))

    def _refuse_cell(self, cell_at_line: tuple[int, str] | None, expected: str, remedy: str) -> None:
        if cell_at_line is not None:
            line, cell = cell_at_line
            raise UserError(f"{self._where.at(line)}, column {self.name!r}: expected {expected}, got {cell!r}", remedy)

    def _kept_as(self, kind: ColumnKind) -> str:
        return types_option({self.name: kind})

    def _error(self, what: str) -> UserError:
        return UserError(f"{self._where}, column {self.name!r}: {what}")


def _is_nested(cell: str) -> bool:
    """Return whether a cell is a list or an object in JSON."""
    try:
        return cell[:1] in ("[", "{") and isinstance(json.loads(cell), list | dict)
    except (ValueError, RecursionError):
        return False


def finer_date_formats(facts: Iterable[ColumnFacts], types: Mapping[str, str]) -> dict[str, DateFormat | None]:
    """Return what to try next for columns in which not all cells fit their format; None for words."""
    mixed = {c.name: c.dates.finer() for c in facts if c.dates is not None and c.kind() != "date"}
    return {name: dates for name, dates in mixed.items() if dates is not None or types.get(name) != "date"}


def _smoothed(counts: Iterable[int]) -> tuple[float, ...]:
    """Shares in which nothing is impossible: half a count is added to each (Krichevsky and Trofimov 1981)."""
    added = [count + 0.5 for count in counts]
    total = sum(added)
    return tuple(count / total for count in added)
