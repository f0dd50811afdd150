"""Dates in cells."""

import re
from datetime import UTC, datetime

_MONTH = re.compile(r"(\d{4})[-/](\d{1,2})")


def as_date(cell: str) -> datetime | None:
    """The moment that a cell names by ISO 8601, a month among them; None for any other text. UTC where it has a zone.

    >>> as_date("2016-07-01 13:00"), as_date("1949-01"), as_date("112"), as_date("01/02/2020")
    (datetime.datetime(2016, 7, 1, 13, 0), datetime.datetime(1949, 1, 1, 0, 0), None, None)
    """
    if month := _MONTH.fullmatch(cell):
        year, number = map(int, month.groups())
        return datetime(year, number, 1) if 1 <= number <= 12 and year else None
    if "-" not in cell and "/" not in cell:  # 20160701 is a number
        return None
    try:
        moment = datetime.fromisoformat(re.sub(r"^(\d{4})/(\d{2})/(\d{2})", r"\1-\2-\3", cell))
    except ValueError:
        return None
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def date_text(moment: datetime, *, daily: bool) -> str:
    """A moment as it is written: the day alone where steps are days or more.

    >>> date_text(datetime(2016, 7, 1), daily=True), date_text(datetime(2016, 7, 1), daily=False)
    ('2016-07-01', '2016-07-01 00:00:00')
    """
    return moment.strftime("%Y-%m-%d") if daily else moment.isoformat(sep=" ")
