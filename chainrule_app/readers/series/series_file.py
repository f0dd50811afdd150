"""A file of series: a row for each moment, a column for each series."""

from dataclasses import dataclass
from datetime import datetime, tzinfo
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from chainrule.option_error import OptionError, UserError, option
from chainrule_app.printing import listed
from chainrule_app.readers.origin import Origin
from chainrule_app.readers.series.cells import MOST_CELLS, Cells, Places
from chainrule_app.readers.series.frequency import (
    Frequency,
    clock,
    complete_dates,
    fill_in,
    on_one_clock,
    spread_out,
    without_gaps,
)
from chainrule_app.readers.tables.cell import as_number, is_odd_number
from chainrule_app.readers.tables.dates import as_date, is_date_like, is_too_fine, read_dates, writes_months
from chainrule_app.readers.tables.frame_table import FrameTable
from chainrule_app.readers.tables.table_file import TableFile, TableSource, open_rows

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """The rows of one item, or of a whole file with a column for each series."""

    step: Frequency | None
    dates: list[datetime]
    values: Floats
    known: Floats
    repeated: int


@dataclass(frozen=True)
class Reader:
    file: "TableFile | FrameTable"
    cells: Cells
    where: Origin
    targets: list[str]
    covariates: list[str]
    past: int  # how many of the covariates, the last ones, are known up to the present only

    def read(self, rows: Places, dates: list[datetime], frequency: Frequency | None, what: str = "") -> Part:
        """Numbers of some rows at regular steps; `what` names the item in errors."""
        where, lines, step = self.where, self.cells.lines[rows].tolist(), None
        if dates:
            step = Frequency.find(dates, lines, where, frequency)
        places = [self.file.names.index(name) for name in self.targets]
        present = np.flatnonzero(~np.logical_and.reduce([self.cells.missing(index)[rows] for index in places]))
        if not len(present):
            raise ValueError(f"{where}: expected values in {what or listed(self.targets)}, got only empty cells")
        last = int(present[-1]) + 1
        values = _numbers(self.cells, rows[:last], places, self.targets, where)
        known_places = [self.file.names.index(name) for name in self.covariates]
        covariates = _numbers(self.cells, rows, known_places, self.covariates, where, truth_values=True)
        if step is not None:
            dates, row_places = complete_dates(dates, lines, step, where)
            values, covariates = spread_out(values, row_places[:last]), spread_out(covariates, row_places)
        ahead = len(self.covariates) - self.past
        filled = [fill_in(covariates[:, :ahead], self.covariates[:ahead], where), without_gaps(covariates[:, ahead:])]
        repeated = int(np.isnan(covariates[: len(values)]).sum())
        return Part(step, dates, values, np.concatenate(filled, 1), repeated)


@dataclass(frozen=True)
class Layout(Part):
    """All items side by side, see `SeriesFile`."""

    spans: npt.NDArray[np.int64]


def lay_out(
    reader: Reader,
    dates: list[datetime],
    groups: dict[str, list[int]],
    frequency: Frequency | None,
) -> Layout:
    """Items side by side, by their dates; without dates from the first row on."""
    parts: dict[str, Part] = {}
    for name in sorted(groups, key=lambda name: -len(groups[name])):  # the longest tells the step
        numbers = sorted(groups[name], key=dates.__getitem__) if dates else groups[name]
        own, line = np.array(numbers), int(reader.cells.lines[numbers[0]])
        if dates and len(own) < 2:
            raise ValueError(f"{reader.where.at(line)}: expected at least two rows of {name!r:.60}, got one")
        part = reader.read(own, [dates[number] for number in numbers] if dates else [], frequency, name)
        if part.step is not None and frequency is not None and part.step != frequency:
            raise ValueError(
                f"{reader.where.at(line)}: expected rows {frequency}, as for other items, got rows {part.step} "
                f"of {name!r:.60}"
            )
        frequency = part.step
        parts[name] = part
    grid: list[datetime] = []
    if frequency is not None:
        grid, last = [min(part.dates[0] for part in parts.values())], max(part.dates[-1] for part in parts.values())
        most = MOST_CELLS // len(parts)
        while grid[-1] < last:
            grid.append(frequency.after(grid[-1]))
            if len(grid) > most:
                raise ValueError(
                    f"{reader.where}: expected at most {MOST_CELLS:,} items × dates, got more up to {last}: keep the "
                    "last rows, or fewer items"
                )
    row_of = {date: row for row, date in enumerate(grid)}
    starts = []
    for name in groups:
        first = parts[name].dates[0] if grid else None
        if first is not None and first not in row_of:
            raise ValueError(
                f"{reader.where}: {name!r:.60} begins at {first}, which is not a whole number of steps after "
                f"{grid[0]}, as rows are {frequency}: move its dates"
            )
        starts.append(0 if first is None else row_of[first])
    ordered = [parts[name] for name in groups]
    spans = np.array([[start, start + len(part.values)] for start, part in zip(starts, ordered, strict=True)])
    length = max(start + len(part.known) for start, part in zip(starts, ordered, strict=True))
    count = len(ordered)
    if length * count * (1 + len(reader.covariates)) > MOST_CELLS:
        raise ValueError(f"{reader.where}: expected at most {MOST_CELLS:,} items × rows, got more: keep the last rows")
    values = np.full((int(spans.max()), count), np.nan)
    covariates = np.full((length, count, len(reader.covariates)), np.nan)
    for number, (part, (start, stop)) in enumerate(zip(ordered, spans, strict=True)):
        values[start:stop, number] = part.values[:, 0]
        covariates[start : start + len(part.known), number] = part.known
    repeated = sum(part.repeated for part in ordered)
    return Layout(frequency, grid, values, covariates, repeated, spans)


