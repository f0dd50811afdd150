"""Text files of lines and cells: UTF-8, compressed or not, with errors that name the line."""

import csv
import io
import re
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

from chainrule.option_error import OptionError, option
from chainrule_app.readers.packed import open_unpacked
from chainrule_app.readers.sources import plain_name
from chainrule_app.readers.text import LONGEST_LINE, STDIN, check_file, name_of, raw_lines, refuse_utf16

DELIMITERS = ",;\t|"
Row = tuple[int, list[str]]
GROUPING = ". '\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"  # between groups of three digits of such a number
DECIMAL_COMMA = re.compile(f"[+-]?[0-9]{{1,3}}(?:[{GROUPING}]?[0-9]{{3}})*,[0-9]+")  # 1.234,5
MOST_COLUMNS = 1 << 12
LARGEST_CELL = 1 << 22  # characters
_ROWS_TO_COMPARE = 20
_BEGINNING = 1 << 16  # bytes that these rows are looked for in, and the rest of a line


class DelimitedFile:
    r"""A file of lines, or of rows of cells, which can be read again and again.

    A byte order mark at the beginning is passed over. Lines end in ``\n`` or ``\r\n``, or all in ``\r``.

    Its generators hold the file open until they end or are closed: a reader that may raise, or stop before the end,
    closes them (`contextlib.closing`).
    """

    def __init__(self, path: str | Path):
        self._path = None if str(path) == STDIN else check_file(path)
        self.name = name_of(path)  # of the file, for errors

    def lines(self) -> Generator[tuple[int, str], None, None]:
        """Yield the lines without their ends, with their numbers from 1, as soon as they are there."""
        with self.open() as file:
            for number, text in self._decoded(file):
                if number == 1 and not text.endswith("\n"):  # the whole file: lines may end in a lone carriage return
                    yield from enumerate(text.removesuffix("\r").split("\r"), 1)
                    return
                yield number, text.removesuffix("\n").removesuffix("\r")

    def plain_rows(self, delimiter: str = "\t") -> Generator[Row, None, None]:
        """Return the cells of each line that is not empty, where a quote is a character like any other."""
        return ((line, self._checked(line, text.split(delimiter))) for line, text in self.lines() if text)

    def quoted_rows(self, delimiter: str, file: BinaryIO | None = None, before: int = 0) -> Generator[Row, None, None]:
        """Yield the stripped cells of each row, where double quotes may enclose a cell, with the row's last line."""
        with self.open() if file is None else file as raw:
            lines = islice(self._any_lines(raw), before, None)
            reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
            ended, width = before, 0
            while True:
                began = ended + 1
                try:
                    cells = next(reader, None)
                except csv.Error as error:
                    raise self._no_row(began, before + reader.line_num, str(error)) from None
                if cells is None:
                    return
                ended = before + reader.line_num
                cells = self._checked(ended, cells)
                if ended - began > 1 and any(_has_rows(cell, delimiter, width or len(cells)) for cell in cells):
                    raise self._no_row(began, ended, "every line of it looks like a row")
                cells = [cell.strip() for cell in cells]
                if any(cells) or len(cells) > 1:
                    width = len(cells)
                    yield ended, cells

    def _no_row(self, first: int, last: int, reason: str) -> ValueError:
        """Return the error for lines that are no row of a table."""
        if first == last:
            return ValueError(
                f"{self.name} line {last}: no row of a table: {reason}: write a double quote inside of a cell twice, "
                "and put the whole cell into double quotes"
            )
        return ValueError(
            f"{self.name} line {first}: no row of a table: a double quote opens a cell that goes on to line {last} "
            f"({reason}): close it, or write a quote that belongs to the text twice and the whole cell in double quotes"
        )

    def find_delimiter(self, before: int = 0) -> str:
        """Choose the delimiter that gives most rows the first row's cell count (at least 2).

        Ties go to the fewest other delimiters inside cells, decimal commas apart, then to the most cells.
        A file named .tsv has tabs where its first row has one. Where no delimiter cuts the first row, it is the most
        frequent one of its line.
        """
        with self.open() as file:
            first_lines = (file.read(_BEGINNING) + file.readline(LONGEST_LINE)).split(b"\n")
        beginning = b"\n".join(first_lines[before:])
        rows_by_delimiter = {delimiter: self._first_rows(beginning, delimiter) for delimiter in DELIMITERS}
        cutting = [delimiter for delimiter, rows in rows_by_delimiter.items() if rows and len(rows[0]) > 1]
        if "\t" in cutting and plain_name(self.name).endswith(".tsv"):
            return "\t"
        if cutting:
            return max(cutting, key=lambda one: _fitness(rows_by_delimiter[one]))
        with closing(self.lines()) as lines:
            first = next((text for _, text in islice(lines, before, None) if text.strip()), "")
        return max(DELIMITERS, key=first.count)

    def _first_rows(self, beginning: bytes, delimiter: str) -> list[list[str]]:
        """Return the cells of the first rows, up to one that cannot be read."""
        sample: list[list[str]] = []
        with closing(self.quoted_rows(delimiter, io.BytesIO(beginning))) as rows, suppress(ValueError):
            sample.extend(cells for _, cells in islice(rows, _ROWS_TO_COMPARE))
        return sample

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open the file for reading bytes, unpacked where it is compressed."""
        if self._path is None:
            return nullcontext(sys.stdin.buffer)
        return open_unpacked(self._path)

    def _checked(self, line: int, cells: list[str]) -> list[str]:
        if len(cells) > MOST_COLUMNS:
            raise ValueError(
                f"{self.name} line {line}: expected at most {MOST_COLUMNS:,} columns, got {len(cells):,}: "
                "keep those that matter"
            )
        return cells

    def _decoded(self, file: BinaryIO) -> Iterator[tuple[int, str]]:
        for number, raw in raw_lines(file, self.name):
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                if number == 1:
                    refuse_utf16(raw, self.name)
                raise ValueError(
                    f"{self.name} line {number}: expected UTF-8, got other bytes: convert the file, from Latin-1 for "
                    "example with iconv -f latin1 -t utf-8"
                ) from None
            if "\0" in text:
                raise ValueError(f"{self.name} line {number}: expected text, got a NUL byte: correct the file")
            yield number, text.removeprefix("\ufeff") if number == 1 else text

    def _any_lines(self, file: BinaryIO) -> Iterator[str]:
        r"""Lines with their ends, which may be a lone ``\r`` too."""
        for _, text in self._decoded(file):
            if "\r" in text:
                yield from io.StringIO(text, newline="")
            else:
                yield text


def may_have_decimal_commas(delimiter: str) -> bool:
    """Return whether numbers of a file that is cut so may have decimal commas; elsewhere 1,234 may be a thousand."""
    return delimiter == ";"


def with_point(cell: str) -> str:
    """Return a number with a decimal comma as one with a point, its digits ungrouped; any other cell as it is."""
    if "," not in cell or not DECIMAL_COMMA.fullmatch(cell):
        return cell
    whole, _, rest = cell.partition(",")
    return "".join(character for character in whole if character not in GROUPING) + "." + rest


def _fitness(rows: list[list[str]]) -> tuple[int, float, int]:
    """Return how many rows are as wide as the first, the share of clean cells, and the width of the first row."""
    width, cells = len(rows[0]), list(chain(*rows))
    clean = sum(not any(mark in cell for mark in DELIMITERS) or bool(DECIMAL_COMMA.fullmatch(cell)) for cell in cells)
    return sum(len(row) == width for row in rows), clean / len(cells), width


def _has_rows(cell: str, delimiter: str, width: int) -> bool:
    """Return whether the lines inside a cell (two, if rows have two cells) look like rows, the sign of a lost quote."""
    inner = [line for line in cell.split("\n")[1:-1] if line.strip()]
    return (
        width > 1
        and len(inner) >= 1 + (width == 2)
        and all(line.count(delimiter) == width - 1 and f"{delimiter} " not in line for line in inner)
    )


csv.field_size_limit(LARGEST_CELL)


def parse_types(text: str) -> dict[str, str]:
    """Return the kinds of columns that a user named; a pair with a comma in it stands in double quotes."""
    try:
        cells = next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error:
        raise OptionError("types", f"expected pairs of double quotes, got {text!r:.80}") from None
    pairs = [cell.rpartition("=") for cell in cells if cell.strip()]
    for name, _, kind in pairs:
        if not name.strip() or not kind.strip():
            raise OptionError(
                "types",
                f"expected COLUMN=KIND, separated by commas, got {name or kind!r}",
                "put a pair with a comma in it into double quotes",
            )
    return {name.strip(): kind.strip() for name, _, kind in pairs}


def types_option(types: Mapping[str, str]) -> str:
    """Refer to the option that names these kinds, in the text of a `UserError`.

    >>> print(OptionError("min_count", "too small", types_option({"age": "real", "price (€)": "skip"})))
    min_count: too small: types="age=real,price (€)=skip"
    """
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow([f"{name}={kind}" for name, kind in types.items()])
    return option("types", written.getvalue())
