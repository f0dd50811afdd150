"""The first rows of a table: lines before them, the delimiter, and whether they name the columns."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise

from chainrule_app.readers.delimited import Beginning, Row
from chainrule_app.readers.sources import plain_name
from chainrule_app.readers.tables.cell import DECIMAL_COMMA, MISSING, as_number, is_odd_number, with_point
from chainrule_app.readers.tables.dates import is_date_like

DELIMITERS = ",;\t|"
_ROWS_TO_COMPARE = 20
_COMPARED = 1 << 16  # bytes that these rows are looked for in, and the rest of a line
HEADER = 2  # evidence that is enough where nothing else speaks for a header
_HINT = re.compile(r'"?sep=(.|\\t)"?', re.IGNORECASE)  # Excel's
_MOST_TITLES = 20  # lines before a table
_ROWS, _FEW_ROWS, _CELLS = 1000, 50, 200_000  # that are looked at; of each place where a table may begin
_MOSTLY = 0.8  # of the cells of a column
_PROSE = 0.9  # of the texts of a column
_LONGEST_DATE, _LONGEST_UNIT = 70, 12  # characters
_YEARS = range(1900, 2101)
_SEVERAL = 10  # rows: a number outside the range of fewer is no surprise
_UNIT = re.compile(r"[^#]*[^\W\d_][^#]*|[^#\w]*[%°$€£][^#\w]*")


@dataclass(frozen=True)
class Layout:
    """Beginning of a table in a file."""

    delimiter: str  # between its cells
    before: int  # lines before it: Excel's `sep=;`, titles, comments and empty lines between them
    rows: list[Row]  # its first rows, a header among them

    @property
    def cells(self) -> list[list[str]]:
        """The cells of the first rows."""
        return [cells for _, cells in self.rows]


def find_layout(beginning: Beginning) -> Layout:
    """Find a table's delimiter, and the titles before it: comments, or lines before rows of one width with names."""
    first = beginning.lines(_MOST_TITLES)
    if first and (hint := _HINT.fullmatch(first[0])):
        delimiter = "\t" if hint[1] == "\\t" else hint[1]
        if delimiter in DELIMITERS:
            return Layout(delimiter, 1, _first_rows(beginning, delimiter, 1))
    layout = _layout(beginning, 0)
    if not _may_be_title(layout.cells) and "" not in first:
        return layout
    for before in range(1, len(first)):
        candidate = _layout(beginning, before, _FEW_ROWS) if first[before] else layout
        if candidate.before and _is_regular(candidate.cells):
            cells, width = candidate.cells, len(candidate.cells[0])
            titles = [text for text in first[:before] if text]
            widths = [sum(map(bool, text.split(candidate.delimiter))) for text in titles]
            named = header_evidence(cells) >= HEADER
            comments = all(text.startswith("#") for text in titles)
            bare = comments and (named or width not in widths) and not first[before].startswith("#")
            wide = sum(count >= width and text[0] != "#" for text, count in zip(titles, widths, strict=True))
            if bare or (named and wide <= ("" in first[:before])):  # an empty line sets a title with a comma apart
                return _layout(beginning, before)
    return layout


def find_delimiter(beginning: Beginning, before: int = 0) -> str:
    """Choose the delimiter that gives most rows the first row's cell count (at least 2).

    Ties go to the fewest other delimiters inside cells, decimal commas apart, then to the most cells.
    A file named .tsv has tabs where its first row has one. Where no delimiter cuts the first row, it is the most
    frequent one of its line.
    """
    rows_by_delimiter = {
        delimiter: [cells for _, cells in beginning.rows(delimiter, before, _ROWS_TO_COMPARE, _COMPARED)]
        for delimiter in DELIMITERS
    }
    cutting = [delimiter for delimiter, rows in rows_by_delimiter.items() if rows and len(rows[0]) > 1]
    if "\t" in cutting and plain_name(beginning.origin.name).endswith(".tsv"):
        return "\t"
    if cutting:
        return max(cutting, key=lambda one: _fitness(rows_by_delimiter[one]))
    first = next((text for text in beginning.lines(before + _MOST_TITLES)[before:] if text), "")
    return max(DELIMITERS, key=first.count)