def static_cells(
    cells: Cells, numbers: list[int], places: list[int], file: "TableFile | FrameTable", where: Origin
) -> tuple[str, ...]:
    """Return the cells of an item that are the same in all its rows."""
    for index in places:
        texts = cells.texts(index)
        for number in numbers:
            if texts[number] != texts[numbers[0]]:
                raise UserError(
                    f"{where.at(int(cells.lines[number]))}, column {file.names[index]!r}: expected "
                    f"{texts[numbers[0]]!r:.60} in all rows, got {texts[number]!r:.60}",
                    f"name it with {option('covariates')}, if it changes",
                )
    return tuple(cells.texts(index)[numbers[0]] or "" for index in places)


def _numbers(
    cells: Cells,
    rows: Places,
    places: list[int],
    names: list[str],
    where: Origin,
    *,
    truth_values: bool = False,
) -> Floats:
    """Return the numbers of some columns; NaN for an empty cell."""
    numbers = np.full((len(rows), len(places)), np.nan)
    bad = []  # the first row and the column of what is no number
    for column, index in enumerate(places):
        numbers[:, column] = cells.numbers(index)[rows]
        unknown = np.isnan(numbers[:, column])
        if unknown.any():
            missing = cells.missing(index)[rows]
            if truth_values:
                texts = cells.texts(index)
                for row in np.flatnonzero(unknown & ~missing).tolist():
                    numbers[row, column] = TRUTH_VALUES.get((texts[rows[row]] or "").lower(), np.nan)
            unknown = np.isnan(numbers[:, column]) & ~missing
            bad += [(row, column) for row in np.flatnonzero(unknown)[:1].tolist()]
    if bad:
        row, column = min(bad)
        cell = cells.texts(places[column])[rows[row]]
        remedy = "write it with a decimal point and without a unit" if is_odd_number(cell or "") else "write a number"
        place = f"{where.at(int(cells.lines[rows[row]]))}, column {names[column]!r}"
        raise UserError(f"{place}: expected a finite number, got {cell!r:.80}", remedy)
    for name, series in zip(names, numbers.T, strict=True):
        if np.isnan(series).all():
            raise ValueError(f"{where}, column {name!r}: expected values, got only empty cells")
    return numbers


TRUTH_VALUES = {"true": 1.0, "false": 0.0}
DATE_NAMES = frozenset(("date", "time", "datetime", "timestamp", "month", "day", "ds"))
ITEM_NAMES = frozenset(("item_id", "unique_id", "series_id", "item"))
ALL = "all"


