"""Blocks of rows as columns of polars, and CSV read into them."""

import re
from collections.abc import Collection, Generator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import BinaryIO, Self

import numpy as np
import numpy.typing as npt
import polars

from chainrule_app.readers.delimited import DECIMAL_COMMA, GROUPING, may_have_decimal_commas
from chainrule_app.readers.tables.cell import INFINITE, INTEGER, LARGEST, LONGEST_INTEGER, MISSING, NUMBER
from chainrule_app.readers.text import LONGEST_LINE

Floats = npt.NDArray[np.float64]
Lines = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


_FEW = 64  # cells that are looked up one by one sooner than by polars


@dataclass(frozen=True)
class NumberCells:
    """The numbers of a column."""

    values: Floats  # (N,), NaN where a cell is no finite number
    word: int | None  # place of the first cell that is neither missing nor a number, if there is one
    infinite: int | None  # place of the first infinity
    fraction: int | None  # place of the first finite number that is not spelt as an integer


class CellColumn:
    """N cells of a column, as text.

    Of a file, some texts say that a cell is missing. Of typed data the cells are `exact`: None is missing, and any
    text is itself.
    """

    def __init__(self, cells: Sequence[str | None] | polars.Series, *, exact: bool = False):
        self._series = cells if isinstance(cells, polars.Series) else polars.Series(cells, dtype=polars.String)
        self.missing_texts: frozenset[str] = frozenset() if exact else MISSING

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

    def counts(self, among: Collection[str] | None = None) -> list[tuple[str | None, int]]:
        """Return each different cell and how often it occurs, in the order in which they first occur.

        Of cells `among` others, and of missing ones, if these are given.
        """
        series = self._series
        if among is not None:
            series = series.filter(series.is_null() | _is_in(series, among))
        counted = series.alias("cell").to_frame().group_by("cell", maintain_order=True).len("count")
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
        number = _flags(series.str.contains(f"^{NUMBER}$"))
        rest = np.flatnonzero(~number)
        values[rest] = np.nan
        others = self.part(~number)
        infinite = _flags(others._series.str.contains(f"^{INFINITE}$"))
        word = ~infinite & ~others.missing()
        overflowed = np.flatnonzero(np.isinf(values))  # 1e999
        values[overflowed] = np.nan
        first_infinite = [*rest[infinite][:1].tolist(), *overflowed[:1].tolist()]
        spelt = self._integers() if fraction else np.ones(len(values), dtype=np.bool_)
        return NumberCells(
            values,
            _first(rest[word]),
            min(first_infinite, default=None),
            _first(np.flatnonzero(~np.isnan(values) & ~spelt)),
        )

    def _integers(self) -> Flags:
        """Return which cells spell an integer in the usual way."""
        series = self._series
        usual = series.str.contains(f"^{INTEGER}$") & (series.str.len_bytes() <= LONGEST_INTEGER)
        fits = series.cast(polars.Int64, strict=False).abs() <= LARGEST
        return _flags(usual) & _flags(fits)

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

    def counts(self, among: Collection[str] | None = None) -> list[tuple[str | None, int]]:
        if among is None:
            return super().counts()
        own = polars.Series(list(among), dtype=polars.String).cast(self._series.dtype, strict=False)
        chosen = self._series.is_null() | self._series.is_in(own.implode())
        return super(NumberColumn, self.part(_flags(chosen))).counts()

    def numbers(self, *, fraction: bool = True) -> NumberCells:
        series = self._series
        values = np.array(series.cast(polars.Float64).to_numpy(), dtype=np.float64)  # NaN for null
        infinite = _first(np.flatnonzero(np.isinf(values)))
        values[np.isinf(values)] = np.nan
        whole = np.abs(values) <= LARGEST if series.dtype.is_integer() else np.zeros(len(values), dtype=np.bool_)
        word = None if self._misfits is None else _first(np.flatnonzero(_flags(self._misfits)))
        return NumberCells(
            values, word, infinite, _first(np.flatnonzero(~np.isnan(values) & ~whole)) if fraction else None
        )

    def missing(self) -> Flags:
        missing = _nulls(self._series)
        return missing if self._misfits is None else missing & ~_flags(self._misfits)

    def codes(self, codes: Mapping[str, int], other: float) -> Floats:
        kind = self._series.dtype if self._series.dtype.is_integer() else polars.Float64
        names = polars.Series(list(codes), dtype=polars.String).cast(kind, strict=False)
        return _coded(self._series.cast(kind), names, list(codes.values()), other)

    def _written(self, series: polars.Series) -> list[str | None]:
        return series.cast(polars.String).to_list()


