"""Rows of CSV: where they end, and which double quotes enclose cells.

A double quote opens a cell at its beginning, blanks apart, and a doubled one inside of such a cell belongs to the text,
as in Python's `csv`. Any other quote is a character like any other. What comes out is bytes that every reader of CSV
cuts into the same cells.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

import numpy as np
import numpy.typing as npt

from chainrule_app.readers.origin import Origin
from chainrule_app.readers.sources import refuse_utf16
from chainrule_app.readers.text import LONGEST_LINE, NO_UTF8

STRETCH = 1 << 23  # bytes read at a time
LARGEST_ROW = 1 << 24  # bytes, which are held in memory
_LINE_END = re.compile(rb"\r\n|\n|\r")
_QUOTE, _LINE_FEED, _RETURN, _BLANK = b'"\n\r '
_MARKS = bytes({*range(1, 32)} - {*b"\t\n\r"})
_FEWEST_INNER_ENDS = 2  # line feeds of a cell that may be rows after a lost quote

Positions = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Row = tuple[int, list[str]]


@dataclass(frozen=True)
class Records:
    """Some rows in succession."""

    content: Bytes  # each row ends with a line feed, and none is empty
    ends: Positions  # (N,) of these line feeds
    lines: Positions  # (N,) the number of the line where each row ends
    delimiter: int
    quoted: bool  # whether cells may be in double quotes
    mark: str  # stands for a double quote of an unquoted cell; empty where there is none
    error: ValueError | None  # about what follows these rows

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def starts(self) -> Positions:
        """(N,) where each row begins."""
        return np.concatenate([[0], self.ends + 1])[: len(self)].astype(np.int64)

    def rows(self) -> Iterator[Row]:
        """Yield the stripped cells of each row with its line; rows of one empty cell are left out."""
        delimiter = chr(self.delimiter)
        text = re.escape(delimiter)
        cell = re.compile(f'(?:^|{text})(?:"((?:[^"]|"")*)"|([^{text}]*))', re.DOTALL)
        content = self.content.tobytes()
        for start, end, line in zip(self.starts.tolist(), self.ends.tolist(), self.lines.tolist(), strict=True):
            row = content[start:end].decode().removesuffix("\r")
            if self.quoted and '"' in row:
                cells = [(quoted.replace('""', '"') or plain).strip() for quoted, plain in cell.findall(row)]
            else:
                cells = list(map(str.strip, row.split(delimiter)))
            if self.mark:
                cells = [own.replace(self.mark, '"') for own in cells]
            if len(cells) > 1 or cells[0]:
                yield line, cells

    def of_width(self, width: int, where: Origin) -> "Records":
        """Return the rows up to the first one of more or fewer cells, and the error about it."""
        cuts = self.content == self.delimiter
        count = np.count_nonzero(cuts)
        if self.quoted and count:
            quotes = np.flatnonzero(self.content == _QUOTE)
            count -= int(np.add.reduceat(cuts, quotes, dtype=np.int64)[::2].sum()) if len(quotes) else 0
        if count == (width - 1) * len(self):
            return self
        return self.regular(width, where)

    def regular(self, width: int, where: Origin) -> "Records":
        """Return the rows of a width, without lines of blanks, up to a row of another width."""
        cuts = self.content == self.delimiter
        if self.quoted:
            cuts &= np.bitwise_xor.accumulate((self.content == _QUOTE).view(np.uint8)) == 0
        starts = self.starts
        cells = np.add.reduceat(cuts, starts, dtype=np.int64) + 1
        odd = np.flatnonzero(cells != width)
        blank = [row for row in odd[cells[odd] == 1].tolist() if not self._bytes(row).strip()]
        bad = np.setdiff1d(odd, blank)
        records = (
            self if not len(bad) else self.first(int(bad[0]), _wrong_width(self, int(bad[0]), width, cells, where))
        )
        return records._without([row for row in blank if row < len(records)])

    def first(self, count: int, error: ValueError | None) -> "Records":
        """Return the first rows, and an error about the next one."""
        end = int(self.ends[count - 1]) + 1 if count else 0
        return replace(self, content=self.content[:end], ends=self.ends[:count], lines=self.lines[:count], error=error)

    def _bytes(self, row: int) -> bytes:
        return self.content[self.starts[row] : self.ends[row]].tobytes()

    def _without(self, rows: list[int]) -> "Records":
        if not rows:
            return self
        starts, kept = self.starts, np.ones(len(self), dtype=np.bool_)
        kept[rows] = False
        gone = np.concatenate([np.arange(starts[row], self.ends[row] + 1) for row in rows])
        content, ends = _deleted(self.content, self.ends[kept], gone)
        return replace(self, content=content, ends=ends, lines=self.lines[kept])


def _wrong_width(records: Records, row: int, width: int, cells: Positions, where: Origin) -> ValueError:
    remedy = (
        "put a cell that contains the separator into double quotes"
        if cells[row] > width
        else "add the separators of the missing cells, which may be empty"
    )
    return ValueError(f"{where.at(int(records.lines[row]))}: expected {width} cells, got {cells[row]}: {remedy}")


class ByteReader(Protocol):
    """What is read of a file."""

    def read(self, size: int, /) -> bytes: ...
    def readline(self, most: int, /) -> bytes: ...


def read_records(
    file: ByteReader, delimiter: str, where: Origin, *, before: int = 0, size: int | None = None
) -> Iterator[Records]:
    """Yield the rows of an open file behind its first `before` lines, some megabytes at a time.

    The last records may bring an error, which is raised by whoever has taken the rows before it.
    """
    rest, line, first = b"", before, True
    while True:
        chunk = file.read(size or STRETCH)
        chunk += file.readline(LONGEST_LINE + 1) if chunk else b""
        if first:
            refuse_utf16(chunk, where.name)
            chunk, first = chunk.removeprefix(BOM_UTF8), False
            chunk = chunk[end_of_lines(chunk, before) :]
        records, rest, line = cut_records(rest + chunk, delimiter, where, line, last=not chunk)
        if len(rest) > LARGEST_ROW and records.error is None:
            records = replace(records, error=_too_long(where, line + 1))
        if len(records) or records.error is not None:
            yield records
        if not chunk or records.error is not None:
            return


def end_of_lines(content: bytes, count: int) -> int:
    """Return where the first lines of some content end."""
    return max((match.end() for match in islice(_LINE_END.finditer(content), count)), default=0)


def _too_long(where: Origin, line: int) -> ValueError:
    return ValueError(f"{where.at(line)}: a row longer than {LARGEST_ROW >> 20} MiB: split it, or close its quote")


def cut_records(content: bytes, delimiter: str, where: Origin, line: int, *, last: bool) -> tuple[Records, bytes, int]:
    """Return the whole rows in some content after so many lines, the rest of it, and the lines before this rest."""
    error = None
    if (wrong := _no_text(content, where, line)) is not None:
        content, error = wrong
    if last and content and not content.endswith(b"\n"):
        content += b"\n"
    data, cut = np.frombuffer(content, np.uint8), ord(delimiter)
    quotes = _quotes(content, data, cut)
    newlines = np.flatnonzero(data == _LINE_FEED)
    if b"\r" in content:
        returns = np.flatnonzero(data == _RETURN)
        lone = returns[data[np.minimum(returns + 1, len(data) - 1)] != _LINE_FEED]
        if len(lone := lone[~quotes.enclose(lone)]):
            data = data.copy()
            data[lone] = _LINE_FEED
            newlines = np.flatnonzero(data == _LINE_FEED)
    outside = np.flatnonzero(~quotes.enclose(newlines)) if len(quotes.places) else np.arange(len(newlines))
    ends, lines = newlines[outside], line + 1 + outside
    records = Records(
        data[: int(ends[-1]) + 1 if len(ends) else 0], ends, lines, cut, len(quotes.places) > 0, "", error
    )
    done = int(lines[-1]) if len(lines) else line
    if quotes.bad is not None:
        row = int(np.searchsorted(ends, quotes.bad))
        at = line + 1 + int(np.searchsorted(newlines, quotes.bad))
        expected = f"{delimiter!r} expected after '\"'"
        records = records.first(row, _no_row(where, int(lines[row - 1]) + 1 if row else line + 1, at, expected))
    elif last and error is None and len(records.content) < len(content):
        final = line + len(newlines)
        records = replace(records, error=_no_row(where, done + 1, final, "unexpected end of data"))
    records = _without_lost_quote(records, quotes, newlines, where, line)
    rest = content[len(records.content) :] if records.error is None else b""
    return _tidied(records, quotes, where), rest, done


def _no_text(content: bytes, where: Origin, line: int) -> tuple[bytes, ValueError] | None:
    """Return the whole lines before the first one that is no text, and the error about it."""
    wrong, error = content.find(0), "expected text, got a NUL byte: correct the file"
    if not content.isascii():
        try:
            content.decode()
        except UnicodeDecodeError as reason:
            if wrong < 0 or reason.start < wrong:
                wrong = reason.start
                error = NO_UTF8
    if wrong < 0:
        return None
    number = line + 1 + content.count(b"\n", 0, wrong)
    return content[: content.rfind(b"\n", 0, wrong) + 1], ValueError(f"{where.at(number)}: {error}")


@dataclass(frozen=True)
class _Quotes:
    """The double quotes that enclose cells, in pairs; a doubled one within a cell ends a pair and begins the next."""

    places: Positions
    literal: list[int]  # places of those in unquoted cells
    blanks: list[int]  # places of blanks before cells in quotes
    bad: int | None  # place of the first one that neither ends a cell nor is doubled

    def enclose(self, places: Positions) -> npt.NDArray[np.bool_]:
        """(N,) which places are in quoted cells."""
        return np.asarray(np.searchsorted(self.places, places) & 1, dtype=np.bool_)


def _quotes(content: bytes, data: Bytes, delimiter: int) -> _Quotes:
    places = np.flatnonzero(data == _QUOTE) if b'"' in content else np.zeros(0, dtype=np.int64)
    if not len(places):
        return _Quotes(places, [], [], None)
    borders = np.zeros(256, dtype=np.bool_)
    borders[[delimiter, _LINE_FEED, _RETURN, _QUOTE]] = True
    opening, closing = places[::2], places[1::2]
    before, after = data[opening - 1], data[np.minimum(closing + 1, len(data) - 1)]
    if borders[before[int(opening[0] == 0) :]].all() and borders[after].all():
        return _Quotes(places, [], [], None)
    return _quotes_one_by_one(content, places.tolist(), delimiter)


def _quotes_one_by_one(content: bytes, places: list[int], delimiter: int) -> _Quotes:
    """Tell the quotes that enclose cells from those in unquoted cells, which few files have."""
    borders = (delimiter, _LINE_FEED, _RETURN)
    enclosing, literal, blanks, inside, doubled = list[int](), list[int](), list[int](), False, -1
    for place in places:
        if place == doubled:
            enclosing.append(place)
        elif not inside:
            start = place
            while start and content[start - 1] == _BLANK:
                start -= 1
            if start and content[start - 1] not in borders:
                literal.append(place)
                continue
            enclosing.append(place)
            blanks += range(start, place)
            inside = True
        else:
            following = content[place + 1] if place + 1 < len(content) else _LINE_FEED
            if following == _QUOTE:
                doubled = place + 1
            elif following in borders:
                inside = False
            else:
                return _Quotes(np.array([*enclosing, place], dtype=np.int64), literal, blanks, place)
            enclosing.append(place)
    return _Quotes(np.array(enclosing, dtype=np.int64), literal, blanks, None)


def _tidied(records: Records, quotes: _Quotes, where: Origin) -> Records:
    """Return rows without empty ones and blanks before quotes, and with marks for quotes in unquoted cells."""
    data, ends, size = records.content, records.ends, len(records.content)
    mark = ""
    if literal := [place for place in quotes.literal if place < size]:
        sign = next((sign for sign in _MARKS if not (data == sign).any()), None)
        if sign is None:
            return records.first(0, ValueError(f"{where}: expected text, got control characters: correct the file"))
        data, mark = data.copy(), chr(sign)
        data[literal] = sign
    lengths = ends - records.starts
    lengths[lengths == 1] -= data[ends[lengths == 1] - 1] == _RETURN
    empty = np.flatnonzero(lengths == 0)
    blanks = np.array([place for place in quotes.blanks if place < size], dtype=np.int64)
    if len(blanks):
        data, ends = _deleted(data, ends, blanks)
    return replace(records, content=data, ends=ends, mark=mark)._without(empty.tolist())


def _deleted(data: Bytes, ends: Positions, gone: Positions) -> tuple[Bytes, Positions]:
    return np.delete(data, gone), ends - np.searchsorted(np.sort(gone), ends)


def _without_lost_quote(records: Records, quotes: _Quotes, newlines: Positions, where: Origin, line: int) -> Records:
    """Return the rows before a cell whose lines look like rows, the sign of a lost quote, and the error about it."""
    if len(records) == 0 or len(newlines) == len(records):
        return records
    places = quotes.places[: np.searchsorted(quotes.places, len(records.content))]
    if not len(places):
        return records
    opening, closing = places[::2], places[1::2]
    apart = np.flatnonzero(closing[:-1] + 1 != opening[1:])
    opening, closing = opening[np.concatenate([[0], apart + 1])], closing[np.concatenate([apart, [len(closing) - 1]])]
    first, beyond = np.searchsorted(newlines, opening), np.searchsorted(newlines, closing)
    content = records.content
    cuts = np.flatnonzero(content[: records.ends[0]] == records.delimiter)
    width = int((~quotes.enclose(cuts)).sum()) + 1  # of the first row
    for cell in np.flatnonzero(beyond - first >= _FEWEST_INNER_ENDS).tolist():
        row = int(np.searchsorted(records.ends, opening[cell]))
        text = content[opening[cell] + 1 : closing[cell]].tobytes().decode()
        if _has_rows(text, chr(records.delimiter), width):
            began = int(records.lines[row - 1]) + 1 if row else line + 1
            return records.first(
                row, _no_row(where, began, int(records.lines[row]), "every line of it looks like a row")
            )
    return records


def _has_rows(cell: str, delimiter: str, width: int) -> bool:
    """Return whether the lines inside a cell (two, if rows have two cells) look like rows."""
    inner = [line for line in cell.split("\n")[1:-1] if line.strip()]
    return (
        width > 1
        and len(inner) >= 1 + (width == 2)
        and all(line.count(delimiter) == width - 1 and f"{delimiter} " not in line for line in inner)
    )


def _no_row(where: Origin, first: int, last: int, reason: str) -> ValueError:
    """Return the error for lines that are no row of a table."""
    if first == last:
        return ValueError(
            f"{where.at(last)}: not a valid row of CSV: {reason}: double each quote inside the cell, and enclose "
            "the cell in double quotes"
        )
    return ValueError(
        f"{where.at(first)}: not a valid row of CSV: a double quote opens a cell that goes on to line {last} "
        f"({reason}): close it; if the quote belongs to the text, double it and enclose the cell in double quotes"
    )
