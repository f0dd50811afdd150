"""A file of series: a row for each moment, a column for each series."""

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
from chainrule.data._series.layout import MOST_CELLS, Reader, lay_out, static_cells
from chainrule.data._tables.cell_column import MISSING, as_number
from chainrule.data._tables.dates import as_date, is_date_like, writes_months
from chainrule.data._tables.table_file import TableFile

DATE_NAMES = frozenset(("date", "time", "datetime", "timestamp", "month", "day", "ds"))
ITEM_NAMES = frozenset(("item_id", "unique_id", "series_id", "item"))
ALL = "all"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SeriesFile:
    """The series of a file, checked: numbers everywhere, dates at regular steps.

    A file in long form has an item in each row, whose series may begin and end anywhere. Where they have dates they
    are laid out by these, else each begins in the first row; outside its span a series is NaN.

    Args:
        where: the name of the file, for errors.
        targets: names of the series that are forecast; of a file in long form its items.
        covariates: names of the columns that are known in advance.
        date: the name of the column of dates; None for a file without dates.
        frequency: the step between dates; None without any.
        dates: (N,) local times, empty without dates.
        utc_offset: of their clock, in seconds; None where dates have no zone, or tell days; see `on_one_clock`.
        monthly: whether dates are written as months, 2024-01.
        values: (T, S) the targets, T <= N: rows after them, with empty targets, are the future.
        known: (N, F) the covariates; of a file in long form (N, S, F).
        observed: (T, S) which of the values are in the file; others are filled in.
        spans: (S, 2) the first row of each series, and the one after its last.
        item: the name of the column of items; None for a file with a column for each series.
        value: the name of the column of their values.
        statics: of each item, the cells of the columns that tell what never changes.
        date_format: how dates are written, see `datetime.strptime`; empty for ISO 8601.
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
    spans: npt.NDArray[np.int64]
    item: str | None = None
    value: str = ""
    statics: tuple[tuple[str, ...], ...] = ()
    date_format: str = ""

    @property
    def future(self) -> int:
        """Rows at the end whose targets are empty."""
        return len(self.known) - len(self.values)

    def date_text(self, date: datetime) -> str:
        """Return a date as this file writes it: a month; the day alone where steps are days or more; else the moment
        with its offset from UTC, where there is one."""
        if self.date_format:
            return date.strftime(self.date_format)
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
    item: str = "auto",
    static: str = "",
    date_format: str = "",
    fill: bool = False,
    frequency: Frequency | None = None,
    utc_offset: int | None = None,
) -> SeriesFile:
    """Read a file of series.

    Args:
        path: CSV, with a header or without, compressed by gzip or not. See `TableFile` for when
            the first row is a header.
        target: names of the series to forecast, separated by commas; "all" for all columns that are neither dates
            nor covariates; None where there is one only. Of a file in long form, the one column of values.
        covariates: names of the columns that are known in advance, separated by commas.
        date: the name of the column of dates; "auto" finds it, also where its notation cannot be read, which is an
            error then; "none" has no such column.
        item: the column that names the series of each row, of a file in long form; "auto" takes one of a usual name,
            such as item_id; "none" has no such column.
        static: names of columns that are the same in all rows of an item, separated by commas.
        date_format: how dates are written, such as "%d/%m/%Y"; ISO 8601 and day.month.year if empty.
        fill: fill in missing rows and empty cells by straight lines between their neighbours.
        frequency: the step between dates where it is known: taken where the dates keep it, and with `fill` always;
            else the most common one.
        utc_offset: of the clock that dates with a zone are read by, in seconds; None finds it, see `on_one_clock`.

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
    static_names = _columns(file, static, "--static")
    named = [] if target in (None, ALL) else _columns(file, target or "", "--target")
    cells = {name: _first_cell(rows, index) for index, name in enumerate(file.names)}
    item_name = _item_column(file, [*named, *known_names], item)
    if static_names and item_name is None:
        raise ValueError("--static: expected a file in long form, with a column of items: name it with --item")
    taken = {*known_names, *named, *static_names, item_name}
    open_cells = {name: cell for name, cell in cells.items() if name not in taken}
    date_name = _date_column(file, cells, open_cells, date, date_format)
    rest = [name for name, cell in open_cells.items() if name != date_name and not is_date_like(cell)]
    if target is None and len(rest) > 1:
        hint = "" if item_name is not None else ", or say all"
        raise ValueError(f"--target: {where} has several columns: name one of {', '.join(rest):.200}{hint}")
    targets = rest if target in (None, ALL) else named
    if not targets:
        raise ValueError(f"--target: expected the name of a column of {where}, got none")
    for name in targets:
        if name == date_name or name in known_names:
            raise ValueError(f"--target: {name!r} is the column of dates or a covariate: leave one of them out")
    if item_name is not None and len(targets) > 1:
        raise ValueError(f"--target: expected one column of values for the items, got {', '.join(targets):.200}")
    dates: list[datetime] = []
    monthly = False
    if date_name is not None:
        index = file.names.index(date_name)
        dates, utc_offset = on_one_clock(_dates(rows, index, date_name, where, date_format), utc_offset)
        monthly = writes_months(cells[index] for _, cells in rows)
        if len(dates) < 2:
            raise ValueError(f"{where}: expected at least two rows, got {len(dates)}")
    reader = Reader(file, where, targets, known_names, fill)
    if item_name is None:
        part = reader.read(rows, dates, frequency)
        spans = np.tile(np.array([[0, len(part.values)]]), (len(targets), 1))
        return SeriesFile(
            where, tuple(targets), tuple(known_names), date_name, part.step, part.dates, utc_offset, monthly,
            part.values, part.known, part.observed, spans, date_format=date_format,
        )  # fmt: skip
    groups: dict[str, list[int]] = {}
    for number, (line, row) in enumerate(rows):
        name = row[file.names.index(item_name)]
        if not name:
            raise ValueError(f"{where} line {line}, column {item_name!r}: expected the name of an item, got nothing")
        groups.setdefault(name, []).append(number)
    places = [file.names.index(name) for name in static_names]
    statics = tuple(static_cells(rows, numbers, places, file, where) for numbers in groups.values())
    layout = lay_out(reader, rows, dates, groups, frequency)
    return SeriesFile(
        where, tuple(groups), tuple(known_names), date_name, layout.step, layout.dates, utc_offset, monthly,
        layout.values, layout.known, layout.observed, layout.spans, item_name, targets[0], statics, date_format,
    )  # fmt: skip


