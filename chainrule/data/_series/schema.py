"""The schema of series: it turns a file into numbers for a model, and is fitted on training rows alone."""

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data._atomic import Record
from chainrule.data._series.frequency import CYCLES, DAY, Frequency, calendar_features, calendar_names
from chainrule.data._series.series_file import SeriesFile, read_series
from chainrule.data._tables.dates import as_date
from chainrule.models._series_scaling import SeriesScaling

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SeriesSchema(Record):
    """Which columns are forecast from what, and in which units.

    Args:
        targets: names of the series.
        covariates: names of the columns that are known in advance.
        centres: (F,) training means of the covariates.
        spreads: (F,) their standard deviations.
        date: the name of the column of dates; None where rows are counted.
        frequency: the step between dates.
        utc_offset: of the clock that dates are read by, in seconds; None without zones.
        season: rows of a season; 1 for none.
        calendar: the cycles of the calendar that are told to the model.
        anchor: the lag that values are measured from; 0 for the centre.
        scalings: (S,) of the targets.
        fill: whether what a file leaves out is filled in.
        fitted_rows: the number of training rows that it was fitted on.
        trained_until: the date of the last training row, by ISO 8601; None where rows are counted.

    Raises:
        ValueError: numbers of columns, names of cycles, the offset or the last date do not fit.
    """

    FORMAT: ClassVar[int] = 5

    targets: tuple[str, ...]
    covariates: tuple[str, ...]
    centres: tuple[float, ...]
    spreads: tuple[float, ...]
    date: str | None
    frequency: Frequency | None
    utc_offset: int | None
    season: int
    calendar: tuple[str, ...]
    anchor: int
    scalings: tuple[SeriesScaling, ...]
    fill: bool
    fitted_rows: int
    trained_until: str | None

    def __post_init__(self) -> None:
        if len(self.scalings) != len(self.targets):
            raise ValueError(f"scalings: expected {len(self.targets)}, one for each series, got {len(self.scalings)}")
        if not len(self.covariates) == len(self.centres) == len(self.spreads):
            raise ValueError(f"centres, spreads: expected {len(self.covariates)}, one for each covariate")
        if self.season < 1 or not CYCLES.keys() >= set(self.calendar):
            raise ValueError(f"season, calendar: expected rows and known cycles, got {self.season}, {self.calendar}")
        if self.utc_offset is not None and abs(self.utc_offset) >= DAY:
            raise ValueError(f"utc_offset: expected less than a day of seconds, got {self.utc_offset}")
        last = self.last_trained
        if (last is None or last.tzinfo is not None) != (self.frequency is None):
            raise ValueError(f"trained_until: expected a date where rows have dates, got {self.trained_until!r:.80}")

    @classmethod
    def fit(cls, file: SeriesFile, rows: int, season: int, anchor: int, fill: bool = False) -> "SeriesSchema":
        """From the first rows of a file.

        Args:
            file: the file as read.
            rows: of training.
            season: rows of a season.
            anchor: see the class.
            fill: see the class.

        Raises:
            ValueError: a series never changes, or there are too few rows.
        """
        scalings = []
        columns = torch.from_numpy(file.values[:rows]).unbind(1), torch.from_numpy(file.observed[:rows]).unbind(1)
        for name, values, observed in zip(file.targets, *columns, strict=True):
            try:
                scalings.append(SeriesScaling.fit(values, anchor, observed))
            except ValueError as error:
                raise ValueError(f"{file.where}, column {name!r}: {error}") from None
        known = file.known[:rows]
        spreads = known.std(0) if len(known) else np.ones(known.shape[1])
        return cls(
            targets=file.targets,
            covariates=file.covariates,
            centres=tuple(known.mean(0).tolist()),
            spreads=tuple(np.where(spreads > 0, spreads, 1.0).tolist()),
            date=file.date,
            frequency=file.frequency,
            utc_offset=file.utc_offset,
            season=season,
            calendar=() if file.frequency is None else tuple(calendar_names(file.frequency, file.dates[:rows])),
            anchor=anchor,
            scalings=tuple(scalings),
            fill=fill,
            fitted_rows=rows,
            trained_until=_last_date(file, rows),
        )

    def trained_on(self, file: SeriesFile, rows: int) -> "SeriesSchema":
        """The same for training on the first rows of another file."""
        return replace(self, trained_until=_last_date(file, rows))

    @property
    def last_trained(self) -> datetime | None:
        """The date of the last training row, by the clock of training."""
        return None if self.trained_until is None else as_date(self.trained_until)

    @property
    def num_covariates(self) -> int:
        """F of the model: the columns, and two numbers for each cycle of the calendar."""
        return len(self.covariates) + 2 * len(self.calendar)

    @property
    def lags(self) -> list[int]:
        """Which earlier values the model reads: the last, those a season ago, and a week ago where that is a day."""
        lags = {1, 2, 3} | {self.season, self.season + 1}
        if self.frequency is not None and not self.frequency.daily and self.season > 1:
            lags.add(7 * self.season)
        return sorted(lags | ({self.anchor} if self.anchor else set()))

    def open(self, path: str | Path) -> SeriesFile:
        """Read another file as this one was read.

        Raises:
            ValueError: a column is missing, rows are another step apart, or one of both files has no zones.
        """
        file = read_series(
            path,
            ",".join(self.targets),
            ",".join(self.covariates),
            self.date or "none",
            fill=self.fill,
            frequency=self.frequency,
            utc_offset=self.utc_offset,
        )
        if file.frequency != self.frequency:
            raise ValueError(f"{path}: expected rows {self.frequency}, as in training, got rows {file.frequency}")
        if (file.utc_offset is None) != (self.utc_offset is None):
            wanted = "without a zone" if self.utc_offset is None else "with a zone, as +02:00 or Z,"
            raise ValueError(f"{path}: expected dates {wanted} as in training: rewrite them")
        return file

    def features(self, file: SeriesFile, horizon: int = 0) -> Floats:
        """(N, F) covariates of all rows of a file, and of `horizon` rows after its last value.

        Raises:
            ValueError: there are columns of covariates, but not for that many rows to come.
        """
        missing = len(file.values) + horizon - len(file.known)
        if missing > 0 and self.covariates:
            raise ValueError(
                f"{file.where}: expected {horizon} rows after the last value with {', '.join(self.covariates)} filled "
                f"in and the target empty, got {file.future}: covariates must be known for the whole horizon"
            )
        known = (file.known - np.array(self.centres)) / np.array(self.spreads)
        if missing > 0:
            known = np.concatenate([known, np.zeros((missing, 0))])
        if self.frequency is None:
            return known
        dates = future_dates(file.dates, self.frequency, max(missing, 0))
        return np.concatenate([known, calendar_features(dates, self.calendar)], 1)


def _last_date(file: SeriesFile, rows: int) -> str | None:
    return file.dates[rows - 1].isoformat() if file.dates else None


def future_dates(dates: list[datetime], frequency: Frequency, count: int) -> list[datetime]:
    """Dates, and `count` more after the last.

    >>> future_dates([datetime(2024, 1, 1)], Frequency("seconds", 86_400), 1)
    [datetime.datetime(2024, 1, 1, 0, 0), datetime.datetime(2024, 1, 2, 0, 0)]
    """
    made = list(dates)
    for _ in range(count):
        made.append(frequency.after(made[-1]))
    return made
