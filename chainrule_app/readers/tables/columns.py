"""Cells of a table as columns of polars: texts, numbers, moments, or codes of few different cells."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import polars

from chainrule_app.readers.tables.cell import INFINITE, INTEGER, LARGEST, LONGEST_INTEGER, MISSING

Floats = npt.NDArray[np.float64]
Lines = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.integer]

_FEW = 64  # cells that are looked up one by one sooner than by polars


_LEADING_ZERO = "^[+-]?0[0-9]"  # of a name such as 007, which polars takes for a number


@dataclass(frozen=True)
class NumberCells:
    """The numbers of a column, and which cells are no numbers."""

    values: Floats  # (N,), NaN where a cell is no finite number
    words: Flags  # (N,) cells that are neither missing nor numbers
    infinities: Flags
    fractions: Flags  # finite numbers that are not spelt as integers

    @property
    def word(self) -> int | None:
        """Place of the first word, if there is one."""
        return _first(self.words)

    @property
    def infinite(self) -> int | None:
        """Place of the first infinity, if there is one."""
        return _first(self.infinities)

    @property
    def fraction(self) -> int | None:
        """Place of the first fraction, if there is one."""
        return _first(self.fractions)

    def at(self, places: "Places | Flags") -> "NumberCells":
        """Return the cells at some places, which may repeat, or where flags are set."""
        return NumberCells(self.values[places], self.words[places], self.infinities[places], self.fractions[places])


class CellColumn:
    """N cells of a column, as text.

    Of a file, some texts say that a cell is missing. Of typed data the cells are `exact`: None is missing, and any
    text is itself.
    """

    def __init__(self, cells: Sequence[str | None] | polars.Series, *, exact: bool = False):
        self._series = cells if isinstance(cells, polars.Series) else polars.Series(cells, dtype=polars.String)
        self.missing_texts: frozenset[str] = frozenset() if exact else MISSING
        self.known = dict[Hashable, Any]()  # of the different cells of coded columns, by rules

    def __len__(self) -> int:
        return len(self._series)

    def cell(self, index: int) -> str | None:
        """Return the text of one cell."""
        return self.part(slice(index, index + 1 or None)).texts()[0]

    def texts(self) -> list[str | None]:
        """Return the texts of all cells."""
        return self._series.to_list()

    def part(self, chosen: Flags | slice) -> Self:
        """Cells of some rows."""
        other = copy(self)
        other._series = self._series[chosen] if isinstance(chosen, slice) else self._series.filter(chosen)
        return other

    def counts(self, among: Collection[str] | None = None, most: int | None = None) -> list[tuple[str | None, int]]:
        """Return each different cell and how often it occurs, in the order in which they first occur.

        Args:
            among: if given, only of these cells and of missing ones.
            most: if given, of so many of the first cells, and of missing ones.
        """
        series = self._series
        if among is not None:
            series = series.filter(series.is_null() | _is_in(series, among))
        counted = series.alias("cell").to_frame().group_by("cell", maintain_order=True).len("count")
        if most is not None and len(counted) > most:
            rest = counted[most:]
            gaps = rest["cell"].is_null()
            if self.missing_texts:
                gaps |= _is_in(rest["cell"], self.missing_texts)
            counted = polars.concat([counted[:most], rest.filter(gaps)])
        return list(zip(self._written(counted["cell"]), counted["count"].to_list(), strict=True))

    def nulls(self) -> Flags:
        """(N,) which values of typed data are missing."""
        return _nulls(self._series)

    def empty(self) -> Flags:
        """(N,) which cells hold nothing at all."""
        return np.array((self._series.is_null() if not self.missing_texts else self._series == "").to_numpy())

    def _written(self, series: polars.Series) -> list[str | None]:
        """Write values of the column as texts."""
        return series.to_list()

    def numbers(self, *, fraction: bool = True) -> NumberCells:
        """Return the cells as numbers; whether one of them is no integer is looked at only where `fraction` says so."""
        series = self._series
        values = np.array(series.cast(polars.Float64, strict=False).to_numpy(), dtype=np.float64)  # NaN for null
        finite = np.isfinite(values) & ~_flags(series.str.contains(_LEADING_ZERO))
        words, infinities = _nowhere(len(values)), _nowhere(len(values))
        if len(rest := np.flatnonzero(~finite)):
            others = self.part(~finite)
            infinities[rest] = _flags(others._series.str.contains(f"^{INFINITE}$")) | np.isinf(values[rest])  # 1e999
            words[rest] = ~infinities[rest] & ~others.missing()
            values[rest] = np.nan
        fractions = finite & ~self._integers() if fraction else _nowhere(len(values))
        return NumberCells(values, words, infinities, fractions)

    def _integers(self) -> Flags:
        """Return which cells spell an integer in the usual way."""
        series = self._series
        usual = series.str.contains(f"^{INTEGER}$") & (series.str.len_bytes() <= LONGEST_INTEGER)
        fits = series.cast(polars.Int64, strict=False).abs() <= LARGEST
        return _flags(usual) & _flags(fits)

    def moments(self, pattern: str, suffix: str) -> "MomentColumn | None":
        """Return the cells without a suffix as moments, if all that are present are written by a pattern."""
        present = self._series.set(polars.Series(self.missing()), None)
        written = present.str.strip_suffix(suffix) if suffix else present
        moments = written.str.to_datetime(pattern, strict=False, time_unit="us")
        alike = moments.dt.to_string(pattern) == written
        if suffix:
            alike &= present.str.ends_with(suffix)
        return MomentColumn(moments) if _flags(alike | present.is_null()).all() else None

    def by_cell(self, rule: Hashable, change: Callable[["CellColumn"], "CellColumn"]) -> "CellColumn":
        """Change the cells by a named rule that looks at each one alone."""
        return change(self)

    def as_numbers(self, numbers: NumberCells) -> "CellColumn":
        """Return the column without its texts, where all its cells are finite numbers or missing."""
        if numbers.words.any() or numbers.infinities.any():
            return self
        return ValueColumn(polars.Series(numbers.values))

    @property
    def size(self) -> int:
        """Bytes that the cells need in memory."""
        return int(self._series.estimated_size())

    def missing(self) -> Flags:
        """(N,) which cells say that there is nothing."""
        return _flags(self._series.is_null() | _is_in(self._series, self.missing_texts))

    def codes(self, codes: Mapping[str, int], other: float) -> Floats:
        """(N,) the code of each cell, `other` for a cell without a code."""
        return _coded(self._series, polars.Series(list(codes), dtype=polars.String), list(codes.values()), other)


class NumberColumn(CellColumn):
    """N numbers of a column, integers or floats; null is missing."""

    def __init__(self, numbers: polars.Series, misfits: polars.Series | None = None):
        super().__init__(numbers.fill_nan(None) if numbers.dtype.is_float() else numbers, exact=True)
        self._misfits = misfits  # which of the missing ones are values that no number of this column stands for

    def texts(self) -> list[str | None]:
        return self._written(self._series)

    def part(self, chosen: Flags | slice) -> Self:
        other = super().part(chosen)
        if self._misfits is not None:
            other._misfits = self._misfits[chosen] if isinstance(chosen, slice) else self._misfits.filter(chosen)
        return other

    def counts(self, among: Collection[str] | None = None, most: int | None = None) -> list[tuple[str | None, int]]:
        if among is None:
            return super().counts(most=most)
        own = polars.Series(list(among), dtype=polars.String).cast(self._series.dtype, strict=False)
        chosen = self._series.is_null() | self._series.is_in(own.implode())
        return super(NumberColumn, self.part(_flags(chosen))).counts()

    def numbers(self, *, fraction: bool = True) -> NumberCells:
        series = self._series
        values = np.array(series.cast(polars.Float64).to_numpy(), dtype=np.float64)  # NaN for null
        infinities = np.isinf(values)
        values[infinities] = np.nan
        words = _nowhere(len(values)) if self._misfits is None else _flags(self._misfits)
        fractions = ~np.isnan(values)
        if series.dtype.is_integer():
            fractions &= np.abs(values) > LARGEST
        return NumberCells(values, words, infinities, fractions)

    def missing(self) -> Flags:
        missing = _nulls(self._series)
        return missing if self._misfits is None else missing & ~_flags(self._misfits)

    def codes(self, codes: Mapping[str, int], other: float) -> Floats:
        kind = self._series.dtype if self._series.dtype.is_integer() else polars.Float64
        names = polars.Series(list(codes), dtype=polars.String).cast(kind, strict=False)
        return _coded(self._series.cast(kind), names, list(codes.values()), other)

    def _written(self, series: polars.Series) -> list[str | None]:
        return series.cast(polars.String).to_list()

    def as_numbers(self, numbers: NumberCells) -> CellColumn:
        return self


class ValueColumn(NumberColumn):
    """Values of cells whose spelling is no longer known."""


class MomentColumn(CellColumn):
    """N moments of a column: dates, or dates and times, in UTC where they have a zone; null is missing."""

    def __init__(self, moments: polars.Series, zone: str = ""):
        """Take moments of polars' Date, or of Datetime in microseconds without a zone, and the `zone` to write."""
        super().__init__(moments, exact=True)
        self.zone, self.dated = zone, moments.dtype == polars.Date

    def texts(self) -> list[str | None]:
        return self._written(self._series)

    def at(self, places: Places) -> "MomentColumn":
        """Return the moments at some places, which may repeat."""
        return MomentColumn(self._series.gather(polars.Series(places)), self.zone)

    def datetimes(self) -> list[datetime | None]:
        """Return the moments as Python has them, without a zone."""
        return self._series.cast(polars.Datetime("us")).to_list()

    def ticks(self) -> polars.Series:
        """Return the microseconds since 1970."""
        return self._series.cast(polars.Datetime("us")).cast(polars.Int64)

    def integers(self, unit: int) -> NumberColumn:
        """Return the moments as integers of a unit, in microseconds; one between two integers fits none."""
        ticks = self.ticks()
        fits = ticks % unit == 0
        return NumberColumn((ticks // unit).set(~fits, None), ~fits)

    def as_numbers(self, numbers: NumberCells) -> CellColumn:
        return self

    def as_texts(self) -> CellColumn:
        """Return the moments as texts."""
        return CellColumn(self.texts(), exact=True)

    def _written(self, series: polars.Series) -> list[str | None]:
        if self.dated:
            return [None if day is None else day.isoformat() for day in series]
        return [None if moment is None else moment.isoformat(" ") + self.zone for moment in series]


def _flags(series: polars.Series) -> Flags:
    """Return truth values as an array; null is false."""
    filled = series.fill_null(value=False) if series.null_count() else series  # which takes a tenth of a millisecond
    return np.array(filled.to_numpy(), dtype=np.bool_)


def _nulls(series: polars.Series) -> Flags:
    """Return which values are null."""
    return _flags(series.is_null()) if series.null_count() else np.zeros(len(series), dtype=np.bool_)


def _coded(series: polars.Series, names: polars.Series, codes: Sequence[int], other: float) -> Floats:
    named = dict(zip(names.to_list(), map(float, codes), strict=True))
    named.pop(None, None)  # the missing cell, or what cannot be in this column
    if len(series) <= _FEW:
        return np.array([named.get(cell, other) for cell in series.to_list()], dtype=np.float64)
    numbers = series.replace_strict(
        polars.Series(list(named), dtype=series.dtype), list(named.values()), default=other, return_dtype=polars.Float64
    )
    return np.array(numbers.to_numpy(), dtype=np.float64)


def _is_in(series: polars.Series, cells: Collection[str]) -> polars.Series:
    return series.is_in(polars.Series(list(cells), dtype=polars.String).implode())


def _first(flags: Flags) -> int | None:
    return int(flags.argmax()) if flags.any() else None


def _nowhere(count: int) -> Flags:
    return np.zeros(count, dtype=np.bool_)


@dataclass(frozen=True)
class Block:
    """Some rows in succession."""

    lines: Lines  # (N,) the number of the line where each row ends
    columns: Sequence[CellColumn]  # of all cells, (D)

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def size(self) -> int:
        """Bytes that the rows need in memory."""
        return self.lines.nbytes + sum(column.size for column in self.columns)

    def part(self, rows: slice) -> "Block":
        """Some rows in succession; the block itself where these are all."""
        if rows.indices(len(self)) == (0, len(self), 1):
            return self
        return Block(self.lines[rows], [column.part(rows) for column in self.columns])

    def only(self, chosen: Flags) -> "Block":
        """Some rows; the block itself where these are all."""
        return self if chosen.all() else Block(self.lines[chosen], [column.part(chosen) for column in self.columns])

    def filled(self) -> int:
        """Return the number of rows up to the last one that is not empty."""
        if any(column.cell(-1) for column in self.columns):
            return len(self)
        empty = np.logical_and.reduce([column.empty() for column in self.columns])
        return int(np.flatnonzero(~empty).max(initial=-1)) + 1