def _item_column(file: TableFile, taken: list[str], option: str) -> str | None:
    """Return the column of items: the requested one, or one with a common name."""
    if option == "none":
        return None
    if option != "auto":
        return _columns(file, option, "--item")[0]
    return next((name for name in file.names if name.lower() in ITEM_NAMES and name not in taken), None)


def _first_cell(rows: list[tuple[int, list[str]]], index: int) -> str:
    """Return the first cell of a column that is not missing; empty where all are."""
    return next((cells[index] for _, cells in rows if cells[index] not in MISSING), "")


def _date_column(
    file: TableFile, cells: dict[str, str], open_cells: dict[str, str], option: str, date_format: str
) -> str | None:
    """Return the column of dates.

    Args:
        file: the file.
        cells: the first cell of each column.
        open_cells: first cells of the columns named neither as targets nor as covariates.
        option: the name, "auto" or "none".
        date_format: how dates are written; empty for the usual ways.
    """
    if option == "none":
        return None
    if option != "auto":
        return _columns(file, option, "--date")[0]
    if date_format:
        return next((name for name, cell in cells.items() if _date(cell, date_format) is not None), None)
    for name, cell in cells.items():
        if as_date(cell) is not None or (name.lower() in DATE_NAMES and as_number(cell) is None):
            return name
    # Dates that cannot be read are refused where they are read: rows that are merely counted have no season.
    unread = [name for name, cell in open_cells.items() if is_date_like(cell)]
    unread += [name for name in open_cells if name.lower() in DATE_NAMES and len(cells) > 1]
    return next(iter(unread), None)


def _rows(file: TableFile) -> Iterator[Row]:
    """Yield the rows; raise ValueError for more cells than are held in memory."""
    most = MOST_CELLS // len(file.names)
    with closing(file.rows()) as rows:
        for number, row in enumerate(rows):
            if number == most:
                raise ValueError(f"{file.path}: expected at most {MOST_CELLS:,} cells, got more: keep the last rows")
            yield row


def _columns(file: TableFile, names: str, option: str) -> list[str]:
    columns = [name.strip() for name in names.split(",") if name.strip()]
    for index, name in enumerate(columns):
        if name not in file.names:
            raise ValueError(f"{option}: {file.path} has no column {name!r} (there are: {', '.join(file.names):.200})")
        if name in columns[:index]:
            raise ValueError(f"{option}: {name!r} is named twice: name it once")
    return columns


def _date(cell: str, date_format: str) -> datetime | None:
    """Parse a date in `date_format`, or in a common format if it is empty; return None for no date."""
    if not date_format:
        return as_date(cell)
    try:
        return datetime.strptime(cell, date_format)
    except ValueError:
        return None


def _dates(rows: list[Row], index: int, name: str, where: str, date_format: str) -> list[datetime]:
    dates: list[datetime] = []
    for line, cells in rows:
        moment = _date(cells[index], date_format)
        if moment is None:
            expected = f"as {date_format} writes it" if date_format else "as 2024-01-31 or 2024-01-31 13:00"
            raise ValueError(
                f"{where} line {line}, column {name!r}: expected a date {expected}, got {cells[index]!r:.80}: rewrite "
                "it, or say --date none to count rows only, or --date-format with another notation, such as %d/%m/%Y"
            )
        if dates and (moment.tzinfo is None) != (dates[0].tzinfo is None):
            raise ValueError(
                f"{where} line {line}, column {name!r}: expected dates with a zone, as +02:00 or Z, in all rows or in "
                f"none, got {cells[index]!r:.80}: rewrite it"
            )
        dates.append(moment)
    return dates
