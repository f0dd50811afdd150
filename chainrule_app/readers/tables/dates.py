"""Dates in the cells of a table: single ones, and columns of them as whole numbers of a unit of time."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from itertools import product
from zoneinfo import ZoneInfo

from chainrule_app.readers.tables.cell import MISSING, as_number
from chainrule_app.readers.tables.columns import CellColumn, MomentColumn

_EPOCH, _TICK = datetime(1970, 1, 1), timedelta(microseconds=1)
_DAY = 86_400_000_000
_TIMES = {5: "minutes", 8: "seconds", 12: "milliseconds", 15: "microseconds"}  # by the characters of 12:34:56.789
_UNITS = {"": _DAY, "minutes": 60_000_000, "seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1, "auto": 1}
_PATTERNS = {
    "minutes": "%H:%M", "seconds": "%H:%M:%S", "milliseconds": "%H:%M:%S%.3f", "microseconds": "%H:%M:%S%.6f",
}  # fmt: skip
_UTC = "+00:00"
_ZONE = re.compile(r"Z| UTC| ?[+-]\d\d:?\d\d")
_TIME_BEGINS, _ZONE_BEGINS = len("2024-01-31T"), len("2024-01-31T12:30")
_COMPARED = 100  # first cells of a series whose notation all others must have
_LOOKED_AT = 1000  # first cells of a column that tell whether it holds dates
_ORDERS = {".": ("d.m.y",), "/": ("d/m/y", "m/d/y", "y/m/d"), "-": ("d-m-y", "m-d-y")}  # with dots the day is first
_PARTS = re.compile(r"(\d{1,4})([./-])(\d{1,2})\2(\d{1,4})")
_NO_DATE = "not a date"  # neither a number nor missing


_FINER = re.compile(r":\d\d[.,]\d{6}\d*[1-9]")
_MONTH = re.compile(r"(\d{4})[-/](\d{1,2})")
_DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?![^ T])")  # with dots nobody writes the month first
_ZONE_APART = re.compile(r"(?<=:\d\d) (UTC|[+-]\d\d:?\d\d)$")
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

    A zone may be named in brackets after its offset, as in 2024-03-31T03:00+02:00[Europe/Berlin] (RFC 9557). None for
    any other text, such as 01/02/2020, which is in January or in February.
    """
    if cell.endswith("]"):
        cell, bracket, name = cell[:-1].partition("[")
        moment, zone = as_date(cell) if bracket else None, named_zone(name)
        try:
            return None if moment is None or moment.tzinfo is None or zone is None else moment.astimezone(zone)
        except OverflowError:  # beyond the years 1 to 9999 in this zone
            return None
    cell = _ZONE_APART.sub(lambda match: "Z" if match[1] == "UTC" else match[1], cell, count=1)
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


