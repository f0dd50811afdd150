"""A table on disk, CSV or Parquet, row by row."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from chainrule.data._delimited import (
    LARGEST_CELL,
    MOST_COLUMNS,
    MOST_EMPTY,
    DelimitedFile,
    Row,
    may_have_decimal_commas,
    with_point,
)
from chainrule.data._tables.cell_column import Block
from chainrule.data._tables.first_rows import find_layout, is_header, is_units
from chainrule.data._text import LONGEST_LINE, check_file

_FIRST_PARQUET_ROWS, _PARQUET_ROWS = 64, 1 << 14  # read together: more the smaller they prove
_PARQUET_BYTES = 1 << 26  # of these
_MOST_EQUAL_CHARACTERS = 1 << 28  # that a small Parquet file may unpack to
_WIDEST = 1000  # columns: of more, too few rows are read together for a column at a time to be faster
_CELLS = 1 << 16  # held as Python strings at a time
_CHARACTERS = 1 << 24  # of these, up to the last row
_MOST_EQUAL_CELLS = 1 << 24  # that a small Parquet file may announce: columns that repeat are packed well
_CELLS_OF_A_BYTE = 64  # of a Parquet file, which may announce any number


class TableFile:
    """The names of the columns of a table, and its rows as often as they are asked for.

    `is_header` tells whether the first row is a header, and `find_layout` what stands before it. A row of units under
    the header is left out. Cells lose the white space around them; empty lines are passed over, and so are rows of
    empty cells at the end.
    """

    def __init__(self, path: str | Path, *, header: bool | None = None):
        self.path = check_file(path)
        self._parquet = self.path.name.lower().endswith(".parquet")
        if self._parquet:
            self.names, self.header, self.units = list(self._read_parquet("read_parquet_schema")), True, False
            self._before = 0
            if len(self.names) > MOST_COLUMNS:
                raise ValueError(
                    f"{path}: expected at most {MOST_COLUMNS:,} columns, got {len(self.names):,}: "
                    "keep those that matter"
                )
            self._check_parquet()
            return
        self._file = DelimitedFile(path)
        layout = find_layout(self._file)
        self._delimiter, self._before = layout.delimiter, layout.before
        if not layout.rows:
            with closing(self._lines()) as lines:
                first = next(lines, None)  # raises where it cannot be read
            assert first is None
            raise ValueError(f"{self.path}: expected rows, got nothing but empty lines")
        cells = layout.cells
        self.header = is_header(cells) if header is None else header
        self.units = self.header and len(cells) > 1 and is_units(cells[1:])
        self._named_rows = int(self.header) + int(self.units)
        self._lines_of_header = layout.rows[self._named_rows - 1][0] if self._named_rows else self._before
        numbered = [f"column{number}" for number in range(1, len(cells[0]) + 1)]
        self.names = [cell or name for cell, name in zip(cells[0], numbered, strict=True)] if self.header else numbered
        if len(set(self.names)) < len(self.names):
            twice = Counter(self.names).most_common(1)[0][0]
            raise ValueError(f"{self.path}: the header has {twice!r} twice: rename one, or say --header no")

    def left_out(self) -> str:
        """Describe the lines before the rows that are neither header nor data; empty without such lines."""
        notes = []
        if self._before:
            notes.append(f"{'line 1' if self._before == 1 else f'lines 1 to {self._before}'}, before the table")
        if self.units:
            notes.append(f"line {self._lines_of_header}, which gives units")
        return f"{self.path}: {' and '.join(notes)}: left out" if notes else ""

    def rows(self, *, empty_end: bool = False) -> Generator[Row, None, None]:
        """Yield the rows with the number of the line where each ends (for Parquet of the row), cells as text."""
        with closing(self._parquet_rows() if self._parquet else self._lines()) as rows:
            empty: list[int] = []  # lines of rows of empty cells, which at the end are left out
            for line, cells in self._checked(rows if self._parquet else islice(rows, self._named_rows, None)):
                if not any(cells) and not empty_end:
                    empty.append(line)
                    self._check_empty(len(empty), line)
                    continue
                yield from ((before, [""] * len(cells)) for before in empty)
                empty.clear()
                yield line, cells

    def blocks(self) -> Generator[Block, None, None]:
        """Yield the same rows in blocks, of any size; where polars is installed, CSV is read by it."""
        empty: list[Block] = []  # rows of empty cells, which at the end are left out
        for block in self._all_blocks():
            filled = _filled(block)
            if filled:
                yield from empty
                empty.clear()
                yield block.part(slice(filled))
            if filled < len(block):
                empty.append(block.part(slice(filled, len(block))))
                self._check_empty(sum(map(len, empty)), block.lines[-1])

    def _check_empty(self, rows: int, line: int) -> None:
        """Refuse too many rows of empty cells, which are held until one that is not empty follows."""
        if rows > MOST_EMPTY:
            raise ValueError(f"{self.path} line {line}: {MOST_EMPTY:,} rows of empty cells follow another: remove them")

    def _all_blocks(self) -> Iterator[Block]:
        if self._parquet or not 2 <= len(self.names) <= _WIDEST or not reads_quickly():
            yield from self._listed(self.rows())
            return
        from chainrule.data._tables.quick_csv import quick_blocks

        def exact(file: BinaryIO, before: int) -> Iterator[Block]:
            with closing(self._lines(file, before)) as rows:
                yield from self._listed(self._checked(rows))

        with self._file.open() as file:
            header = [file.readline(LONGEST_LINE) for _ in range(self._lines_of_header)]
            if any(b"\r" in line.removesuffix(b"\n").removesuffix(b"\r") for line in header):
                yield from self._listed(self.rows())  # lines end in another way
            else:
                yield from quick_blocks(file, self._delimiter, len(self.names), len(header), exact)

    def _checked(self, rows: Iterator[Row]) -> Iterator[Row]:
        for line, cells in rows:
            if len(cells) != len(self.names):
                remedy = (
                    "put a cell that has the separator in it into double quotes"
                    if len(cells) > len(self.names)
                    else "write the missing ones, which may be empty, with their separators"
                )
                raise ValueError(
                    f"{self.path} line {line}: expected {len(self.names)} cells, got {len(cells)}: {remedy}"
                )
            yield line, cells

    def _listed(self, rows: Iterator[Row]) -> Iterator[Block]:
        most, block, characters = max(_CELLS // len(self.names), 1), list[Row](), 0
        for row in rows:
            block.append(row)
            characters += sum(map(len, row[1]))
            if len(block) == most or characters >= _CHARACTERS:
                yield Block.of_rows(block)
                block, characters = [], 0
        if block:
            yield Block.of_rows(block)

    def _lines(self, file: BinaryIO | None = None, before: int = 0) -> Generator[Row, None, None]:
        """Yield the rows of the file, or of a stretch of it behind the first `before` lines."""
        with closing(self._file.quoted_rows(self._delimiter, file, before if file else self._before)) as rows:
            if may_have_decimal_commas(self._delimiter):
                yield from ((line, list(map(with_point, cells))) for line, cells in rows)
            else:
                yield from rows

    def _check_parquet(self) -> None:
        """Refuse a file that announces more than its bytes can hold, before it is unpacked."""
        polars = _polars()
        rows = int(self._unpacked(self._read_parquet("scan_parquet").select(polars.len())).item())
        if rows * len(self.names) > max(_MOST_EQUAL_CELLS, _CELLS_OF_A_BYTE * self.path.stat().st_size):
            raise ValueError(
                f"{self.path}: announces {rows:,} rows in {self.path.stat().st_size:,} bytes, so that nearly all are "
                "equal: keep some of them"
            )

    def _read_parquet(self, function: str) -> Any:
        return self._read(partial(getattr(_polars(), function), self.path))

    def _unpacked(self, frame: Any) -> Any:
        return self._read(frame.collect)

    def _read(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (_polars().exceptions.PolarsError, OSError) as error:
            first = str(error).partition("\n")[0]
            raise ValueError(f"{self.path}: expected a Parquet file ({first}): restore it from a copy") from None

    def _parquet_rows(self) -> Generator[Row, None, None]:
        """Yield the rows; nanoseconds of times are kept, which Python would cut to microseconds."""
        number, polars = 0, _polars()
        most = max(_MOST_EQUAL_CHARACTERS, _CELLS_OF_A_BYTE * self.path.stat().st_size)
        columns = polars.selectors
        exact = [
            columns.datetime("ns").dt.to_string("%Y-%m-%d %H:%M:%S%.f"),
            columns.time().dt.to_string("%H:%M:%S%.f"),
            columns.duration("ns").dt.to_string("iso"),
        ]
        scanned, rows, characters = self._read_parquet("scan_parquet").with_columns(exact), _FIRST_PARQUET_ROWS, 0
        while len(frame := self._unpacked(scanned.slice(number, rows))):
            rows = max(1, min(2 * rows, _PARQUET_ROWS, rows * _PARQUET_BYTES // max(1, frame.estimated_size())))
            for values in frame.iter_rows():
                number += 1
                cells = ["" if value is None else str(value).strip() for value in values]
                lengths = list(map(len, cells))
                characters += sum(lengths)
                if characters > most:
                    raise ValueError(
                        f"{self.path}: more than {most:,} characters in {self.path.stat().st_size:,} bytes, so that "
                        "nearly all are repeated: keep some of them"
                    )
                if max(lengths) > LARGEST_CELL:
                    raise ValueError(
                        f"{self.path} row {number}: expected at most {LARGEST_CELL:,} characters in a cell, got more: "
                        "shorten it"
                    )
                yield number, cells


def _filled(block: Block) -> int:
    """Return the number of rows up to the last one that is not empty."""
    rows = len(block)
    while rows and not any(column.cell(rows - 1) for column in block.columns):
        before = rows // 2  # cell by cell, many empty rows would take long
        rest = block.part(slice(before, rows))
        empty = all(sum(count for _, count in column.counts(("",))) == len(rest) for column in rest.columns)
        rows = before if empty else rows - 1
    return rows


def reads_quickly() -> bool:
    """Return whether polars is there to read CSV with."""
    return find_spec("polars") is not None


def _polars() -> Any:
    try:
        return import_module("polars")
    except ImportError:
        raise ValueError("Parquet is read with polars, which is not installed: pip install polars") from None
