"""Text files of lines and cells: UTF-8, compressed or not, with errors that name the line."""

import csv
import io
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from chainrule.option_error import OptionError, option
from chainrule_app.readers.origin import ByteSource, Origin
from chainrule_app.readers.text import STDIN, check_file, name_of, open_bytes, raw_lines, refuse_utf16

Row = tuple[int, list[str]]
MOST_COLUMNS = 1 << 12
LARGEST_CELL = 1 << 22  # characters


class DelimitedFile:
    r"""A file of lines, or of rows of cells, which can be read again and again.

    A byte order mark at the beginning is passed over. Lines end in ``\n`` or ``\r\n``, or all in ``\r``.

    Its generators hold the file open until they end or are closed: a reader that may raise, or stop before the end,
    closes them (`contextlib.closing`).
    """

    def __init__(self, source: str | Path | ByteSource):
        self._source = source if isinstance(source, ByteSource) or str(source) == STDIN else check_file(source)
        self.origin = Origin(name_of(source)) if not isinstance(source, ByteSource) else source.origin
        self.name = str(self.origin)  # for errors

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
                f"{self.origin.at(last)}: no row of a table: {reason}: write a double quote inside of a cell twice, "
                "and put the whole cell into double quotes"
            )
        return ValueError(
            f"{self.origin.at(first)}: no row of a table: a double quote opens a cell that goes on to line {last} "
            f"({reason}): close it, or write a quote that belongs to the text twice and the whole cell in double quotes"
        )

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open the file for reading bytes, unpacked where it is compressed."""
        return open_bytes(self._source)

    def _checked(self, line: int, cells: list[str]) -> list[str]:
        if len(cells) > MOST_COLUMNS:
            raise ValueError(
                f"{self.origin.at(line)}: expected at most {MOST_COLUMNS:,} columns, got {len(cells):,}: "
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
                    f"{self.origin.at(number)}: expected UTF-8, got other bytes: convert the file, from Latin-1 for "
                    "example with iconv -f latin1 -t utf-8"
                ) from None
            if "\0" in text:
                raise ValueError(f"{self.origin.at(number)}: expected text, got a NUL byte: correct the file")
            yield number, text.removeprefix("\ufeff") if number == 1 else text

    def _any_lines(self, file: BinaryIO) -> Iterator[str]:
        r"""Lines with their ends, which may be a lone ``\r`` too."""
        for _, text in self._decoded(file):
            if "\r" in text:
                yield from io.StringIO(text, newline="")
            else:
                yield text


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
