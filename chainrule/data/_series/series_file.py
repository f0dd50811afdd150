"""A file of series: a row for each moment, a column for each series."""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from chainrule.data._delimited import Row
from chainrule.data._series.clock import clock, on_one_clock
from chainrule.data._series.frequency import Frequency
from chainrule.data._series.gaps import complete_dates, fill_in, spread_out
from chainrule.data._tables.cell_column import MISSING, as_number, is_odd_number
from chainrule.data._tables.dates import as_date, is_date_like, writes_months
from chainrule.data._tables.table_file import TableFile

DATE_NAMES = frozenset(("date", "time", "datetime", "timestamp", "month", "day", "ds"))
ALL = "all"
_MOST_CELLS = 1 << 24
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SeriesFile:
    """The series of a file, checked: numbers everywhere, dates at regular steps.

    Args:
        where: the name of the file, for errors.
        targets: names of the series that are forecast.
        covariates: names of the columns that are known in advance.
        date: the name of the column of dates; None for a file without dates.
        frequency: the step between dates; None without any.
        dates: (N,) local times, empty without dates.
        utc_offset: of their clock, in seconds; None where dates have no zone, or tell days; see `on_one_clock`.
        monthly: whether dates are written as months, 2024-01.
        values: (T, S) the targets, T <= N: rows after them, with empty targets, are the future.
        known: (N, F) the covariates.
        observed: (T, S) which of the values are in the file; others are filled in.
    """

    where: str
    targets: tuple[str, ...]
    covariates: tuple[str, ...]
    date: str | None
    frequency: Frequency | None
    dates: list[datetime]
    utc_offset: int | None
    monthly: bool
    values: Floats
    known: Floats
    observed: npt.NDArray[np.bool_]

    @property
    def future(self) -> int:
        """Rows at the end whose targets are empty."""
        return len(self.known) - len(self.values)

    def date_text(self, date: datetime) -> str:
        """A date as this file writes it: a month; the day alone where steps are days or more; else the moment
        with its offset from UTC, where there is one."""
        if self.monthly:
            return date.strftime("%Y-%m")
        daily = self.frequency is not None and self.frequency.daily
        if daily:
            return date.strftime("%Y-%m-%d")
        zone = None if self.utc_offset is None else clock(self.utc_offset)
        return date.replace(tzinfo=zone).isoformat(sep=" ")


def read_series(
    path: str | Path,
    target: str | None,
    covariates: str = "",
    date: str = "auto",
    *,
    fill: bool = False,
    frequency: Frequency | None = None,
    utc_offset: int | None = None,
) -> SeriesFile:
    """Read a file of series.

    Args:
        path: CSV, with a header or without, compressed by gzip or not. See `TableFile` for when
            the first row is a header.
        target: names of the series to forecast, separated by commas; "all" for all columns that are neither dates
            nor covariates; None where there is one only.
        covariates: names of the columns that are known in advance, separated by commas.
        date: the name of the column of dates; "auto" finds it, also where its notation cannot be read, which is an
            error then; "none" has no such column.
        fill: fill in missing rows and empty cells by straight lines between their neighbours.
        frequency: the step between dates where it is known: taken where the dates keep it, and with `fill` always;
            else the most common one.
        utc_offset: of the clock that dates with a zone are read by, in seconds; None finds it, see `on_one_clock`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column is missing; a cell is no number, or no date; without `fill`, a cell is empty, or dates are
            not at regular steps.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "sales.csv"
    ...     _ = path.write_text("month,sold,holidays\\n2024-01,7,1\\n2024-02,9,0\\n2024-03,8,2\\n2024-04,,1\\n")
    ...     file = read_series(path, "sold", covariates="holidays")
    >>> str(file.frequency), file.values.tolist(), file.known[:, 0].tolist(), file.future
    ('every month', [[7.0], [9.0], [8.0]], [1.0, 0.0, 2.0, 1.0], 1)
    >>> file.date_text(file.dates[0])
    '2024-01'
    """
    file = TableFile(path)
    rows = list(_rows(file))
    if not rows:
        raise ValueError(f"{path}: expected rows under the header, got none")
    where = str(path)
    known_names = _columns(file, covariates, "--covariates")
    named = [] if target in (None, ALL) else _columns(file, target or "", "--target")
    cells = {name: _first_cell(rows, place) for place, name in enumerate(file.names)}
    open_cells = {name: cell for name, cell in cells.items() if name not in known_names and name not in named}
    date_name = _date_column(file, cells, open_cells, date)
    rest = [name for name, cell in open_cells.items() if name != date_name and not is_date_like(cell)]
    if target is None and len(rest) > 1:
        raise ValueError(f"--target: {where} has several columns: name one of {', '.join(rest):.200}, or say all")
    targets = rest if target in (None, ALL) else named
    if not targets:
        raise ValueError(f"--target: expected the name of a column of {where}, got none")
    for name in targets:
        if name == date_name or name in known_names:
            raise ValueError(f"--target: {name!r} is the column of dates or a covariate: leave one of them out")
    lines = [line for line, _ in rows]
    dates: list[datetime] = []
    step, monthly = None, False
    if date_name is not None:
        place = file.names.index(date_name)
        dates, utc_offset = on_one_clock(_dates(rows, place, date_name, where), utc_offset)
        monthly = writes_months(cells[place] for _, cells in rows)
        if len(dates) < 2:
            raise ValueError(f"{where}: expected at least two rows, got {len(dates)}")
        found = Frequency.find(dates, lines, where, gaps=fill, known=frequency)
        step = frequency if fill and frequency is not None else found
    places = [file.names.index(name) for name in targets]
    last = len(rows)
    while last and all(rows[last - 1][1][place] in MISSING for place in places):
        last -= 1
    if not last:
        raise ValueError(f"{where}: expected values in {', '.join(targets):.200}, got empty cells only")
    values = _numbers(rows[:last], places, targets, where, fill)
    known = _numbers(rows, [file.names.index(name) for name in known_names], known_names, where, fill)
    observed = np.ones(values.shape, dtype=bool)
    if fill:
        if step is not None:
            dates, row_places = complete_dates(dates, lines, step, where)
            values, known = spread_out(values, row_places[:last]), spread_out(known, row_places)
        observed = ~np.isnan(values)
        values, known = fill_in(values, targets, where), fill_in(known, known_names, where)
    return SeriesFile(
        where, tuple(targets), tuple(known_names), date_name, step, dates, utc_offset, monthly, values, known, observed
    )


