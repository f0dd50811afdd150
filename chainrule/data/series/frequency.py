"""The regular step between the rows of a series."""

from calendar import monthrange
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Literal

Unit = Literal["seconds", "business days", "months", "month ends"]
UNITS: tuple[Unit, ...] = ("seconds", "business days", "months", "month ends")
DAY = 86_400
_NAMES = {DAY: "day", 3600: "hour", 60: "minute", 7 * DAY: "week"}


@dataclass(frozen=True)
class Frequency:
    """`count` units from one row to the next.

    Args:
        unit: seconds; business days, Monday to Friday; months of the calendar; or their last days.
        count: at least 1.

    >>> hourly = Frequency("seconds", 3600)
    >>> str(hourly), hourly.season, hourly.after(datetime(2016, 7, 1, 23))
    ('every hour', 24, datetime.datetime(2016, 7, 2, 0, 0))
    """

    unit: Unit
    count: int

    @classmethod
    def find(cls, dates: Sequence[datetime], lines: Sequence[int], where: str) -> "Frequency":
        """The step between dates, all of which must be this step apart.

        Args:
            dates: at least two.
            lines: where in the file each stands, for errors.
            where: the name of the file, for errors.

        Raises:
            ValueError: the dates are not sorted, one comes twice, or some are missing.
        """
        places = list(zip(dates, lines, strict=True))
        for (before, _), (date, line) in pairwise(places):
            if date == before:
                raise ValueError(f"{where} line {line}: the date {date} comes twice: keep one row of each date")
            if date < before:
                raise ValueError(f"{where} line {line}: {date} comes after {before}: sort the rows by date")
        frequency = cls._most_common(dates)
        for (before, _), (date, line) in pairwise(places):
            expected = frequency.after(before)
            if date != expected:
                raise ValueError(
                    f"{where} line {line}: a gap: expected {expected} after {before}, as rows are {frequency}, "
                    f"got {date}: fill in what is missing, or say --date none to count rows only"
                )
        return frequency

    @classmethod
    def _most_common(cls, dates: Sequence[datetime]) -> "Frequency":
        steps = [after - before for before, after in pairwise(dates)]
        usual = Counter(steps).most_common(1)[0][0]
        months = [12 * date.year + date.month for date in dates]
        if usual >= timedelta(days=28) and len({date.time() for date in dates}) == 1:
            count = Counter(after - before for before, after in pairwise(months)).most_common(1)[0][0]
            if len({date.day for date in dates}) == 1 and dates[0].day <= 28:
                return cls("months", count)
            if all(date.day == monthrange(date.year, date.month)[1] for date in dates):
                return cls("month ends", count)
        weekend = timedelta(days=3)
        if usual == timedelta(days=1) and weekend in steps and all(date.weekday() < 5 for date in dates):
            return cls("business days", 1)
        return cls("seconds", max(round(usual.total_seconds()), 1))

    def after(self, date: datetime) -> datetime:
        """The date of the next row."""
        match self.unit:
            case "seconds":
                return date + timedelta(seconds=self.count)
            case "business days":
                return date + timedelta(days=3 if date.weekday() == 4 else 1)
            case "months" | "month ends":
                years, month = divmod(date.month - 1 + self.count, 12)
                year, last = date.year + years, monthrange(date.year + years, month + 1)[1]
                return date.replace(year=year, month=month + 1, day=last if self.unit == "month ends" else date.day)

    @property
    def daily(self) -> bool:
        """Whether a step is whole days, so that the time of the day tells nothing."""
        return self.unit != "seconds" or self.count % DAY == 0

    @property
    def season(self) -> int:
        """Rows of the season that is usual at this step: a day of hours, a week of days, a year of months; else 1."""
        match self.unit:
            case "business days":
                return 5
            case "months" | "month ends":
                return 12 // self.count if 12 % self.count == 0 else 1
            case "seconds":
                if self.count < DAY:
                    return DAY // self.count if DAY % self.count == 0 else 1
                return {DAY: 7, 7 * DAY: 52}.get(self.count, 1)

    def __str__(self) -> str:
        if self.unit != "seconds":
            name = self.unit[:-1]
            return f"every {name}" if self.count == 1 else f"every {self.count} {self.unit}"
        for seconds in sorted(_NAMES, reverse=True):
            if self.count % seconds == 0:
                count = self.count // seconds
                return f"every {_NAMES[seconds]}" if count == 1 else f"every {count} {_NAMES[seconds]}s"
        return f"every {self.count} seconds"
