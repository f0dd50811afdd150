"""Text files of lines and cells: UTF-8, compressed or not, with errors that name the line."""

import csv
import hashlib
import io
import re
from codecs import BOM_UTF8
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from chainrule.option_error import OptionError, option
from chainrule_app.readers.origin import STDIN, ByteSource, Origin
from chainrule_app.readers.sources import check_file, refuse_utf16
from chainrule_app.readers.text import LONGEST_LINE, NO_UTF8, name_of, open_bytes, raw_lines

Row = tuple[int, list[str]]
MOST_COLUMNS = 1 << 14
_BEGINNING = 1 << 20  # bytes that tell how a file is laid out, and the rest of a line


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

    def quoted_rows(self, delimiter: str, before: int = 0) -> Generator[Row, None, None]:
        """Yield the stripped cells of each row, where double quotes may enclose a cell, with the row's last line."""
        from chainrule_app.readers.csv_records import read_records

        with self.open() as file:
            for records in read_records(file, delimiter, self.origin, before=before):
                yield from ((line, self._checked(line, cells)) for line, cells in records.rows())
                if records.error is not None:
                    raise records.error

    def beginning(self) -> "Beginning":
        """Read the first lines."""
        with self.open() as file:
            content = file.read(_BEGINNING)
            whole = len(content) < _BEGINNING
            refuse_utf16(content, self.name)
            content += b"" if whole else file.readline(LONGEST_LINE)
            return Beginning(content, self.origin, whole, isinstance(getattr(file, "raw", None), io.FileIO))

    @contextmanager
    def open_behind(self, beginning: "Beginning") -> "Iterator[Continued]":
        """Open the file for reading its bytes, the beginning of which is known; one that is all known stays closed."""
        with nullcontext(io.BytesIO()) if beginning.whole else self.open() as file:
            if not beginning.whole:
                file.seek(len(beginning.content)) if file.seekable() else file.read(len(beginning.content))
            yield Continued(beginning.content, file)

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open the file for reading bytes, unpacked where it is compressed."""
        return open_bytes(self._source)

    def _checked(self, line: int, cells: list[str]) -> list[str]:
        check_width(self.origin.at(line), cells)
        return cells

    def _decoded(self, file: BinaryIO) -> Iterator[tuple[int, str]]:
        for number, raw in raw_lines(file, self.name):
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                if number == 1:
                    refuse_utf16(raw, self.name)
                raise ValueError(f"{self.origin.at(number)}: {NO_UTF8}") from None
            if "\0" in text:
                raise ValueError(f"{self.origin.at(number)}: expected text, got a NUL byte: correct the file")
            yield number, text.removeprefix("\ufeff") if number == 1 else text


@dataclass(frozen=True)
class Beginning:
    """First lines of a file of lines or cells."""

    content: bytes
    origin: Origin
    whole: bool  # whether these are all lines
    plain: bool  # whether they are the bytes of a file, not of a compressed one or of several

    def rows(self, delimiter: str, before: int, most: int, size: int | None = None) -> list[Row]:
        """Return the first rows behind some lines, up to one that cannot be read: reading the file says what is wrong.

        `size` bytes are looked at.
        """
        from chainrule_app.readers.csv_records import cut_records, end_of_lines

        content, whole = self.content, self.whole
        if size is not None and len(content) > size:
            content, whole = content[: content.find(b"\n", size) + 1 or None], False
        content = content.removeprefix(BOM_UTF8)
        content = content[end_of_lines(content, before) :]
        records, _, _ = cut_records(content, delimiter, self.origin, before, last=whole)
        rows = list(islice(records.rows(), most))
        for line, cells in rows[:1]:
            check_width(self.origin.at(line), cells)
        return rows

    def lines(self, most: int) -> list[str]:
        """Return the first lines without blanks at their ends."""
        text = self.content.removeprefix(BOM_UTF8).decode(errors="replace")
        lines = re.split("\r\n|\r|\n", text, maxsplit=most)
        return [line.strip() for line in (lines if lines[-1] else lines[:-1])[:most]]


class Continued:
    """Bytes that were read before, and an open file behind them, which are digested as they are read."""

    def __init__(self, content: bytes, file: BinaryIO):
        self._content, self._file = content, file
        self.size, self.digest = 0, hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Read some bytes; none at the end alone."""
        content, self._content = self._content or self._file.read(size), b""
        return self._digested(content)

    def readline(self, most: int) -> bytes:
        """Read the rest of a line."""
        return self._digested(self._file.readline(most))

    def _digested(self, content: bytes) -> bytes:
        self.size += len(content)
        self.digest.update(content)
        return content


def check_width(where: str, cells: Sequence[str]) -> None:
    """Refuse a row of too many cells."""
    if len(cells) > MOST_COLUMNS:
        raise ValueError(
            f"{where}: expected at most {MOST_COLUMNS:,} columns, got {len(cells):,}: keep those that matter"
        )


def parse_types(text: str) -> dict[str, str]:
    """Return the kinds of columns that a user named; a pair with a comma in it stands in double quotes."""
    try:
        cells = next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error:
        raise OptionError("types", f"expected each double quote to be closed, got {text!r:.80}") from None
    pairs = [cell.rpartition("=") for cell in cells if cell.strip()]
    for name, _, kind in pairs:
        if not name.strip() or not kind.strip():
            raise OptionError(
                "types",
                f"expected COLUMN=KIND, separated by commas, got {name or kind!r}",
                "enclose a pair that contains a comma in double quotes",
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
