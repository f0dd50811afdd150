"""What the text in a cell of a table says: nothing, an integer, a number, or a word."""

import math
import re

MISSING = frozenset(("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>"))
LARGEST = 2**53  # float64 holds every integer up to here

_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)


def as_integer(cell: str) -> int | None:
    """The integer that a cell spells in the usual way, so that writing it gives the cell again; else None.

    >>> as_integer("-12"), as_integer("012"), as_integer("1.0"), as_integer("9007199254740993")
    (-12, None, None, None)
    """
    if not _INTEGER.fullmatch(cell) or len(cell) > 17:
        return None
    value = int(cell)
    return value if abs(value) <= LARGEST else None


def as_number(cell: str) -> float | None:
    """The number that a cell spells, infinities included; None for any other text, 007 among them: that is a name.

    >>> as_number("1e3"), as_number("-inf"), as_number("1_000"), as_number("1e999")
    (1000.0, -inf, None, inf)
    """
    return float(cell) if _NUMBER.fullmatch(cell) or _INFINITE.fullmatch(cell) else None


def number_text(value: float, *, whole: bool) -> str:
    """A number as a cell: an integer without a point, any other with the digits that give it back.

    >>> number_text(3.0, whole=True), number_text(0.1, whole=False), number_text(math.nan, whole=False)
    ('3', '0.1', '')
    """
    if math.isnan(value):
        return ""
    return str(int(value)) if whole else repr(float(value))