def named_zone(name: str) -> ZoneInfo | None:
    """Return a zone of the IANA database; None where there is no such zone."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def is_date_like(cell: str) -> bool:
    """Return whether a cell writes a date or a time in any notation; a number never does."""
    return as_date(cell) is not None or (as_number(cell) is None and _DATE_LIKE.fullmatch(cell) is not None)


def is_too_fine(cell: str) -> bool:
    """Return whether a time has digits beyond those of a microsecond.

    >>> is_too_fine("2024-01-31 12:30:00.123456789"), is_too_fine("2024-01-31 12:30:00.123456000")
    (True, False)
    """
    return _FINER.search(cell) is not None


def writes_months(cells: Iterable[str]) -> bool:
    """Return whether all cells name months, as 2024-01."""
    return all(re.fullmatch(r"\d{4}-\d\d", cell) for cell in cells)


@dataclass(frozen=True)
class DateFormat:
    """How a column writes dates, by ISO 8601 or in another order, and the unit of the integers that they become.

    >>> dates = DateFormat.find(["2024-01-31", "2024-03-01", "1969-12-31"])
    >>> [dates.number(cell) for cell in ("1970-01-02", "2024-02-30", "1.2.2024")], dates.text(19_754)
    ([1, None, None], '2024-02-01')
    """

    unit: int  # of the integers, microseconds; 0 for the months of 2024-01
    time: str = ""  # last part of the time that is written, as `datetime.isoformat` names it; "" for a date alone
    separator: str = "T"  # of date and time
    zone: str = ""  # suffix of every cell, such as Z or +02:00
    mixed: bool = False  # whether cells have several offsets from UTC: they are moments, and written in UTC
    order: str = ""  # of day, month and year, such as d.m.y; ISO 8601 if empty
    padded: bool = True  # whether days and months below ten have two digits

    def __post_init__(self) -> None:
        if self.order and (not self.unit or self.order not in _ORDERS.get(self.order[1:2], ())):
            raise ValueError(f"dates: expected a known order of day, month and year, got {self.order!r:.40}")
        known = self.unit in (0, 3_600_000_000, *_UNITS.values()) and self.time in _UNITS
        zoned = self.time and _offset(self.zone) is not None
        if not known or len(self.separator) != 1 or not (zoned or not self.zone) or self.mixed > (self.zone == _UTC):
            raise ValueError(f"dates: expected a format of ISO 8601, got {self}")

    @classmethod
    def find(cls, cells: Iterable[str]) -> "DateFormat | None":
        """Return the format of all present cells; None if they differ, or may have the day or the month first."""
        formats = cls.find_all(cells)
        return formats[0] if len(formats) == 1 else None

    @classmethod
    def of_moments(cls, moments: MomentColumn) -> "DateFormat | None":
        """Return the format of typed moments, whose unit is the coarsest of all; None of fewer than three different."""
        ticks = moments.ticks().drop_nulls().unique().to_list()
        if len(ticks) < 3:
            return None
        if moments.dated:
            return cls(_DAY)
        return cls(_coarsest(ticks), "auto", " ", moments.zone)

    @classmethod
    def find_all(cls, cells: Iterable[str]) -> "list[DateFormat]":
        """Return the formats of all present cells, one for each order of day and month."""
        present = [cell for cell in cells if cell not in MISSING]
        if len(present) < 3:
            return []
        parts = _PARTS.match(present[0])
        forms = [("", True), *product(_ORDERS[parts[2]] if parts else (), (True, False))]
        found = {order: fit for order, padded in reversed(forms) if (fit := cls._fitted(present, order, padded))}
        return list(found.values())

    @classmethod
    def _fitted(cls, present: Sequence[str], order: str, padded: bool) -> "DateFormat | None":
        """Return the format of cells in one order."""
        written: DateFormat | None
        written = cls._of(present[0], cls(1, order=order, padded=padded))
        if written.zone and len({_split(written._iso(cell))[1] for cell in present}) > 1:
            written = replace(written, zone=_UTC, mixed=True)
        while written is not None and None in (numbers := [written.number(cell, alike=True) for cell in present]):
            written = written.finer()
        if written is None or not written.unit:
            return written
        ticks = [number * written.unit for number in numbers if number is not None]
        return replace(written, unit=_coarsest(ticks))

    @classmethod
    def _of(cls, cell: str, form: "DateFormat") -> "DateFormat":
        """Return the format of one cell, with the finest unit that it can write; any format for another text."""
        if len(cell) == len("2024-01"):
            return cls(0)
        local, zone = _split(form._iso(cell))
        time = _TIMES.get(len(local) - _TIME_BEGINS, "")
        zone = zone if time and _offset(zone) is not None else ""
        return replace(form, unit=_UNITS[time], time=time, separator=local[10] if time else "T", zone=zone)

    def finer(self) -> "DateFormat | None":
        """Return a format that holds more cells: finer ones, or with fractions in some, or of several offsets."""
        if self.time == "auto" and self.unit > _UNITS["seconds"]:
            return replace(self, unit=_UNITS["seconds"])
        if self.unit > _UNITS[self.time]:
            return replace(self, unit=_UNITS[self.time])
        if self.time in ("seconds", "microseconds"):
            return replace(self, unit=1, time="auto")
        return replace(self, zone=_UTC, mixed=True) if self.zone and not self.mixed else None

    def number(self, cell: str, *, alike: bool = False) -> int | None:
        """Return the integer of a cell; None if it is written otherwise (`alike`: or with another offset)."""
        iso = self._iso(cell)
        local, zone = _split(iso) if self.zone else (iso, "")
        offset = _offset(zone)
        if offset is None or bool(zone) != bool(self.zone) or (alike and not self.mixed and zone != self.zone):
            return None
        try:
            moment = datetime.fromisoformat(local if self.unit else f"{local}-01")
            other_notation = self.time == "auto" and not (self.order or alike)  # as a date alone for its first moment
            if moment.tzinfo is not None or not (other_notation or self._written(moment) == cell.removesuffix(zone)):
                return None
            moment += (_offset(self.zone) or timedelta(0)) - offset
        except (ValueError, OverflowError):
            return None
        if not self.unit:
            return 12 * moment.year + moment.month - 1
        number, rest = divmod((moment - _EPOCH) // _TICK, self.unit)
        return None if rest else number

    def text(self, number: int) -> str:
        """Return the cell of an integer."""
        if not self.unit:
            return f"{number // 12:04}-{number % 12 + 1:02}"
        return self._written(_EPOCH + number * self.unit * _TICK) + self.zone

    def _written(self, moment: datetime) -> str:
        """Write a moment without its zone."""
        if not self.unit:
            return f"{moment.year:04}-{moment.month:02}"
        iso = moment.isoformat(self.separator, self.time) if self.time else moment.date().isoformat()
        if not self.order:
            return iso
        digits = 2 if self.padded else 1
        part = {"d": f"{moment.day:0{digits}}", "m": f"{moment.month:0{digits}}", "y": f"{moment.year:04}"}
        return self.order[1].join(part[name] for name in self.order[::2]) + iso[len("2024-01-31") :]

    def _iso(self, cell: str) -> str:
        """Return a cell by ISO 8601, unless it is written in another order."""
        parts = _PARTS.match(cell) if self.order else None
        if parts is None or parts[2] != self.order[1]:
            return cell
        part = dict(zip(self.order[::2], parts.group(1, 3, 4), strict=True))
        return f"{part['y']:0>4}-{part['m']:0>2}-{part['d']:0>2}{cell[parts.end() :]}"

    def rewritten(self, cell: str) -> str:
        """Return a date in another notation of ISO 8601 as the format writes it; any other text as it is."""
        local, zone = _split(cell)
        try:
            moment = datetime.fromisoformat(local)
            written = self._written(moment)
            return written + zone if datetime.fromisoformat(self._iso(written)) == moment else cell
        except (ValueError, TypeError):
            return cell

    def integers(self, cells: CellColumn, *, alike: bool = False) -> CellColumn:
        """Write the integers of a column's dates; any other text stays one, and a number becomes one."""
        if isinstance(cells, MomentColumn):
            if self.unit and bool(cells.zone) == bool(self.zone):
                return cells.integers(self.unit)
            cells = cells.as_texts()
        return cells.by_cell((self, alike), lambda own: self._integers(own, alike=alike))

    def _integers(self, cells: CellColumn, *, alike: bool) -> CellColumn:
        pattern = self._pattern()
        if pattern is not None and (moments := cells.moments(pattern, self.zone)) is not None:
            return moments.integers(self.unit)
        texts = cells.texts()
        numbers = {cell: None if cell is None else self.number(cell, alike=alike) for cell in dict.fromkeys(texts)}
        written = {
            cell: str(number) if number is not None else cell if cell is None or as_number(cell) is None else _NO_DATE
            for cell, number in numbers.items()
        }
        return CellColumn([written[cell] for cell in texts], exact=not cells.missing_texts)

    def _pattern(self) -> str | None:
        """Return the pattern of chrono's strftime that all cells without their zone have; None without such a one."""
        if not self.unit or self.mixed or self.time == "auto":
            return None
        part = {"d": "%d" if self.padded else "%-d", "m": "%m" if self.padded else "%-m", "y": "%Y"}
        day = self.order[1].join(part[name] for name in self.order[::2]) if self.order else "%Y-%m-%d"
        return day + (self.separator + _PATTERNS[self.time] if self.time else "")


