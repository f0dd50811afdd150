"""Blocks of rows as columns of polars, and CSV read into them."""

import re
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import polars

from chainrule_app.readers.delimited import DECIMAL_COMMA, GROUPING, may_have_decimal_commas
from chainrule_app.readers.tables.cell import INFINITE, INTEGER, LARGEST, LONGEST_INTEGER, MISSING, NUMBER
from chainrule_app.readers.text import LONGEST_LINE

Floats = npt.NDArray[np.float64]
Lines = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class NumberCells:
    """The numbers of a column."""

    values: Floats  # (N,), NaN where a cell is no finite number
    word: int | None  # place of the first cell that is neither missing nor a number, if there is one
    infinite: int | None  # place of the first infinity
    fraction: int | None  # place of the first finite number that is not spelt as an integer


class CellColumn:
    """N cells of a column, as text."""

    def __init__(self, cells: Sequence[str] | polars.Series):
        self._series = cells if isinstance(cells, polars.Series) else polars.Series(cells, dtype=polars.String)

    def __len__(self) -> int:
        return len(self._series)

    def cell(self, index: int) -> str:
        """Return the text of one cell."""
        return str(self._series[index])

    def texts(self) -> list[str]:
        """Return the texts of all cells."""
        cells: list[str] = self._series.to_list()
        return cells

    def part(self, chosen: Flags | slice) -> "CellColumn":
        """Cells of some rows."""
        return CellColumn(self._series[chosen] if isinstance(chosen, slice) else self._series.filter(chosen))

    def counts(self, among: Collection[str] | None = None) -> list[tuple[str, int]]:
        """Return each different cell and how often it occurs, in the order in which they first occur."""
        series = self._series if among is None else self._series.filter(_is_in(self._series, among))
        counted = series.alias("cell").to_frame().group_by("cell", maintain_order=True).len("count")
        return list(zip(counted["cell"].to_list(), counted["count"].to_list(), strict=True))

    def numbers(self, *, fraction: bool = True) -> NumberCells:
        """Return the cells as numbers; whether one of them is no integer is looked at only where `fraction` says so."""
        series = self._series
        values = np.array(series.cast(polars.Float64, strict=False).to_numpy(), dtype=np.float64)  # NaN for null
        number = series.str.contains(f"^{NUMBER}$").to_numpy()
        rest = np.flatnonzero(~number)
        values[rest] = np.nan
        others = series[rest]
        infinite = others.str.contains(f"^{INFINITE}$").to_numpy()
        word = ~infinite & ~_is_in(others, MISSING).to_numpy()
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
        return np.array(usual.to_numpy() & fits.fill_null(value=False).to_numpy())

    def missing(self) -> Flags:
        """(N,) which cells say that there is nothing."""
        return np.array(_is_in(self._series, MISSING).to_numpy())

    def codes(self, codes: Mapping[str, int], other: float) -> Floats:
        """(N,) the code of each cell, `other` for a cell without a code."""
        numbers = self._series.replace_strict(
            list(codes), [float(code) for code in codes.values()], default=other, return_dtype=polars.Float64
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
        empty = np.logical_and.reduce([(column._series == "").to_numpy() for column in self.columns])
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
