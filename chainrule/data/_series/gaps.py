"""Values that a file of series leaves out, filled in by straight lines between their neighbours."""

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt

from chainrule.data._series.frequency import Frequency

Floats = npt.NDArray[np.float64]


def complete_dates(
    dates: Sequence[datetime], lines: Sequence[int], frequency: Frequency, where: str
) -> tuple[list[datetime], list[int]]:
    """All dates from the first to the last, and the place of each given one among them.

    Args:
        dates: sorted.
        lines: the line of each in the file, for errors.
        frequency: the step.
        where: the name of the file, for errors.

    >>> days = Frequency("seconds", 86_400)
    >>> found, places = complete_dates([datetime(2024, 2, 28), datetime(2024, 3, 1)], [2, 3], days, "sales.csv")
    >>> [date.day for date in found], places
    ([28, 29, 1], [0, 2])
    """
    complete, places, most = [dates[0]], [0], 2 * len(dates)
    for date, line in zip(dates[1:], lines[1:], strict=True):
        while complete[-1] < date and len(complete) < most:
            complete.append(frequency.after(complete[-1]))
        if complete[-1] < date:
            raise ValueError(
                f"{where} line {line}: expected at most as many dates missing as there are rows, got more up to "
                f"{date}, as rows are {frequency}: say --date none to count rows only"
            )
        if complete[-1] > date:
            raise ValueError(
                f"{where} line {line}: expected a date some steps after the one before it, as rows are {frequency}, "
                f"got {date}: move it, or say --date none to count rows only"
            )
        places.append(len(complete) - 1)
    return complete, places


def spread_out(values: Floats, places: Sequence[int]) -> Floats:
    """Rows (N, S) at their places, up to the last of these, with NaN in the rows between."""
    spread = np.full((places[-1] + 1, values.shape[1]), np.nan)
    spread[places] = values
    return spread


def fill_in(values: Floats, names: Sequence[str], where: str) -> Floats:
    """Columns (T, S) whose NaN are on the line between the values before and after.

    Args:
        values: each column has a value.
        names: of the columns, for errors.
        where: the name of the file, for errors.

    >>> fill_in(np.array([[1.0], [np.nan], [np.nan], [4.0]]), ["heat"], "sales.csv")[:, 0].tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    filled, rows = values.copy(), np.arange(len(values))
    for name, column in zip(names, filled.T, strict=True):
        known = ~np.isnan(column)
        for end, place in (("first", 0), ("last", -1)):
            if not known[place]:
                raise ValueError(
                    f"{where}, column {name!r}: expected a value in the {end} row that others have, got an empty cell, "
                    "which has no neighbour to be filled in from: write it, or leave out the rows or the column"
                )
        column[~known] = np.interp(rows[~known], rows[known], column[known])
    return filled
