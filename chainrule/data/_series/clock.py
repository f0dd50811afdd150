"""Dates with and without zones, as one clock shows them."""

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone


def on_one_clock(dates: Sequence[datetime], utc_offset: int | None = None) -> tuple[list[datetime], int | None]:
    """Local times, and the offset of their clock from UTC in seconds; None where no zone is to be told.

    Where all dates have the same time of day they tell days, and each keeps its own local time. Else the clock is that
    of their only offset, or UTC where offsets change, as with daylight saving.
    """
    offsets = {date.utcoffset() for date in dates}
    if offsets == {None}:
        return list(dates), None
    if utc_offset is None and len({date.time() for date in dates}) > 1:
        only = offsets.pop() if len(offsets) == 1 else None
        utc_offset = 0 if only is None else round(only.total_seconds())
    return [as_shown(date, utc_offset) for date in dates], utc_offset


def as_shown(date: datetime, utc_offset: int | None) -> datetime:
    """Return a date as the clock shows it, without a zone: its own local time where no offset is given.

    >>> str(as_shown(datetime.fromisoformat("2024-01-01T00:00+02:00"), 3600))
    '2023-12-31 23:00:00'
    """
    if date.tzinfo is None or utc_offset is None:
        return date.replace(tzinfo=None)
    try:
        return date.astimezone(clock(utc_offset)).replace(tzinfo=None)
    except OverflowError:
        raise ValueError(f"expected dates of the years 1 to 9999 in all zones, got {date}") from None


def clock(utc_offset: int) -> timezone:
    """Return the zone of an offset in seconds."""
    return timezone(timedelta(seconds=utc_offset))