def _first_cell(rows: list[tuple[int, list[str]]], place: int) -> str:
    """The first cell of a column that is not missing; empty where all are."""
    return next((cells[place] for _, cells in rows if cells[place] not in MISSING), "")


def _date_column(file: TableFile, cells: dict[str, str], open_cells: dict[str, str], asked: str) -> str | None:
    """The column of dates.

    Args:
        file: the file.
        cells: the first cell of each column.
        open_cells: those of columns that are named neither as targets nor as covariates.
        asked: the name, "auto" or "none".
    """
    if asked == "none":
        return None
    if asked != "auto":
        return _columns(file, asked, "--date")[0]
    for name, cell in cells.items():
        if as_date(cell) is not None or (name.lower() in DATE_NAMES and as_number(cell) is None):
            return name
    # Dates that cannot be read are refused where they are read: rows that are merely counted have no season.
    unread = [name for name, cell in open_cells.items() if is_date_like(cell)]
    unread += [name for name in open_cells if name.lower() in DATE_NAMES and len(cells) > 1]
    return next(iter(unread), None)


def _rows(file: TableFile) -> Iterator[Row]:
    """The rows, all of which are held in memory."""
    most = _MOST_CELLS // len(file.names)
    with closing(file.rows()) as rows:
        for number, row in enumerate(rows):
            if number == most:
                raise ValueError(f"{file.path}: expected at most {_MOST_CELLS:,} cells, got more: keep the last rows")
            yield row


def _columns(file: TableFile, names: str, option: str) -> list[str]:
    found = [name.strip() for name in names.split(",") if name.strip()]
    for place, name in enumerate(found):
        if name not in file.names:
            raise ValueError(f"{option}: {file.path} has no column {name!r} (there are: {', '.join(file.names):.200})")
        if name in found[:place]:
            raise ValueError(f"{option}: {name!r} is named twice: name it once")
    return found


def _dates(rows: list[tuple[int, list[str]]], place: int, name: str, where: str) -> list[datetime]:
    dates: list[datetime] = []
    for line, cells in rows:
        moment = as_date(cells[place])
        if moment is None:
            raise ValueError(
                f"{where} line {line}, column {name!r}: expected a date as 2024-01-31 or 2024-01-31 13:00, "
                f"got {cells[place]!r:.80}: rewrite it, or say --date none to count rows only"
            )
        if dates and (moment.tzinfo is None) != (dates[0].tzinfo is None):
            raise ValueError(
                f"{where} line {line}, column {name!r}: expected dates with a zone, as +02:00 or Z, in all rows or in "
                f"none, got {cells[place]!r:.80}: rewrite it"
            )
        dates.append(moment)
    return dates


def _numbers(rows: list[tuple[int, list[str]]], places: list[int], names: list[str], where: str, fill: bool) -> Floats:
    """The numbers of some columns; NaN for an empty cell where those will be filled in."""
    numbers = np.full((len(rows), len(places)), np.nan)
    for row, (line, cells) in enumerate(rows):
        for column, place in enumerate(places):
            cell = cells[place]
            empty = cell in MISSING
            if empty and fill:
                continue
            number = None if empty else as_number(cell)
            if number is None or not math.isfinite(number):
                expected = "a value, got an empty cell" if empty else f"a finite number, got {cell!r:.80}"
                plain = "write it with a point, without a unit" if is_odd_number(cell) else "write a number"
                remedy = "train with --fill to have it filled in" if empty else plain
                raise ValueError(f"{where} line {line}, column {names[column]!r}: expected {expected}: {remedy}")
            numbers[row, column] = number
    for name, found in zip(names, numbers.T, strict=True):
        if np.isnan(found).all():
            raise ValueError(f"{where}, column {name!r}: expected values, got empty cells only")
    return numbers
