"""Read the text in a cell of a table: nothing, an integer, a number, or a word."""

import math
import re

MISSING = frozenset(("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>"))
LARGEST = 2**53  # float64 holds every integer up to here
MOST_DECIMALS = 15  # digits after the point that a float64 keeps of a number below 1

# Written so that the regular expressions of Python and of polars read them alike.
INTEGER = "(?:0|-?[1-9][0-9]*)"
NUMBER = r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
INFINITE = "[+-]?[iI][nN][fF](?:[iI][nN][iI][tT][yY])?"
LONGEST_INTEGER = 17  # characters: a sign and the digits of LARGEST

_INTEGER, _NUMBER, _INFINITE = re.compile(INTEGER), re.compile(NUMBER), re.compile(INFINITE)


def as_integer(cell: str) -> int | None:
    """The integer that a cell spells in the usual way, so that writing it gives the cell again; else None.

    >>> as_integer("-12"), as_integer("012"), as_integer("1.0"), as_integer("9007199254740993")
    (-12, None, None, None)
    """
    if not _INTEGER.fullmatch(cell) or len(cell) > LONGEST_INTEGER:
        return None
    value = int(cell)
    return value if abs(value) <= LARGEST else None


def as_number(cell: str) -> float | None:
    """The number that a cell spells, infinities included; None for any other text, 007 among them: that is a name.

    >>> as_number("1e3"), as_number("-inf"), as_number("1_000"), as_number("1e999")
    (1000.0, -inf, None, inf)
    """
    return float(cell) if _NUMBER.fullmatch(cell) or _INFINITE.fullmatch(cell) else None


def decimals(cell: str) -> int | None:
    """Digits after the point of a number; None where it is written with an exponent.

    >>> decimals("1.50"), decimals("-3"), decimals("1e-3")
    (2, 0, None)
    """
    return None if "e" in cell.lower() else len(cell.partition(".")[2])


def number_text(value: float, *, whole: bool, decimals: tuple[int, int] | None = None) -> str:
    """A number as a cell: an integer without a point, any other with the digits that give it back.

    Args:
        value: the number; NaN gives an empty cell.
        whole: whether it is an integer.
        decimals: the fewest and the most digits to write after the point.

    >>> number_text(3.0, whole=True), number_text(0.1, whole=False), number_text(math.nan, whole=False)
    ('3', '0.1', '')
    >>> number_text(2.71828, whole=False, decimals=(0, 2)), number_text(3.0, whole=False, decimals=(1, 2))
    ('2.72', '3.0')
    """
    if math.isnan(value):
        return ""
    if whole:
        return str(int(value))
    if decimals is None:
        return repr(float(value))
    fewest, most = decimals
    text = f"{value:.{most}f}"
    spare = min(len(text) - len(text.rstrip("0")), most - fewest)
    text = text[: len(text) - spare].removesuffix(".")
    return text.removeprefix("-") if float(text) == 0 else text