def _fitness(rows: list[list[str]]) -> tuple[int, float, int]:
    """Return how many rows are as wide as the first, the share of clean cells, and the width of the first row."""
    width, cells = len(rows[0]), list(chain(*rows))
    clean = sum(not any(mark in cell for mark in DELIMITERS) or bool(DECIMAL_COMMA.fullmatch(cell)) for cell in cells)
    return sum(len(row) == width for row in rows), clean / len(cells), width


def _layout(beginning: Beginning, before: int, most: int = _ROWS) -> Layout:
    delimiter = find_delimiter(beginning, before)
    return Layout(delimiter, before, _first_rows(beginning, delimiter, before, most))


def _first_rows(beginning: Beginning, delimiter: str, before: int, most: int = _ROWS) -> list[Row]:
    """Return the first rows, fewer where they have many cells."""
    rows = beginning.rows(delimiter, before, most)
    return rows[: max(_CELLS // len(rows[0][1]), 1)] if rows else rows


def _may_be_title(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether a first row is not as wide as most others, nearly empty, or a comment."""
    if len(rows) < 2:
        return False
    width = Counter(map(len, rows[1:])).most_common(1)[0][0]
    filled = sum(map(bool, rows[0]))
    return len(rows[0]) != width or filled == 1 or rows[0][0].startswith("#")


def _is_regular(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether nearly all rows are as wide as the first, two cells or more."""
    if len(rows) < 2 or len(rows[0]) < 2:
        return False
    return sum(len(row) == len(rows[0]) for row in rows) >= _PROSE * len(rows) and any(rows[0])


def is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first of some rows names the columns of a table.

    Where the other rows say nothing, it does if all its cells are words; pandas leaves the name of its index empty.

    >>> is_header([["region", "2019", "2020"], ["south", "5.1", "5.0"], ["south", "6.1", "5.8"], ["north", "4.2", "6"]])
    True
    >>> is_header([["Luke", "F"], ["Anna", "M"], ["Emma", "M"], ["Luke", "F"]])
    False
    """
    evidence, first = header_evidence(rows), rows[0]
    named = first[1:] if first[0] == "" else first
    return evidence > 0 or (evidence == 0 and bool(named) and all(_kind(cell) in ("word", "date") for cell in named))


def header_evidence(rows: Sequence[Sequence[str]], *, texts: int | None = None) -> int:
    """Compare the first of some rows with the columns below it: above 0 for names, below 0 for data.

    A word over numbers or dates speaks for names, and so does a word that never comes again where all others do, a
    single word over prose, and numbers that count up and are unlike those below them, such as years. A cell of the kind
    of its column, or one that comes again, speaks for data.
    """
    first, *others = rows
    columns = [
        _Column(cell, [row[index] for row in others if len(row) == len(first)]) for index, cell in enumerate(first)
    ]
    names = {column.first: column for column in columns}  # the same word twice says no more than once
    free = None if texts is None else columns[texts]
    evidence = sum(column.evidence(free=column is free) for column in names.values())
    numbers = [column for column in columns if column.kind == "number"]
    if numbers and _are_names(numbers, columns):
        return evidence + 1
    return evidence - 2 * any(column.usual == "number" for column in numbers)


def is_units(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first of the rows under a header gives units, as kg or [m/s], and no data.

    >>> is_units([["", "cm", "kg"], ["Ann", "171", "63"], ["Bea", "165", "58"], ["Cem", "180", "71"]])
    True
    """
    first, *others = rows
    if len(others) < 2:
        return False
    columns = [
        _Column(cell, [row[index] for row in others if len(row) == len(first)]) for index, cell in enumerate(first)
    ]
    numeric = [column for column in columns if column.usual in ("number", "date")]
    words = [column for column in numeric if column.kind == "word"]
    rest = [column for column in columns if column.usual not in ("number", "date")]
    return (
        len(words) >= 2 - all(column.kind == "missing" for column in rest) * bool(rest)
        and all(column.kind == "word" or not column.first for column in numeric)
        and all(len(column.first) <= _LONGEST_UNIT and _UNIT.fullmatch(column.first) for column in words)
        and not any(column.recurs for column in columns)
    )


class _Column:
    """A first cell, and those below it."""

    def __init__(self, first: str, cells: Sequence[str]):
        self.first, self.kind = first, _kind(first)
        self.counts = Counter(cell for cell in cells if cell not in MISSING)
        kinds = Counter[str]()
        for cell, count in self.counts.items():
            kinds[_kind(cell)] += count
        self.count = kinds.total()
        usual, share = kinds.most_common(1)[0] if kinds else ("", 0)
        self.usual = usual if share >= _MOSTLY * self.count else "word" if kinds else ""

    @property
    def recurs(self) -> bool:
        """True if the first cell comes again, in whatever case."""
        return self.kind != "missing" and self.first.casefold() in map(str.casefold, self.counts)

    def evidence(self, *, free: bool = False) -> int:
        """Score the evidence of words and dates in one column; numbers are compared across columns."""
        if self.kind == "missing" or not self.usual:
            return 0
        if self.usual != "word":
            if self.kind == self.usual == "date":
                return -4
            return 0 if self.kind == "number" else 3 if self.usual == "date" else 2
        if self.recurs:
            return -2
        if self.kind == "number":
            return 0
        prose = sum(count for cell, count in self.counts.items() if len(cell.split()) > 1) >= _PROSE * self.count
        categories = not free and len(self.counts) > 1 and min(self.counts.values()) > 1
        return categories + (prose and len(self.first.split()) == 1)

    def is_odd(self) -> bool:
        """Return whether a whole first number is unlike the numbers below, which neither continue nor surround it."""
        if self.usual != "number":
            return True
        own, numbers = _value(self.first), [value for cell in self.counts if (value := _value(cell)) is not None]
        if (
            own is None
            or not numbers
            or not own.is_integer()
            or (len(numbers) > 1 and numbers[0] - own == numbers[1] - numbers[0])
        ):
            return False
        return own < min(numbers) or own > max(numbers) or not all(number.is_integer() for number in numbers)


def _are_names(numbers: Sequence[_Column], columns: Sequence[_Column]) -> bool:
    """Return whether the numbers of a first row are names: years, 0 or 1 and on, or next to words alone."""
    values = [_value(column.first) for column in numbers]
    whole = [int(value) for value in values if value is not None and value.is_integer()]
    if len(set(whole)) < len(values) or not all(column.is_odd() for column in numbers):
        return False
    ascending = all(b - a == whole[1] - whole[0] > 0 for a, b in pairwise(whole))
    if all(value in _YEARS for value in whole):
        return ascending and (len(whole) > 1 or numbers[0].count >= _SEVERAL)
    if len(whole) > 1 and whole[0] in (0, 1) and whole == list(range(whole[0], whole[0] + len(whole))):
        return len(whole) > 2 or any(column.usual == "word" or not column.first for column in columns)
    dated = any(column.usual == "date" and column.kind in ("word", "missing") for column in columns)
    beside = [column for column in columns if column.kind != "number"]
    return dated and len(whole) > 1 and not any(column.recurs or column.kind == "date" for column in beside)


@lru_cache(1 << 14)  # the same cells are looked at for a header and for units
def _kind(cell: str) -> str:
    if cell in MISSING:
        return "missing"
    if _value(cell) is not None or is_odd_number(cell):
        return "number"
    return "date" if len(cell) <= _LONGEST_DATE and is_date_like(cell) else "word"


def _value(cell: str) -> float | None:
    return as_number(with_point(cell))