class MomentColumn(CellColumn):
    """N moments of a column: dates, or dates and times, in UTC where they have a zone; null is missing."""

    def __init__(self, moments: polars.Series, zone: str = ""):
        """Take moments of polars' Date, or of Datetime in microseconds without a zone, and the `zone` to write."""
        super().__init__(moments, exact=True)
        self.zone, self.dated = zone, moments.dtype == polars.Date

    def texts(self) -> list[str | None]:
        return self._written(self._series)

    def ticks(self) -> polars.Series:
        """Return the microseconds since 1970."""
        return self._series.cast(polars.Datetime("us")).cast(polars.Int64)

    def integers(self, unit: int) -> NumberColumn:
        """Return the moments as integers of a unit, in microseconds; one between two integers fits none."""
        ticks = self.ticks()
        fits = ticks % unit == 0
        return NumberColumn((ticks // unit).set(~fits, None), ~fits)

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


def _first(places: npt.NDArray[np.int64]) -> int | None:
    return int(places[0]) if len(places) else None


@dataclass(frozen=True)
class Block:
    """Some rows in succession."""

    lines: Lines  # (N,) the number of the line where each row ends
    columns: Sequence[CellColumn]  # of all cells, (D)

    def __len__(self) -> int:
        return len(self.lines)

    def part(self, rows: slice) -> "Block":
        """Some rows in succession; the block itself where these are all."""
        if rows.indices(len(self)) == (0, len(self), 1):
            return self
        return Block(self.lines[rows], [column.part(rows) for column in self.columns])

    def filled(self) -> int:
        """Return the number of rows up to the last one that is not empty."""
        if any(column.cell(-1) for column in self.columns):
            return len(self)
        empty = np.logical_and.reduce([column.empty() for column in self.columns])
        return int(np.flatnonzero(~empty).max(initial=-1)) + 1

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[int, Sequence[str]]]) -> "Block":
        """Rows with their lines; there is at least one row."""
        lines, cells = zip(*rows, strict=True)
        return cls(np.array(lines, dtype=np.int64), [CellColumn(column) for column in zip(*cells, strict=True)])


STRETCH = 1 << 23  # bytes read at a time


def regular_blocks(file: BinaryIO, delimiter: str, width: int, line: int) -> Generator[Block, None, int | None]:
    """Yield the rows of a CSV file after so many lines, as long as all readers cut them into the same cells.

    Returns None, or the number of lines before a stretch that Python's reader must read, to the end of the file. In
    all others each line is a row of `width` cells, two or more.
    """
    regular = _regular_rows(delimiter, width)
    while stretch := file.read(STRETCH):
        last = file.readline(LONGEST_LINE)
        columns = None if len(last) == LONGEST_LINE else _columns(stretch + last, delimiter, width, regular)
        if columns is None:
            return line
        if may_have_decimal_commas(delimiter):
            columns = list(map(_with_points, columns))
        block = Block(np.arange(line + 1, line + 1 + len(columns[0])), list(map(CellColumn, columns)))
        line += len(block)
        yield block
    return None


def _regular_rows(delimiter: str, width: int) -> str:
    """Return the regular expression of lines that every reader of CSV cuts into the same cells.

    A quote may only stand in a quoted cell. Characters that readers treat in different ways are excluded: control
    characters and the byte order mark.
    """
    odd = r"\x00-\x08\x0b\x0c\x0e-\x1f\x{feff}\r\n"
    cell = rf'(?:[^"{re.escape(delimiter)}{odd}]*|"(?:[^"{odd}]|"")*")'
    return rf"^(?:(?:{cell}{re.escape(delimiter)}){{{width - 1}}}{cell}\r?\n)*$"


def _columns(stretch: bytes, delimiter: str, width: int, regular: str) -> list[polars.Series] | None:
    """Return the stripped cells of whole lines; None where the lines are not regular."""
    if not stretch.endswith(b"\n"):
        stretch += b"\n"
    try:
        text = stretch.decode()
    except UnicodeDecodeError:
        return None
    if not polars.Series([text]).str.contains(regular)[0]:
        return None
    frame = polars.read_csv(
        stretch,
        has_header=False,
        schema={str(index): polars.String for index in range(width)},
        separator=delimiter,
        quote_char='"' if b'"' in stretch else None,
        empty_string_is_null=False,
    )
    assert len(frame) == text.count("\n")
    return frame.select(polars.all().str.strip_chars()).get_columns()


def _with_points(series: polars.Series) -> polars.Series:
    """Apply `with_point` to each cell."""
    has_comma = series.str.contains(f"^{DECIMAL_COMMA.pattern}$")
    if not has_comma.any():
        return series
    return series.str.replace_all(f"[{GROUPING}]", "").str.replace(",", ".", literal=True).zip_with(has_comma, series)