@dataclass(frozen=True)
class SeriesFile:
    """The series of a file, checked: numbers, or NaN where one is missing, at regular steps.

    A file in long form has an item in each row, whose series may begin and end anywhere. Where they have dates they
    are laid out by these, else each begins in the first row; outside its span a series is NaN.
    """

    where: Origin
    targets: tuple[str, ...]  # names of the series that are forecast; of a file in long form its items
    covariates: tuple[str, ...]  # names of the columns that are known in advance, and of those that are not
    date: str | None  # the name of the column of dates; None for a file without dates
    frequency: Frequency | None  # the step between dates; None without any
    dates: list[datetime]  # (N,) local times, empty without dates
    # of their clock, in seconds; None where dates have no zone, or tell days; see `on_one_clock`
    utc_offset: int | None
    monthly: bool  # whether dates are written as months, 2024-01
    values: Floats  # (T, S) the targets, T <= N: rows after them, with empty targets, are the future
    known: Floats  # (N, F) the covariates, the last value before where one is missing; of a file in long form (N, S, F)
    repeated: int  # how many of the covariates are missing
    spans: npt.NDArray[np.int64]  # (S, 2) the first row of each series, and the one after its last
    item: str | None = None  # the name of the column of items; None for a file with a column for each series
    value: str = ""  # the name of the column of their values
    statics: tuple[tuple[str, ...], ...] = ()  # of each item, the cells of the columns that tell what never changes
    date_format: str = ""  # how dates are written, see `datetime.strptime`; empty for ISO 8601
    header: bool = True  # whether the first row names the columns
    zone: tzinfo | None = None  # the zone that dates name in brackets

    @property
    def future(self) -> int:
        """Rows at the end whose targets are empty."""
        return len(self.known) - len(self.values)

    def date_text(self, date: datetime) -> str:
        """Return a date as this file writes it: a month, a day, or the moment with its offset in the file's zone."""
        if self.date_format:
            return date.strftime(self.date_format)
        if self.monthly:
            return date.isoformat()[:7]
        if self.frequency is not None and self.frequency.daily:
            return date.date().isoformat()
        if self.utc_offset is not None:
            own = clock(self.utc_offset)
            date = date.replace(tzinfo=own).astimezone(self.zone or own)
        return date.isoformat(sep=" ")


def read_series(
    source: TableSource,  # CSV, with a header or without, compressed by gzip or not; or a table in memory
    target: str | None,  # names of the series to forecast, separated by commas
    covariates: str = "",  # names of the columns that are known in advance, separated by commas
    date: str = "auto",  # the name of the column of dates
    *,
    past_covariates: str = "",  # names of those that are known up to the present only
    header: bool | None = None,  # whether the first row is a header; None looks
    item: str = "auto",  # the column that names the series of each row, of a file in long form
    static: str = "",  # names of columns that are the same in all rows of an item, separated by commas
    date_format: str = "",  # how dates are written, such as "%d/%m/%Y"; ISO 8601 and day.month.year if empty
    frequency: Frequency | None = None,  # the step between dates where it is known
    utc_offset: int | None = None,  # of the clock that dates with a zone are read by, in seconds
    called: str | None = None,  # the name of the data in errors; the path by default
) -> SeriesFile:
    """Read a file of series."""
    file = open_rows(source, header=header, local=True)
    rows, where = Cells(file), file.origin if called is None else Origin(called)
    if not len(rows):
        raise ValueError(f"{file.origin}: expected rows under the header, got none")
    past_names = _columns(file, past_covariates, "past_covariates")
    known_names = _columns(file, covariates, "covariates") + past_names
    if twice := [name for index, name in enumerate(known_names) if name in known_names[:index]]:
        raise OptionError("past_covariates", f"{twice[0]!r} is among the covariates too", "name it in one of them")
    static_names = _columns(file, static, "static")
    named = [] if target in (None, ALL) else _columns(file, target or "", "target")
    cells = {name: rows.first(index) for index, name in enumerate(file.names)}
    item_name = _item_column(file, [*named, *known_names], item)
    if static_names and item_name is None:
        raise OptionError("static", "expected a column of items, as in long form", f"name it with {option('item')}")
    taken = {*known_names, *named, *static_names, item_name}
    open_cells = {name: cell for name, cell in cells.items() if name not in taken}
    date_name = _date_column(file, cells, open_cells, date, date_format)
    rest = [name for name, cell in open_cells.items() if name != date_name and not is_date_like(cell)]
    if target is None and len(rest) > 1:
        hint = "" if item_name is not None else ", or pass all"
        raise OptionError("target", f"{where} has several columns", f"name one of {listed(rest)}{hint}")
    targets = rest if target in (None, ALL) else named
    if not targets:
        raise OptionError("target", f"expected the name of a column of {where}, got none")
    for name in targets:
        if name == date_name or name in known_names:
            raise OptionError("target", f"{name!r} is the column of dates or a covariate", "leave one of them out")
    if item_name is not None and len(targets) > 1:
        raise OptionError("target", f"expected one column of values for the items, got {listed(targets)}")
    dates: list[datetime] = []
    monthly, zone = False, None
    if date_name is not None:
        index = file.names.index(date_name)
        dates, date_format = _dates(rows, index, date_name, where, date_format)
        zone = dates[0].tzinfo if isinstance(dates[0].tzinfo, ZoneInfo) else None
        dates, utc_offset = on_one_clock(dates, utc_offset)
        monthly = writes_months(cell or "" for cell in rows.texts(index))
        if len(dates) < 2:
            raise ValueError(f"{where}: expected at least two rows, got {len(dates)}")
    reader = Reader(file, rows, where, targets, known_names, len(past_names))
    if item_name is None:
        part = reader.read(np.arange(len(rows)), dates, frequency)
        spans = np.tile(np.array([[0, len(part.values)]]), (len(targets), 1))
        return SeriesFile(
            where, tuple(targets), tuple(known_names), date_name, part.step, part.dates, utc_offset, monthly,
            part.values, part.known, part.repeated, spans, date_format=date_format, header=file.header, zone=zone,
        )  # fmt: skip
    groups: dict[str, list[int]] = {}
    for number, own in enumerate(rows.texts(file.names.index(item_name))):
        if not own:
            line = int(rows.lines[number])
            raise ValueError(f"{where.at(line)}, column {item_name!r}: expected the name of an item, got nothing")
        groups.setdefault(own, []).append(number)
    places = [file.names.index(name) for name in static_names]
    statics = tuple(static_cells(rows, numbers, places, file, where) for numbers in groups.values())
    layout = lay_out(reader, dates, groups, frequency)
    return SeriesFile(
        where, tuple(groups), tuple(known_names), date_name, layout.step, layout.dates, utc_offset, monthly,
        layout.values, layout.known, layout.repeated, layout.spans, item_name, targets[0], statics, date_format,
        file.header, zone,
    )  # fmt: skip


