"""Read CSV by polars, a stretch of the file at a time, where that gives the same cells as Python's reader."""

import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from chainrule.data.tables.cell_column import Block
from chainrule.data.tables.polars_cells import PolarsCells

STRETCH = 1 << 23  # bytes read at a time
_ODD = bytes(sorted(set(range(32)) - set(b"\t\n\r")))  # NUL, and what Python's strip() takes and polars' does not
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'
Places = npt.NDArray[np.int64]
Exact = Callable[[BinaryIO, int], Iterator[Block]]


def quick_blocks(file: BinaryIO, delimiter: str, width: int, line: int, exact: Exact) -> Iterator[Block]:
    """The rows of a CSV file after its header.

    A stretch whose rows do not all have `width` cells on one line, or with bytes that the two readers may take
    differently, goes to the exact reader, which also says what is wrong with it. So does the whole rest of a file in
    which quotes are not those of RFC 4180 or lines end in a lone carriage return, as nothing else tells where its rows
    and lines end.

    Args:
        file: where the first row begins.
        delimiter: between cells.
        width: cells of each row, at least 2.
        line: lines before the first row.
        exact: gives the blocks of a stretch, or of the rest of a file, that so many lines come before.
    """
    held, ended = b"", False
    while not ended:
        more = file.read(STRETCH)
        ended = not more
        held += more
        bytes_held = np.frombuffer(held, dtype=np.uint8)
        quotes = np.flatnonzero(bytes_held == _QUOTE)
        whole = held if ended else held.removesuffix(b"\r")
        lone_returns = _RETURN in whole and whole.count(b"\r") != whole.count(b"\r\n")
        if lone_returns or not _regular(bytes_held, quotes, ord(delimiter), ended=ended):
            yield from exact(_rest(held, file), line)
            return
        newlines = np.flatnonzero(bytes_held == _NEWLINE)
        ends = newlines[np.searchsorted(quotes, newlines) % 2 == 0]  # outside of quotes
        cut = len(held) if ended else int(ends[-1]) + 1 if len(ends) else 0
        if not cut:
            if held:  # a row as long as that: the exact reader has a limit for cells
                yield from exact(_rest(held, file), line)
            return
        stretch, held = held[:cut], held[cut:]
        within = len(quotes[quotes < cut])
        plain = len(ends[ends < cut]) == len(newlines[newlines < cut])
        frame = _frame(stretch, quotes[:within], newlines[newlines < cut], delimiter, width) if plain else None
        if frame is None:
            yield from exact(io.BytesIO(stretch), line)
        else:
            lines = np.arange(line + 1, line + 1 + len(frame))
            yield Block(lines, [PolarsCells(frame[name]) for name in frame.columns])
        line += int(np.count_nonzero(newlines < cut))


def _regular(text: "npt.NDArray[np.uint8]", quotes: Places, delimiter: int, *, ended: bool) -> bool:
    """Whether quotes come in pairs around whole cells, or are doubled inside of such."""
    opening, closing = quotes[::2], quotes[1::2]
    if ended and len(opening) > len(closing):
        return False
    before = text[np.maximum(opening - 1, 0)]
    fits = (opening == 0) | (before == delimiter) | (before == _NEWLINE)
    fits[1:] |= opening[1:] == closing[: len(opening) - 1] + 1
    after = text[np.minimum(closing + 1, len(text) - 1)]
    closed = (closing == len(text) - 1) | (after == delimiter) | (after == _NEWLINE) | (after == _RETURN)
    closed[: len(opening) - 1] |= closing[: len(opening) - 1] + 1 == opening[1:]
    return bool(fits.all() and closed.all())


def _frame(stretch: bytes, quotes: Places, newlines: Places, delimiter: str, width: int) -> Any:
    """The cells of whole lines as a data frame of stripped strings; None where the readers might differ."""
    import polars

    if len(stretch.translate(None, _ODD)) < len(stretch) or stretch.startswith(b"\xef\xbb\xbf"):
        return None
    if not stretch.isascii():
        try:
            stretch.decode("utf-8")
        except UnicodeDecodeError:
            return None
    text = np.frombuffer(stretch, dtype=np.uint8)
    ends = newlines if stretch.endswith(b"\n") else np.append(newlines, len(stretch))
    if not (_cells(text, ord(delimiter), quotes, ends) == width).all():
        return None
    frame = polars.read_csv(
        stretch,
        has_header=False,
        schema={str(place): polars.String for place in range(width)},
        separator=delimiter,
        quote_char='"' if len(quotes) else None,
        empty_string_is_null=False,
    )
    assert len(frame) == len(ends)
    return frame.select(polars.all().str.strip_chars()) if _padded(stretch, text, ord(delimiter)) else frame


def _cells(text: "npt.NDArray[np.uint8]", delimiter: int, quotes: Places, ends: Places) -> Places:
    """How many cells each line has; the lines end at `ends`, and no quoted cell goes over an end."""
    delimiters = np.flatnonzero(text == delimiter)
    counts = np.diff(np.searchsorted(delimiters, ends), prepend=0) + 1
    if len(quotes):
        opened, closed = np.searchsorted(delimiters, quotes).reshape(-1, 2).T
        quoted = np.flatnonzero(closed > opened)
        lines = np.searchsorted(ends, quotes[::2][quoted])
        np.subtract.at(counts, lines, (closed - opened)[quoted])
    return counts


def _padded(stretch: bytes, text: "npt.NDArray[np.uint8]", delimiter: int) -> bool:
    """Whether there may be white space at the beginning or the end of a cell."""
    if not stretch.isascii() or _RETURN in stretch:
        return True
    edges = np.zeros(256, dtype=np.bool_)
    edges[[delimiter, _NEWLINE, _QUOTE]] = True
    blanks = np.flatnonzero((text == ord(" ")) | ((text == ord("\t")) & (delimiter != ord("\t"))))
    if not len(blanks):
        return False
    outer = blanks[0] == 0 or blanks[-1] == len(text) - 1
    return bool(outer or edges[text[blanks - 1]].any() or edges[text[blanks + 1]].any())


def _rest(held: bytes, file: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Rest(held, file)))


class _Rest(io.RawIOBase):
    """Bytes that were read from a file, and then the rest of it."""

    def __init__(self, held: bytes, file: BinaryIO):
        self._held, self._file = io.BytesIO(held), file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._held.read(len(buffer)) or self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)