def _coarsest(ticks: Sequence[int]) -> int:
    """Return the coarsest unit of which all numbers of microseconds are multiples."""
    units = (_DAY, 3_600_000_000, *_UNITS.values())
    return next(unit for unit in units if all(tick % unit == 0 for tick in ticks))


def _split(cell: str) -> tuple[str, str]:
    """Split a date and time into its local time and its zone, which may be empty."""
    zone = _ZONE.search(cell, _ZONE_BEGINS)
    return (cell, "") if zone is None else (cell[: zone.start()], cell[zone.start() :])


@lru_cache
def _offset(zone: str) -> timedelta | None:
    """Return the offset of a zone from UTC, zero without a zone; None where there is no such zone."""
    if zone in ("", " UTC"):
        return timedelta(0)
    if not _ZONE.fullmatch(zone):
        return None
    try:
        return datetime.strptime(zone.strip(), "%z").utcoffset()
    except ValueError:
        return None


def read_dates(parts: Sequence[CellColumn]) -> tuple[list[datetime], str] | None:
    """Return the dates of a column, all of which are written alike, and the notation as `datetime.strptime` takes it.

    The notation is empty for ISO 8601 and day.month.year. None where cells are no dates, are missing or are written in
    several ways, or where day and month cannot be told apart.
    """
    if all(isinstance(part, MomentColumn) and not part.zone for part in parts):
        return _all_present(parts, None, "")
    first = dict.fromkeys(text for text in parts[0].part(slice(_COMPARED)).texts() if text is not None)
    found = []
    for dates in DateFormat.find_all(first):
        if (pattern := dates._pattern()) is not None:
            zone = timezone(_offset(dates.zone) or timedelta(0)) if dates.zone else None
            notation = pattern.replace("%-", "%").replace("%.3f", ".%f").replace("%.6f", ".%f") + "%z" * bool(zone)
            columns = [part.moments(pattern, dates.zone) for part in parts]
            found.append(_all_present(columns, zone, "" if dates.order in ("", "d.m.y") else notation))
    fitting = [own for own in found if own is not None]
    return fitting[0] if len(fitting) == 1 else None


def _all_present(
    columns: Iterable[CellColumn | None], zone: timezone | None, notation: str
) -> tuple[list[datetime], str] | None:
    """Return the moments of columns in a zone and their notation; None where one is missing."""
    dates = list[datetime]()
    for column in columns:
        moments = column.datetimes() if isinstance(column, MomentColumn) else [None]
        if None in moments:
            return None
        dates += (moment.replace(tzinfo=zone) for moment in moments if moment is not None)
    return dates, notation


def find_date_formats(columns: Mapping[str, CellColumn], types: Mapping[str, str]) -> dict[str, DateFormat | None]:
    """Return the format of each column that holds dates, by its first cells, unless a user names another kind."""
    formats = dict[str, DateFormat | None]()
    for name, column in columns.items():
        if types.get(name, "date") == "date":
            first = column.part(slice(_LOOKED_AT))
            if isinstance(first, MomentColumn):
                formats[name] = DateFormat.of_moments(first)
                continue
            cells = [cell for cell in dict.fromkeys(first.texts()) if cell is not None]
            dates = DateFormat.find(cells)
            if dates is None and name in types:  # a cell that differs is named later
                dates = DateFormat.find(cells[:4])
            if dates is not None:
                formats[name] = dates
    return formats
