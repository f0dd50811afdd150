"""A table on disk, CSV or Parquet, row by row."""

import csv
import gzip
import io
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from operator import eq
from pathlib import Path
from typing import Any, BinaryIO

from chainrule.blocks import in_blocks
from chainrule.data.delimited import DECIMAL_COMMA, DelimitedFile, Row, may_have_decimal_commas, with_point
from chainrule.data.tables.cell_column import MISSING, Block, as_integer, as_number
from chainrule.data.text import check_file

_PARQUET_ROWS = 1 << 14
_LOOKED_AT = 1000  # rows, to tell names from data that happen to be words
_WIDEST = 1000  # columns: of more, too few rows are read together for a column at a time to be faster
_CELLS = 1 << 16  # held as Python strings at a time


class TableFile:
    """The names of the columns of a table, and its rows as often as they are asked for.

    The first row is a header if none of its cells is a number and none but the first is missing; where two are equal,
    if none of them comes again in its column.
    Cells lose the white space around them; empty lines are passed over.

    Args:
        path: a file of values separated by commas, semicolons, tabs or bars, compressed by gzip or not, or Parquet.
        header: whether there is one; None looks.

    Attributes:
        names: of the columns: the header, or column1, column2, ...
        header: whether there is one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is empty or no table, or Parquet cannot be read here.
    """

    def __init__(self, path: str | Path, *, header: bool | None = None):
        self.path = check_file(path)
        self._parquet = self.path.name.lower().endswith(".parquet")
        if self._parquet:
            self.names, self.header = list(self._read_parquet("read_parquet_schema")), True
            return
        self._file = DelimitedFile(path)
        self._delimiter = self._file.find_delimiter()
        with closing(self._lines()) as lines:
            first = next(lines, None)
        if first is None:
            raise ValueError(f"{self.path}: expected rows, got nothing but empty lines")
        cells = first[1]
        named = cells[1:] if cells[0] == "" else cells  # pandas leaves the name of its index out
        looks = bool(named) and not any(cell in MISSING or _is_number(cell) for cell in named)
        if looks and len(set(cells)) < len(cells):  # a name given twice is refused below, data are not
            with closing(self._lines()) as lines:
                looks = not any(any(map(eq, cells, row)) for _, row in islice(lines, 1, _LOOKED_AT))
        self.header = looks if header is None else header
        self._lines_of_header = first[0] if self.header else 0
        numbered = [f"column{number}" for number in range(1, len(cells) + 1)]
        self.names = [cell or name for cell, name in zip(cells, numbered, strict=True)] if self.header else numbered
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(f"{self.path}: the header has {twice!r} twice: rename one, or say --header no")

    def rows(self) -> Generator[Row, None, None]:
        """The rows with the number of the line where each ends (for Parquet of the row), cells as text.

        Raises:
            ValueError: a row has more or fewer cells than there are columns, or the file is no UTF-8.
        """
        with closing(self._parquet_rows() if self._parquet else self._lines()) as rows:
            yield from self._checked(rows if self._parquet else islice(rows, int(self.header), None))

    def blocks(self) -> Generator[Block, None, None]:
        """The same rows in blocks, of any size; where polars is installed, CSV is read by it.

        Raises:
            ValueError: as `rows` does, with the same messages.
        """
        if self._parquet or not 2 <= len(self.names) <= _WIDEST or not reads_quickly():
            yield from self._listed(self.rows())
            return
        from chainrule.data.tables.quick_csv import quick_blocks

        def exact(file: BinaryIO, before: int) -> Iterator[Block]:
            with closing(self._lines(file, before)) as rows:
                yield from self._listed(self._checked(rows))

        with self._file.open() as file:
            header = [file.readline() for _ in range(self._lines_of_header)]
            if any(b"\r" in line.removesuffix(b"\n").removesuffix(b"\r") for line in header):
                yield from self._listed(self.rows())  # lines end in another way
            else:
                yield from quick_blocks(file, self._delimiter, len(self.names), len(header), exact)

    def _checked(self, rows: Iterator[Row]) -> Iterator[Row]:
        for line, cells in rows:
            if len(cells) != len(self.names):
                raise ValueError(
                    f"{self.path} line {line}: expected {len(self.names)} cells, got {len(cells)}: "
                    "put a cell that has the separator in it into double quotes"
                )
            yield line, cells

    def _listed(self, rows: Iterator[Row]) -> Iterator[Block]:
        for block in in_blocks(rows, max(_CELLS // len(self.names), 1)):
            yield Block.of_rows(block)

    def _lines(self, file: BinaryIO | None = None, before: int = 0) -> Generator[Row, None, None]:
        """The rows of the file, or of a stretch of it behind the first `before` lines."""
        with closing(self._file.quoted_rows(self._delimiter, file, before)) as rows:
            if may_have_decimal_commas(self._delimiter):
                yield from ((line, list(map(with_point, cells))) for line, cells in rows)
            else:
                yield from rows

    def _read_parquet(self, function: str) -> Any:
        polars = _polars()
        try:
            return getattr(polars, function)(self.path)
        except (polars.exceptions.PolarsError, OSError) as error:
            first = str(error).partition("\n")[0]
            raise ValueError(f"{self.path}: expected a Parquet file ({first}): restore it from a copy") from None

    def _parquet_rows(self) -> Generator[Row, None, None]:
        number = 0
        for frame in self._read_parquet("read_parquet").iter_slices(_PARQUET_ROWS):
            for values in frame.iter_rows():
                number += 1
                yield number, ["" if value is None else str(value).strip() for value in values]


def write_rows(file: Any, names: Sequence[str] | None, rows: Iterator[list[str]]) -> None:
    """Write rows as CSV into an open text file; a header where there are names."""
    writer = csv.writer(file, lineterminator="\n")
    if names is not None:
        writer.writerow(names)
    writer.writerows(rows)


def _is_number(cell: str) -> bool:
    """Whether a cell is a number that can be read, or one with a decimal comma: names are neither."""
    return as_number(cell) is not None or DECIMAL_COMMA.fullmatch(cell) is not None


def table_bytes(name: str, columns: Mapping[str, str], rows: Iterator[list[str]], *, header: bool) -> bytes:
    """Rows as a file: Parquet or CSV, compressed or not, as its name says.

    Args:
        name: of the file.
        columns: names and kinds, categorical, integer, real or skip.
        rows: cells; empty where a value is missing.
        header: whether CSV begins with the names.

    Raises:
        ValueError: polars is not installed, which writes Parquet.
    """
    if name.lower().endswith(".parquet"):
        polars = _polars()
        cells = list(zip(*rows, strict=True)) or [()] * len(columns)
        frame = polars.DataFrame(
            [_series(polars, name, kind, column) for (name, kind), column in zip(columns.items(), cells, strict=True)]
        )
        content = io.BytesIO()
        frame.write_parquet(content)
        return content.getvalue()
    text = io.StringIO()
    write_rows(text, list(columns) if header else None, rows)
    raw = text.getvalue().encode("utf-8", "replace")
    return gzip.compress(raw) if name.lower().endswith(".gz") else raw


def _series(polars: Any, name: str, kind: str, cells: Sequence[str]) -> Any:
    """A column of Parquet; of one that was left out of training, integers where all cells are, else texts."""
    if kind == "skip":
        kind = "integer" if all(as_integer(cell) is not None for cell in cells if cell) else "categorical"
    if kind == "categorical":
        return polars.Series(name, [cell or None for cell in cells], dtype=polars.String)
    values = [float(cell) if cell else None for cell in cells]  # a known integer may be written as 12.0
    if kind == "integer":
        return polars.Series(name, [None if value is None else int(value) for value in values], dtype=polars.Int64)
    return polars.Series(name, values, dtype=polars.Float64)


def reads_quickly() -> bool:
    """Whether polars is there to read CSV with."""
    return find_spec("polars") is not None


def _polars() -> Any:
    try:
        return import_module("polars")
    except ImportError:
        raise ValueError("Parquet is read with polars, which is not installed: pip install polars") from None
