"""One cell of a table: its text as integer, number or word."""

import math
import re

MISSING = frozenset(("", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "<NA>"))
LARGEST = 2**53  # float64 holds every integer up to here
MOST_DECIMALS = 15  # digits after the point that a float64 keeps of a number below 1

# Written so that the regular expressions of Python and of polars read them alike.
INTEGER = "(?:0|-?[1-9][0-9]*)"
NUMBER = r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
INFINITE = "[+-]?[iI][nN][fF](?:[iI][nN][iI][tT][yY])?"
LONGEST_INTEGER = 17  # characters: a sign and the digits of LARGEST

GROUPING = ". '\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"  # between groups of three digits of such a number
DECIMAL_COMMA = re.compile(f"[+-]?[0-9]{{1,3}}(?:[{GROUPING}]?[0-9]{{3}})*,[0-9]+")  # 1.234,5

# 1.234,5; 1,234.5; $5; 5 %; 3 kg; 3kg; and a minus sign that is no hyphen
_UNIT = "kg|mg|g|t|lb|km|cm|mm|m|ms|min|s|h|kWh|kW|W|V|mV|A|mA|Hz|kHz|MHz|GHz|°C|°F|°|kB|MB|GB|TB|ml|l|dB"
_DIGITS = r"[+\-\N{MINUS SIGN}]?\d[\d.,]*"
_ODD_NUMBER = re.compile(
    DECIMAL_COMMA.pattern
    + r"|[+-]?\d{1,3}(?:[,']\d{3})+(?:\.\d+)?"
    + rf"|[€$£¥] ?{_DIGITS}|{_DIGITS} ?[€$£¥%]|{_DIGITS}(?:{_UNIT})|{_DIGITS} [^\W\d_%°µ/²³]{{1,4}}"
    + rf"|{_DIGITS} [^\W\d_]{{0,3}}[%°/²³][^\W\d_]{{0,3}}[²³]?|\N{{MINUS SIGN}}\d[\d.,]*(?:[eE][+-]?\d+)?"
)
_INTEGER, _NUMBER, _INFINITE = re.compile(INTEGER), re.compile(NUMBER), re.compile(INFINITE)


def may_have_decimal_commas(delimiter: str) -> bool:
    """Return whether numbers of a file that is cut so may have decimal commas; elsewhere 1,234 may be a thousand."""
    return delimiter == ";"


def with_point(cell: str) -> str:
    """Return a number with a decimal comma as one with a point, its digits ungrouped; any other cell as it is."""
    if "," not in cell or not DECIMAL_COMMA.fullmatch(cell):
        return cell
    whole, _, rest = cell.partition(",")
    return "".join(character for character in whole if character not in GROUPING) + "." + rest


def is_missing(cell: str | None) -> bool:
    """Return whether a cell of a file says that there is nothing; None is a missing value of typed data."""
    return cell is None or cell in MISSING


def as_integer(cell: str) -> int | None:
    """Return the integer that a cell spells in the usual way, so that writing it gives the cell again; else None.

    >>> as_integer("-12"), as_integer("012"), as_integer("1.0"), as_integer("9007199254740993")
    (-12, None, None, None)
    """
    if not _INTEGER.fullmatch(cell) or len(cell) > LONGEST_INTEGER:
        return None
    value = int(cell)
    return value if abs(value) <= LARGEST else None


def is_large_integer(cell: str) -> bool:
    """Return whether a cell spells an integer that a float64 may not hold."""
    return as_integer(cell) is None and _INTEGER.fullmatch(cell) is not None


def as_number(cell: str) -> float | None:
    """Parse a cell as a number, infinities included; return None for other text and for names such as 007.

    >>> as_number("1e3"), as_number("-inf"), as_number("1_000"), as_number("1e999")
    (1000.0, -inf, None, inf)
    """
    return float(cell) if _NUMBER.fullmatch(cell) or _INFINITE.fullmatch(cell) else None


def is_odd_number(cell: str) -> bool:
    """Return whether a cell tells a number in a notation that `as_number` does not read, for a hint.

    >>> [is_odd_number(cell) for cell in ("1.234,5", "1,234.5", "5 %", "3 kg", "\N{MINUS SIGN}7", "12", "4x4", "12a")]
    [True, True, True, True, True, False, False, False]
    """
    return _ODD_NUMBER.fullmatch(cell) is not None


def decimals(cell: str) -> int | None:
    """Digits after the point of a number; None where it is written with an exponent."""
    return None if "e" in cell.lower() else len(cell.partition(".")[2])


def number_text(value: float, *, whole: bool, decimals: tuple[int, int] | None = None) -> str:
    """Return a number as a cell: an integer without a point, any other with the digits that give it back.

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
