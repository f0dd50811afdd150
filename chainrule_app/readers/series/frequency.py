"""The regular step between the rows of a series, and the features of the calendar."""

import math
from calendar import monthrange
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from chainrule.option_error import UserError, option
from chainrule_app.readers.origin import Origin

Unit = Literal["seconds", "microseconds", "business days", "months", "month ends"]
DAY = 86_400
_MOST = 10**9
_MICROSECOND, _PER_SECOND = timedelta(microseconds=1), 10**6
_LATEST_CHANGE = 3  # hour of the day to which clocks are set back
_ROWS_A_HARMONIC, _MOST_HARMONICS = 100, 3
_NAMES = {DAY: "day", 3600: "hour", 60: "minute", 7 * DAY: "week", 1: "second"}


@dataclass(frozen=True)
class Frequency:
    """`count` units from one row to the next."""

    # seconds, or microseconds of steps in between; business days, Monday to Friday; months, or their last days
    unit: Unit
    count: int  # 1 to 10^9, or as many seconds
    day: int = 0  # of months whose rows are of the 29th or 30th: this day, or the last of a month without it; else 0

    def __post_init__(self) -> None:
        if self.day not in ((0, 29, 30) if self.unit == "months" else (0,)):
            raise ValueError(f"day: expected 0, or 29 or 30 of months, got {self.day} of {self.unit}")
        most = _MOST * _PER_SECOND if self.unit == "microseconds" else _MOST
        if not 1 <= self.count <= most:
            raise ValueError(f"count: expected 1 to {most:,} {self.unit} from a row to the next, got {self.count:,}")

    @classmethod
    def find(
        cls,
        dates: Sequence[datetime],
        lines: Sequence[int],  # the line of each in the file, for errors
        where: Origin,
        known: "Frequency | None" = None,
    ) -> "Frequency":
        """Return the usual step between dates, which must come in order; `complete_dates` finds what is missing.

        Where a step is known, another is returned only if all dates have it.
        """
        places = list(zip(dates, lines, strict=True))
        cls._check_repeated(places, where)
        for (before, _), (date, line) in pairwise(places):
            if date > before:
                continue
            twice = date == before
            what = f"the date {date} comes twice" if twice else f"{date} comes after {before}"
            remedy = "keep one row of each date" if twice else "sort the rows by date"
            back = before - date <= timedelta(hours=1) and date.hour <= _LATEST_CHANGE
            if back and not cls._most_common(dates).daily:
                remedy = (
                    f"if clocks were set back there, write the offset from UTC in every row, as {before}+02:00 and "
                    f"{date}+01:00, which keeps both; else {remedy}"
                )
            raise ValueError(f"{where.at(line)}: {what}: {remedy}")
        usual = cls._most_common(dates)
        if known is None or (usual != known and usual.fits(dates) and not known.fits(dates)):
            return usual
        return known

    def fits(self, dates: Sequence[datetime]) -> bool:
        """Return whether each date is a step after the one before."""
        return all(self.after(before) == date for before, date in pairwise(dates))

    @staticmethod
    def _check_repeated(places: Sequence[tuple[datetime, int]], where: Origin) -> None:
        """Refuse data in which many dates repeat: single rows are not what is wrong there."""
        seen: set[datetime] = set()
        repeated = []
        for date, line in places:
            if date in seen:
                repeated.append((date, line))
            seen.add(date)
        if len(repeated) > max(1, len(places) // 10):
            date, line = repeated[0]
            raise UserError(
                f"{where.at(line)}: expected each date once, got {date} again, as in {len(repeated):,} of "
                f"{len(places):,} rows",
                f"write date and time into one column, name the column of several series with {option('item')}, or "
                f"train with {option('date', 'none')} to count rows only",
            )

    @classmethod
    def _most_common(cls, dates: Sequence[datetime]) -> "Frequency":
        steps = [after - before for before, after in pairwise(dates)]
        usual = Counter(steps).most_common(1)[0][0]
        months = [12 * date.year + date.month for date in dates]
        if usual >= timedelta(days=28) and len({date.time() for date in dates}) == 1:
            count = Counter(after - before for before, after in pairwise(months)).most_common(1)[0][0]
            day = max(date.day for date in dates)
            if day <= 28 and len({date.day for date in dates}) == 1:
                return cls("months", count)
            lasts = [monthrange(date.year, date.month)[1] for date in dates]
            if all(date.day == last for date, last in zip(dates, lasts, strict=True)):
                return cls("month ends", count)
            if 28 < day < 31 and all(date.day == min(day, last) for date, last in zip(dates, lasts, strict=True)):
                return cls("months", count, day)
        weekend = timedelta(days=3)
        if usual == timedelta(days=1) and weekend in steps and all(date.weekday() < 5 for date in dates):
            return cls("business days", 1)
        seconds, rest = divmod(usual // _MICROSECOND, _PER_SECOND)
        return cls("microseconds", max(seconds * _PER_SECOND + rest, 1)) if rest else cls("seconds", max(seconds, 1))

    def after(self, date: datetime) -> datetime:
        """Return the date of the next row."""
        try:
            return self._after(date)
        except (OverflowError, ValueError):  # of days; of months
            raise ValueError(f"expected dates up to the year 9999, got one {self} after {date}") from None

    def _after(self, date: datetime) -> datetime:
        match self.unit:
            case "seconds":
                return date + timedelta(seconds=self.count)
            case "microseconds":
                return date + timedelta(microseconds=self.count)
            case "business days":
                return date + timedelta(days=3 if date.weekday() == 4 else 1)
            case "months" | "month ends":
                years, month = divmod(date.month - 1 + self.count, 12)
                year, last = date.year + years, monthrange(date.year + years, month + 1)[1]
                day = last if self.unit == "month ends" else min(self.day or date.day, last)
                return date.replace(year=year, month=month + 1, day=day)

    @property
    def daily(self) -> bool:
        """True if a step is whole days, so that the time of the day tells nothing."""
        return self.unit != "microseconds" and (self.unit != "seconds" or self.count % DAY == 0)

    @property
    def season(self) -> int:
        """Rows of the season that is usual at this step: a day of hours, a week of days, a year of months; else 1."""
        match self.unit:
            case "business days":
                return 5
            case "months" | "month ends":
                return 12 // self.count if 12 % self.count == 0 else 1
            case "microseconds":
                return 1
            case "seconds":
                if self.count < DAY:
                    return DAY // self.count if DAY % self.count == 0 else 1
                return {DAY: 7, 7 * DAY: 52}.get(self.count, 1)

    @property
    def seconds(self) -> float:
        """Seconds from a row to the next, on average."""
        units = {"business days": DAY, "months": 30 * DAY, "month ends": 30 * DAY, "microseconds": 1 / _PER_SECOND}
        return self.count * units.get(self.unit, 1)

    def __str__(self) -> str:
        if self.unit == "microseconds" and self.count % 1000 == 0:
            return f"every {self.count // 1000} milliseconds".replace("every 1 milliseconds", "every millisecond")
        if self.unit != "seconds":
            name = self.unit[:-1]
            return f"every {name}" if self.count == 1 else f"every {self.count} {self.unit}"
        seconds = max(seconds for seconds in _NAMES if self.count % seconds == 0)
        count = self.count // seconds
        return f"every {_NAMES[seconds]}" if count == 1 else f"every {count} {_NAMES[seconds]}s"


Floats = npt.NDArray[np.float64]
CYCLES: dict[str, tuple[int, Callable[[datetime], float]]] = {  # seconds, and the place in it from 0 to 1
    "time of day": (
        DAY,
        lambda date: (date.hour * 3600 + date.minute * 60 + date.second + date.microsecond / 1e6) / DAY,
    ),
    "day of week": (7 * DAY, lambda date: date.weekday() / 7),
    "day of year": (366 * DAY, lambda date: (date.timetuple().tm_yday - 1) / 366),
}


def calendar_names(frequency: Frequency, dates: Sequence[datetime]) -> list[str]:
    """Return the cycles that dates go through twice or more, so that no single dates are memorised."""
    step, span = frequency.seconds, (dates[-1] - dates[0]).total_seconds()
    return [name for name, (cycle, _) in CYCLES.items() if step < cycle and 2 * cycle <= span + step]


def harmonics(frequency: Frequency, name: str, rows: int) -> int:
    """Return how many sines and cosines describe a cycle: up to three, one for a hundred rows, as far as steps allow.

    >>> [harmonics(Frequency("seconds", DAY), "day of week", rows) for rows in (90, 250, 5000)]
    [1, 2, 3]
    >>> harmonics(Frequency("months", 3), "day of year", 5000)
    1
    """
    steps = round(CYCLES[name][0] / frequency.seconds)
    return max(1, min(rows // _ROWS_A_HARMONIC, _MOST_HARMONICS, (steps - 1) // 2))


def calendar_features(dates: Sequence[datetime], numbers: Mapping[str, int]) -> Floats:
    """Sines and cosines of the place in each cycle, (T, N), so many pairs of each: Sunday is as near to Monday."""
    columns = []
    for name, number in numbers.items():
        angles = np.array([math.tau * CYCLES[name][1](date) for date in dates])
        for harmonic in range(1, number + 1):
            columns += [np.sin(harmonic * angles), np.cos(harmonic * angles)]
    return np.stack(columns, 1) if columns else np.zeros((len(dates), 0))


def complete_dates(
    dates: Sequence[datetime], lines: Sequence[int], frequency: Frequency, where: Origin
) -> tuple[list[datetime], list[int]]:
    """Return all dates from the first to the last, and the index of each input date among them.

    >>> days = Frequency("seconds", 86_400)
    >>> found, places = complete_dates([datetime(2024, 2, 28), datetime(2024, 3, 1)], [2, 3], days, Origin("sales.csv"))
    >>> [date.day for date in found], places
    ([28, 29, 1], [0, 2])
    """
    complete, places, most = [dates[0]], [0], 2 * len(dates)
    for date, line in zip(dates[1:], lines[1:], strict=True):
        while complete[-1] < date and len(complete) < most:
            complete.append(frequency.after(complete[-1]))
        if complete[-1] < date:
            raise UserError(
                f"{where.at(line)}: rows are {frequency}, but more dates are missing than present up to {date}",
                f"train with {option('date', 'none')} to count rows only",
            )
        if complete[-1] > date:
            raise UserError(
                f"{where.at(line)}: rows are {frequency}, but {date} is not a whole number of steps after the date "
                "before it",
                f"move it, or train with {option('date', 'none')} to count rows only",
            )
        places.append(len(complete) - 1)
    return complete, places


def spread_out(values: Floats, places: Sequence[int]) -> Floats:
    """Rows (N, S) at their places, up to the last of these, with NaN in the rows between."""
    spread = np.full((places[-1] + 1, values.shape[1]), np.nan)
    spread[places] = values
    return spread


def without_gaps(values: Floats) -> Floats:
    """Series (T, ...) with the last known value in place of each that is missing; before the first, that one.

    >>> without_gaps(np.array([np.nan, 1.0, np.nan, 3.0])).tolist()
    [1.0, 1.0, 1.0, 3.0]
    """
    known = ~np.isnan(values)
    places = np.where(known, np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1)), 0)
    last = np.maximum(np.maximum.accumulate(places), known.argmax(0))
    filled: Floats = np.take_along_axis(values, last, 0)
    return filled


def fill_in(values: Floats, names: Sequence[str], where: Origin) -> Floats:
    """Columns (T, S) whose NaN repeat the last value before, so that no row depends on a later one.

    >>> fill_in(np.array([[1.0], [np.nan], [np.nan], [4.0]]), ["heat"], Origin("sales.csv"))[:, 0].tolist()
    [1.0, 1.0, 1.0, 4.0]
    """
    present = ~np.isnan(values)
    for name, column in zip(names, present.T, strict=True):
        for end, index in (("first", 0), ("last", -1)):
            if not column[index]:
                raise ValueError(
                    f"{where}, column {name!r}: the {end} value is missing, though other columns have one there: "
                    "add it, or remove the rows or the column"
                )
    return without_gaps(values)


def on_one_clock(dates: Sequence[datetime], utc_offset: int | None = None) -> tuple[list[datetime], int | None]:
    """Local times, and the offset of their clock from UTC in seconds; None where no zone is to be told.

    Where all dates have the same time of day they tell days, and each keeps its own local time. Else the clock is that
    of the first date, whatever comes after it: where offsets change, as with daylight saving, it does not.
    """
    if {date.utcoffset() for date in dates} == {None}:
        return list(dates), None
    if utc_offset is None:
        days = _days(dates)
        if days is not None:
            return days, None
        utc_offset = _offset(dates[0]) // timedelta(seconds=1)
    return [as_shown(date, utc_offset) for date in dates], utc_offset


def _days(dates: Sequence[datetime]) -> list[datetime] | None:
    """Return local times if all have one time of day; None for others.

    A time that clocks skipped, as in the zones whose clocks go forward at midnight, is later on that day.
    """
    usual, count = Counter(date.time() for date in dates).most_common(1)[0]
    if 2 * count < len(dates):
        return None
    moments = sorted(set(dates))
    first = moments[0] - timedelta(days=1) if moments[0].year > 1 else moments[0]  # a named zone knows its offset there
    skipped = {date: _offset(date) - _offset(before) for before, date in pairwise([first, *moments])}
    days = [datetime.combine(date, usual) for date in dates]
    same = all(
        day <= date.replace(tzinfo=None) <= day + max(skipped[date], timedelta(0))
        for day, date in zip(days, dates, strict=True)
    )
    return days if same else None


def _offset(date: datetime) -> timedelta:
    return date.utcoffset() or timedelta(0)


def as_shown(date: datetime, utc_offset: int | None) -> datetime:
    """Return a date as the clock shows it, without a zone: its own local time where no offset is given."""
    if date.tzinfo is None or utc_offset is None:
        return date.replace(tzinfo=None)
    try:
        return date.astimezone(clock(utc_offset)).replace(tzinfo=None)
    except OverflowError:
        raise ValueError(f"expected dates in the years 1 to 9999 in all zones, got {date}") from None


def clock(utc_offset: int) -> timezone:
    """Return the zone of an offset in seconds."""
    return timezone(timedelta(seconds=utc_offset))
