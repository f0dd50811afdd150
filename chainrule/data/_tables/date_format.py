"""Dates in the cells of a table, as whole numbers of months, days, hours, minutes, seconds or microseconds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from chainrule.data._tables.cell_column import MISSING, CellColumn, ListedCells, as_number

_EPOCH, _TICK = datetime(1970, 1, 1), timedelta(microseconds=1)
_DAY = 86_400_000_000
_TIMES = {5: "minutes", 8: "seconds", 12: "milliseconds", 15: "microseconds"}  # by the characters of 12:34:56.789
_UNITS = {"": _DAY, "minutes": 60_000_000, "seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1, "auto": 1}
_ZONES = ("Z", "+00:00", " UTC")
_LOOKED_AT = 1000  # first cells of a column that tell whether it holds dates
_NO_DATE = "not a date"  # neither a number nor missing


@dataclass(frozen=True)
class DateFormat:
    """How a column writes dates (ISO 8601), and the unit of the integers that they become.

    >>> dates = DateFormat.find(["2024-01-31", "2024-03-01", "1969-12-31"])
    >>> [dates.number(cell) for cell in ("1970-01-02", "2024-02-30", "1.2.2024")], dates.text(19_754)
    ([1, None, None], '2024-02-01')
    """

    unit: int  # of the integers, microseconds; 0 for the months of 2024-01
    time: str = ""  # last part of the time that is written, as `datetime.isoformat` names it; "" for a date alone
    separator: str = "T"  # of date and time
    zone: str = ""  # suffix of every cell

    def __post_init__(self) -> None:
        known = self.unit in (0, 3_600_000_000, *_UNITS.values()) and self.time in _UNITS
        if not known or len(self.separator) != 1 or self.zone not in ("", *_ZONES):
            raise ValueError(f"dates: expected a format of ISO 8601, got {self}")

    @classmethod
    def find(cls, cells: Iterable[str]) -> "DateFormat | None":
        """Return the format of all present cells, with the coarsest unit that holds each; None if they differ."""
        present = [cell for cell in cells if cell not in MISSING]
        if len(present) < 3:
            return None
        written: DateFormat | None = cls._of(present[0])
        while written is not None and None in (numbers := [written.number(cell) for cell in present]):
            written = written.finer()
        if written is None or not written.unit:
            return written
        ticks = [number * written.unit for number in numbers if number is not None]
        units = (_DAY, 3_600_000_000, *_UNITS.values())
        return replace(written, unit=next(unit for unit in units if all(tick % unit == 0 for tick in ticks)))

    @classmethod
    def _of(cls, cell: str) -> "DateFormat":
        """Return the format of one cell, with the finest unit that it can write; any format for another text."""
        if len(cell) == len("2024-01"):
            return cls(0)
        zone = next((zone for zone in _ZONES if cell.endswith(zone)), "")
        time = _TIMES.get(len(cell) - len(zone) - len("2024-01-31T"), "")
        return cls(_UNITS[time], time, cell[10] if time else "T", zone if time else "")

    def finer(self) -> "DateFormat | None":
        """Return the same format with its finest unit, or else with fractions in some cells; None if it has both."""
        if self.unit > _UNITS[self.time]:
            return replace(self, unit=_UNITS[self.time])
        return replace(self, unit=1, time="auto") if self.time in ("seconds", "microseconds") else None

    def number(self, cell: str) -> int | None:
        """Return the integer of a cell; None if it is written in another way, or lies between two integers."""
        try:
            moment = datetime.fromisoformat(cell.removesuffix(self.zone) if self.unit else f"{cell}-01")
        except ValueError:
            return None
        if self.unit:
            number, rest = divmod((moment.replace(tzinfo=None) - _EPOCH) // _TICK, self.unit)
        else:
            number, rest = 12 * moment.year + moment.month - 1, 0
        return number if not rest and self.text(number) == cell else None

    def text(self, number: int) -> str:
        """Return the cell of an integer."""
        if not self.unit:
            return f"{number // 12:04}-{number % 12 + 1:02}"
        moment = _EPOCH + number * self.unit * _TICK
        return (moment.isoformat(self.separator, self.time) if self.time else moment.date().isoformat()) + self.zone

    def integers(self, cells: CellColumn) -> ListedCells:
        """Write the integers of a column's dates; any other text stays one, and a number becomes one."""
        texts = cells.texts()
        numbers = {cell: self.number(cell) for cell in dict.fromkeys(texts)}
        written = {
            cell: str(number) if number is not None else cell if as_number(cell) is None else _NO_DATE
            for cell, number in numbers.items()
        }
        return ListedCells([written[cell] for cell in texts])


def find_date_formats(columns: Mapping[str, CellColumn], types: Mapping[str, str]) -> dict[str, DateFormat | None]:
    """Return the format of each column that holds dates, by its first cells, unless a user names another kind."""
    formats = dict[str, DateFormat | None]()
    for name, column in columns.items():
        if types.get(name, "date") == "date":
            cells = list(dict.fromkeys(column.part(slice(_LOOKED_AT)).texts()))
            dates = DateFormat.find(cells)
            if dates is None and name in types:  # a cell that differs is named later
                dates = DateFormat.find(cells[:4])
            if dates is not None:
                formats[name] = dates
    return formats
