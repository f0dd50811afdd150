"""Read CSV by polars, a stretch of the file at a time, where that gives the same cells as Python's reader."""

import io
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from chainrule.data._delimited import DECIMAL_COMMA, GROUPING, may_have_decimal_commas
from chainrule.data._tables.cell_column import (
    INFINITE,
    INTEGER,
    LARGEST,
    LONGEST_INTEGER,
    MISSING,
    NUMBER,
    Block,
    CellColumn,
    Flags,
    Floats,
    NumberCells,
)


class PolarsCells(CellColumn):
    """Cells as a Series of polars."""

    def __init__(self, series: Any):
        self._series = series

    def __len__(self) -> int:
        return len(self._series)

    def cell(self, index: int) -> str:
        return str(self._series[index])

    def texts(self) -> list[str]:
        cells: list[str] = self._series.to_list()
        return cells

    def part(self, chosen: Flags | slice) -> "PolarsCells":
        if isinstance(chosen, slice):
            return PolarsCells(self._series[chosen])
        return PolarsCells(self._series.filter(chosen))

    def counts(self, among: Collection[str] | None = None) -> list[tuple[str, int]]:
        series = self._series if among is None else self._series.filter(_is_in(self._series, among))
        counted = series.alias("cell").to_frame().group_by("cell", maintain_order=True).len("count")
        return list(zip(counted["cell"].to_list(), counted["count"].to_list(), strict=True))

    def numbers(self, *, fraction: bool = True) -> NumberCells:
        values, series = self.floats(), self._series
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
        fits = series.cast(_polars().Int64, strict=False).abs() <= LARGEST
        return np.array(usual.to_numpy() & fits.fill_null(value=False).to_numpy())

    def floats(self) -> Floats:
        numbers = self._series.cast(_polars().Float64, strict=False).to_numpy()
        return np.array(numbers, dtype=np.float64)  # writable, and NaN in the place of null

    def missing(self) -> Flags:
        return np.array(_is_in(self._series, MISSING).to_numpy())

    def codes(self, codes: Mapping[str, int], other: float) -> Floats:
        polars = _polars()
        numbers = self._series.replace_strict(
            list(codes), [float(code) for code in codes.values()], default=other, return_dtype=polars.Float64
        )
        return np.array(numbers.to_numpy(), dtype=np.float64)


def _with_points(series: Any) -> Any:
    """Apply `with_point` to each cell."""
    has_comma = series.str.contains(f"^{DECIMAL_COMMA.pattern}$")
    if not has_comma.any():
        return series
    return series.str.replace_all(f"[{GROUPING}]", "").str.replace(",", ".", literal=True).zip_with(has_comma, series)


def _is_in(series: Any, cells: Collection[str]) -> Any:
    return series.is_in(_polars().Series(list(cells), dtype=_polars().String).implode())


def _first(places: "np.ndarray[Any, Any]") -> int | None:
    return int(places[0]) if len(places) else None


def _polars() -> Any:
    import polars

    return polars


STRETCH = 1 << 23  # bytes read at a time
_ODD = bytes(sorted(set(range(32)) - set(b"\t\n\r")))  # NUL, and what Python's strip() takes and polars' does not
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'
Places = npt.NDArray[np.int64]
Exact = Callable[[BinaryIO, int], Iterator[Block]]


def quick_blocks(file: BinaryIO, delimiter: str, width: int, line: int, exact: Exact) -> Iterator[Block]:
    """Yield the rows of a CSV file after its header.

    A stretch whose rows do not all have `width` cells on one line, or with bytes that the two readers may take
    differently, goes to the exact reader, which also says what is wrong with it. So does the whole rest of a file in
    which quotes break RFC 4180 or lines end in a lone carriage return, as nothing else tells where its rows
    and lines end. `exact` gives the blocks of a stretch, or of the rest of a file, after so many lines.
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
            file.seek(-len(held), io.SEEK_CUR)
            yield from exact(file, line)
            return
        newlines = np.flatnonzero(bytes_held == _NEWLINE)
        ends = newlines[np.searchsorted(quotes, newlines) % 2 == 0]  # outside of quotes
        cut = len(held) if ended else int(ends[-1]) + 1 if len(ends) else 0
        if not cut:
            if held:  # a row as long as that: the exact reader has a limit for cells
                file.seek(-len(held), io.SEEK_CUR)
                yield from exact(file, line)
            return
        stretch, held = held[:cut], held[cut:]
        within = len(quotes[quotes < cut])
        plain = len(ends[ends < cut]) == len(newlines[newlines < cut])
        frame = _frame(stretch, quotes[:within], newlines[newlines < cut], delimiter, width) if plain else None
        if frame is None:
            yield from exact(io.BytesIO(stretch), line)
        else:
            lines = np.arange(line + 1, line + 1 + len(frame))
            columns = [frame[name] for name in frame.columns]
            if may_have_decimal_commas(delimiter):
                columns = list(map(_with_points, columns))
            yield Block(lines, list(map(PolarsCells, columns)))
        line += int(np.count_nonzero(newlines < cut))


def _regular(text: "npt.NDArray[np.uint8]", quotes: Places, delimiter: int, *, ended: bool) -> bool:
    """Return whether quotes come in pairs around whole cells, or are doubled inside of such."""
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
    """Return the cells of whole lines as a data frame of stripped strings; None where the readers might differ."""
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
        schema={str(index): polars.String for index in range(width)},
        separator=delimiter,
        quote_char='"' if len(quotes) else None,
        empty_string_is_null=False,
    )
    assert len(frame) == len(ends)
    return frame.select(polars.all().str.strip_chars()) if _padded(stretch, text, ord(delimiter)) else frame


def _cells(text: "npt.NDArray[np.uint8]", delimiter: int, quotes: Places, ends: Places) -> Places:
    """Count the cells of each line; the lines end at `ends`, and no quoted cell crosses an end."""
    delimiters = np.flatnonzero(text == delimiter)
    counts = np.diff(np.searchsorted(delimiters, ends), prepend=0) + 1
    if len(quotes):
        opened, closed = np.searchsorted(delimiters, quotes).reshape(-1, 2).T
        quoted = np.flatnonzero(closed > opened)
        lines = np.searchsorted(ends, quotes[::2][quoted])
        np.subtract.at(counts, lines, (closed - opened)[quoted])
    return counts


def _padded(stretch: bytes, text: "npt.NDArray[np.uint8]", delimiter: int) -> bool:
    """Return whether there may be white space at the beginning or the end of a cell."""
    if not stretch.isascii() or _RETURN in stretch:
        return True
    edges = np.zeros(256, dtype=np.bool_)
    edges[[delimiter, _NEWLINE, _QUOTE]] = True
    blanks = np.flatnonzero((text == ord(" ")) | ((text == ord("\t")) & (delimiter != ord("\t"))))
    if not len(blanks):
        return False
    outer = blanks[0] == 0 or blanks[-1] == len(text) - 1
    return bool(outer or edges[text[blanks - 1]].any() or edges[text[blanks + 1]].any())
