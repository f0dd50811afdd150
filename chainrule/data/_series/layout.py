"""Rows of a file of series as arrays: a column for each series, or items side by side."""

import math
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from chainrule.data._delimited import Row
from chainrule.data._series.frequency import Frequency, complete_dates, fill_in, spread_out
from chainrule.data._tables.cell_column import MISSING, as_number, is_odd_number
from chainrule.data._tables.table_file import TableFile

MOST_CELLS = 1 << 24
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """The rows of one item, or of a whole file with a column for each series."""

    step: Frequency | None
    dates: list[datetime]
    values: Floats
    known: Floats
    observed: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Reader:
    file: TableFile
    where: str
    targets: list[str]
    covariates: list[str]
    fill: bool

    def read(self, rows: list[Row], dates: list[datetime], frequency: Frequency | None, what: str = "") -> Part:
        """Numbers of rows at regular steps; `what` names the item in errors."""
        where, fill, lines, step = self.where, self.fill, [line for line, _ in rows], None
        if dates:
            date_step = Frequency.find(dates, lines, where, gaps=fill, known=frequency)
            step = frequency if fill and frequency is not None else date_step
        places = [self.file.names.index(name) for name in self.targets]
        last = len(rows)
        while last and all(rows[last - 1][1][index] in MISSING for index in places):
            last -= 1
        if not last:
            raise ValueError(
                f"{where}: expected values in {what or ', '.join(self.targets):.200}, got empty cells only"
            )
        values = _numbers(rows[:last], places, self.targets, where, fill)
        known_places = [self.file.names.index(name) for name in self.covariates]
        covariates = _numbers(rows, known_places, self.covariates, where, fill)
        observed = np.ones(values.shape, dtype=bool)
        if fill:
            if step is not None:
                dates, row_places = complete_dates(dates, lines, step, where)
                values, covariates = spread_out(values, row_places[:last]), spread_out(covariates, row_places)
            observed = ~np.isnan(values)
            values, covariates = fill_in(values, self.targets, where), fill_in(covariates, self.covariates, where)
        return Part(step, dates, values, covariates, observed)


@dataclass(frozen=True)
class Layout(Part):
    """All items side by side, see `SeriesFile`."""

    spans: npt.NDArray[np.int64]


def lay_out(
    reader: Reader,
    rows: list[Row],
    dates: list[datetime],
    groups: dict[str, list[int]],
    frequency: Frequency | None,
) -> Layout:
    """Items side by side, by their dates; without dates from the first row on."""
    parts: dict[str, Part] = {}
    for name in sorted(groups, key=lambda name: -len(groups[name])):  # the longest tells the step
        numbers = groups[name]
        own = [rows[number] for number in numbers]
        if dates and len(own) < 2:
            raise ValueError(f"{reader.where} line {own[0][0]}: expected at least two rows of {name!r:.60}, got one")
        part = reader.read(own, [dates[number] for number in numbers] if dates else [], frequency, name)
        if part.step is not None and frequency is not None and part.step != frequency:
            raise ValueError(
                f"{reader.where} line {own[0][0]}: expected rows {frequency}, as of other items, got rows {part.step} "
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
                f"{reader.where}: {name!r:.60} begins at {first}, which is no whole number of steps after {grid[0]}, "
                f"as rows are {frequency}: move its dates"
            )
        starts.append(0 if first is None else row_of[first])
    ordered = [parts[name] for name in groups]
    spans = np.array([[start, start + len(part.values)] for start, part in zip(starts, ordered, strict=True)])
    length = max(start + len(part.known) for start, part in zip(starts, ordered, strict=True))
    count = len(ordered)
    if length * count * (1 + len(reader.covariates)) > MOST_CELLS:
        raise ValueError(f"{reader.where}: expected at most {MOST_CELLS:,} items × rows, got more: keep the last rows")
    values = np.full((int(spans.max()), count), np.nan)
    observed = np.zeros(values.shape, dtype=bool)
    covariates = np.full((length, count, len(reader.covariates)), np.nan)
    for number, (part, (start, stop)) in enumerate(zip(ordered, spans, strict=True)):
        values[start:stop, number] = part.values[:, 0]
        observed[start:stop, number] = part.observed[:, 0]
        covariates[start : start + len(part.known), number] = part.known
    return Layout(frequency, grid, values, covariates, observed, spans)


def static_cells(
    rows: list[Row], numbers: list[int], places: list[int], file: TableFile, where: str
) -> tuple[str, ...]:
    """Return the cells of an item that are the same in all its rows."""
    first = rows[numbers[0]][1]
    for number in numbers:
        line, cells = rows[number]
        for index in places:
            if cells[index] != first[index]:
                raise ValueError(
                    f"{where} line {line}, column {file.names[index]!r}: expected {first[index]!r:.60} in all rows of "
                    f"an item, got {cells[index]!r:.60}: name it with --covariates, if it changes"
                )
    return tuple(first[index] for index in places)


def _numbers(rows: list[tuple[int, list[str]]], places: list[int], names: list[str], where: str, fill: bool) -> Floats:
    """Return the numbers of some columns; NaN for an empty cell where those will be filled in."""
    numbers = np.full((len(rows), len(places)), np.nan)
    for row, (line, cells) in enumerate(rows):
        for column, index in enumerate(places):
            cell = cells[index]
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
    for name, series in zip(names, numbers.T, strict=True):
        if np.isnan(series).all():
            raise ValueError(f"{where}, column {name!r}: expected values, got empty cells only")
    return numbers