def _item_column(file: "TableFile | FrameTable", taken: list[str], name: str) -> str | None:
    """Return the column of items: the requested one, or one with a common name."""
    if name == "none":
        return None
    if name != "auto":
        return _columns(file, name, "item")[0]
    return next((name for name in file.names if name.lower() in ITEM_NAMES and name not in taken), None)


def _date_column(
    file: "TableFile | FrameTable", cells: dict[str, str], open_cells: dict[str, str], name: str, date_format: str
) -> str | None:
    """Return the column of dates."""
    if name == "none":
        return None
    if name != "auto":
        return _columns(file, name, "date")[0]
    if date_format:
        return next((name for name, cell in cells.items() if _date(cell, date_format) is not None), None)
    for name, cell in cells.items():
        if as_date(cell) is not None or (name.lower() in DATE_NAMES and as_number(cell) is None):
            return name
    # Dates that cannot be read are refused where they are read: rows that are merely counted have no season.
    unread = [name for name, cell in open_cells.items() if is_date_like(cell)]
    unread += [name for name in open_cells if name.lower() in DATE_NAMES and len(cells) > 1]
    return next(iter(unread), None)


def _columns(file: "TableFile | FrameTable", names: str, of: str) -> list[str]:
    columns = [name.strip() for name in names.split(",") if name.strip()]
    for index, name in enumerate(columns):
        if name not in file.names:
            remedy = "" if file.header else f"pass {option('header', 'yes')} if the first row names them"
            raise OptionError(of, f"{file.origin} has no column {name!r} (columns: {listed(file.names)})", remedy)
        if name in columns[:index]:
            raise OptionError(of, f"{name!r} is named twice", "name it once")
    return columns


def _date(cell: str, date_format: str) -> datetime | None:
    """Parse a date in `date_format`, or in a common format if it is empty; return None for no date."""
    if not date_format:
        return as_date(cell)
    try:
        return datetime.strptime(cell, date_format)
    except ValueError:
        return None


def _dates(cells: Cells, index: int, name: str, where: Origin, date_format: str) -> tuple[list[datetime], str]:
    """Return the dates of a column, and how they are written: empty for ISO 8601 and day.month.year."""
    if not date_format and (found := read_dates(cells.column(index))) is not None:
        return found
    dates: list[datetime] = []
    for line, text in zip(cells.lines.tolist(), cells.texts(index), strict=True):
        cell = text or ""
        moment = _date(cell, date_format)
        if moment is None:
            expected = f"as {date_format} writes it" if date_format else "as 2024-01-31 or 2024-01-31 13:00"
            raise UserError(
                f"{where.at(line)}, column {name!r}: expected a date {expected}, got {cell!r:.80}",
                f"rewrite it, or train with {option('date', 'none')} to count rows only, or with another "
                f"{option('date_format')}, such as %d/%m/%Y",
            )
        if is_too_fine(cell):
            raise UserError(
                f"{where.at(line)}, column {name!r}: expected at most six digits of a second, got {cell!r:.80}",
                f"write microseconds, or train with {option('date', 'none')} to count rows only",
            )
        if dates and (moment.tzinfo is None) != (dates[0].tzinfo is None):
            raise ValueError(
                f"{where.at(line)}, column {name!r}: expected dates with a zone, as +02:00 or Z, in all rows or in "
                f"none, got {cell!r:.80}: rewrite it"
            )
        dates.append(moment)
    return dates, date_format
