"""A table on disk, CSV or Parquet, row by row."""

import csv
import gzip
import io
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from chainrule.data.tables.cells import MISSING, as_number
from chainrule.data.text import check_file

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
_DELIMITERS = ",;\t|"
_PARQUET_ROWS = 1 << 14
Row = tuple[int, list[str]]


def is_table(path: str | Path) -> bool:
    """Whether the name of a file says that it is a table.

    >>> is_table("rows.csv"), is_table("rows.CSV.gz"), is_table("rows.txt")
    (True, True, False)
    """
    return Path(path).name.lower().endswith(SUFFIXES)


class TableFile:
    """The names of the columns of a table, and its rows as often as they are asked for.

    The first row is a header if all of its cells are different, none is a number and none but the first is missing.
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
        self._delimiter = self._find_delimiter()
        first = next(self._lines(), None)
        if first is None:
            raise ValueError(f"{self.path}: expected rows, got nothing but empty lines")
        cells = first[1]
        named = cells[1:] if cells[0] == "" else cells  # pandas leaves the name of its index out
        looks = bool(named) and len(set(cells)) == len(cells)
        looks = looks and not any(cell in MISSING or as_number(cell) is not None for cell in named)
        self.header = looks if header is None else header
        numbered = [f"column{number}" for number in range(1, len(cells) + 1)]
        self.names = [cell or name for cell, name in zip(cells, numbered, strict=True)] if self.header else numbered
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(f"{self.path}: the header has {twice!r} twice: rename one, or say --header no")

    def rows(self) -> Iterator[Row]:
        """The rows with the number of the line where each ends (for Parquet of the row), cells as text.

        Raises:
            ValueError: a row has more or fewer cells than there are columns, or the file is no UTF-8.
        """
        lines = self._parquet_rows() if self._parquet else islice(self._lines(), int(self.header), None)
        for line, cells in lines:
            if len(cells) != len(self.names):
                raise ValueError(
                    f"{self.path} line {line}: expected {len(self.names)} cells, got {len(cells)}: "
                    "put a cell that has the separator in it into double quotes"
                )
            yield line, cells

    def _lines(self) -> Iterator[Row]:
        with self._open() as file:
            reader = csv.reader(file, delimiter=self._delimiter, skipinitialspace=True, strict=True)
            while True:
                try:
                    cells = next(reader, None)
                except csv.Error as error:
                    raise ValueError(f"{self.path} line {reader.line_num}: no row of a table: {error}") from None
                except UnicodeDecodeError:
                    line = reader.line_num + 1
                    raise ValueError(
                        f"{self.path}: expected UTF-8, got other bytes after line {line - 1}: convert the file"
                    ) from None
                except (OSError, EOFError) as error:
                    raise ValueError(f"{self.path}: cannot be read ({error}): restore it from a copy") from None
                if cells is None:
                    return
                cells = [cell.strip() for cell in cells]
                if any(cells) or len(cells) > 1:
                    yield reader.line_num, cells

    def _open(self) -> io.TextIOWrapper:
        raw = gzip.GzipFile(self.path) if self.path.suffix.lower() == ".gz" else self.path.open("rb")
        return io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")

    def _find_delimiter(self) -> str:
        """The one that is most frequent in the first line."""
        try:
            with self._open() as file:
                line = next((line for line in file if line.strip()), "")
        except UnicodeDecodeError:
            raise ValueError(f"{self.path}: expected UTF-8 text, got other bytes: convert the file") from None
        except (OSError, EOFError) as error:
            raise ValueError(f"{self.path}: cannot be read ({error}): restore it from a copy") from None
        return max(_DELIMITERS, key=line.count)

    def _read_parquet(self, function: str) -> Any:
        polars = _polars()
        try:
            return getattr(polars, function)(self.path)
        except (polars.exceptions.PolarsError, OSError) as error:
            first = str(error).partition("\n")[0]
            raise ValueError(f"{self.path}: expected a Parquet file ({first}): restore it from a copy") from None

    def _parquet_rows(self) -> Iterator[Row]:
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


def _polars() -> Any:
    try:
        return import_module("polars")
    except ImportError:
        raise ValueError(
            "Parquet is read with polars, which is not installed: pip install 'chainrule[tables]'"
        ) from None


csv.field_size_limit(min(sys.maxsize, 1 << 24))
