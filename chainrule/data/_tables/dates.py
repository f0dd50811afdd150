"""Dates and times as the cells of a table write them."""

import re
from collections.abc import Iterable
from datetime import datetime

from chainrule.data._tables.cell_column import as_number

_MONTH = re.compile(r"(\d{4})[-/](\d{1,2})")
_DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?![^ T])")  # with dots nobody writes the month first
_MONTH_NAMES = (
    "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    "nov(?:ember)?|dec(?:ember)?"
)
_DATE_LIKE = re.compile(
    r"\d{1,4}([-/.] ?)\d{1,2}\1\d{1,4}\.?(?:[ T,].*)?"  # 01/05/2026 12:00 AM
    r"|\d{1,2}[-/.]\d{4}|\d{4}[-/.]\d{1,2}|\d{4}[- ]?[QW]\d{1,2}"  # 01/2026, 2026-Q1
    rf"|(?=.*\d).*\b(?:{_MONTH_NAMES})\b.*"  # 5 Jan 2026
    r"|\d{1,2}:\d\d.*",
    re.IGNORECASE,
)


def as_date(cell: str) -> datetime | None:
    """Return the moment that a cell names by ISO 8601, a month among them, with its zone, or as day.month.year.

    None for any other text, such as 01/02/2020, which is in January or in February.
    """
    cell = _DAY_FIRST.sub(lambda match: f"{match[3]}-{match[2]:0>2}-{match[1]:0>2}", cell, count=1)
    if month := _MONTH.fullmatch(cell):
        year, number = map(int, month.groups())
        return datetime(year, number, 1) if 1 <= number <= 12 and year else None
    if "-" not in cell and "/" not in cell:  # 20160701 is a number
        return None
    try:
        return datetime.fromisoformat(re.sub(r"^(\d{4})/(\d{2})/(\d{2})", r"\1-\2-\3", cell))
    except ValueError:
        return None


def is_date_like(cell: str) -> bool:
    """Return whether a cell writes a date or a time in any notation; a number never does."""
    return as_date(cell) is not None or (as_number(cell) is None and _DATE_LIKE.fullmatch(cell) is not None)


def writes_months(cells: Iterable[str]) -> bool:
    """Return whether all cells name months, as 2024-01.

    >>> [writes_months(cells) for cells in (["2024-01", "2024-02"], ["2024-01-01", "2024-02-01"], ["2024/1"])]
    [True, False, False]
    """
    return all(re.fullmatch(r"\d{4}-\d\d", cell) for cell in cells)
