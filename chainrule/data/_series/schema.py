"""The schema of series: it turns a file into numbers for a model, and is fitted on training rows alone."""

import math
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
from chainrule.data._tables.cell_column import as_number
from chainrule.data._tables.dates import as_date
from chainrule.models._series_scaling import SeriesScaling

Floats = npt.NDArray[np.float64]
_MOST_CATEGORIES = 64  # of a column that never changes


@dataclass(frozen=True)
class SeriesSchema(Record):
    """Columns to forecast, their covariates and their units.

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
        item: the name of the column of items; None where each series has a column.
        value: the name of the column of their values.
        statics: names of what never changes, a number each.
        static_values: (S, statics) of each series.
        date_format: see `SeriesFile`.
        fitted_rows: the number of training rows that it was fitted on.
        trained_until: the date of the last training row, by ISO 8601; None where rows are counted.
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
    item: str | None
    value: str
    statics: tuple[str, ...]
    static_values: tuple[tuple[float, ...], ...]
    date_format: str
    fitted_rows: int
    trained_until: str | None

    def __post_init__(self) -> None:
        if len(self.scalings) != len(self.targets):
            raise ValueError(f"scalings: expected {len(self.targets)}, one for each series, got {len(self.scalings)}")
        if not len(self.covariates) == len(self.centres) == len(self.spreads):
            raise ValueError(f"centres, spreads: expected {len(self.covariates)}, one for each covariate")
        if len(self.static_values) != len(self.targets) or {*map(len, self.static_values)} != {len(self.statics)}:
            raise ValueError(f"static_values: expected {len(self.statics)} of each of {len(self.targets)} series")
        if self.season < 1 or not CYCLES.keys() >= set(self.calendar):
            raise ValueError(f"season, calendar: expected rows and known cycles, got {self.season}, {self.calendar}")
        if self.utc_offset is not None and abs(self.utc_offset) >= DAY:
            raise ValueError(f"utc_offset: expected less than a day of seconds, got {self.utc_offset}")
        last = self.last_trained
        if (last is None or last.tzinfo is not None) != (self.frequency is None):
            raise ValueError(f"trained_until: expected a date where rows have dates, got {self.trained_until!r:.80}")

    @classmethod
    def fit(
        cls, file: SeriesFile, rows: int, season: int, anchor: int, fill: bool = False, static: str = ""
    ) -> "SeriesSchema":
        """From the first rows of a file.

        Args:
            file: the file as read.
            rows: of training.
            season: rows of a season.
            anchor: see the class.
            fill: see the class.
            static: names of the columns whose cells are `file.statics`, separated by commas.
        """
        scalings = []
        for number, (name, (start, stop)) in enumerate(zip(file.targets, file.spans.tolist(), strict=True)):
            own = slice(start, min(stop, rows))
            values, observed = (torch.from_numpy(part[own, number]) for part in (file.values, file.observed))
            try:
                scalings.append(SeriesScaling.fit(values, anchor, observed))
            except ValueError as error:
                what = "column" if file.item is None else f"{file.item}"
                raise ValueError(f"{file.where}, {what} {name!r}: {error}") from None
        covariates = np.concatenate([*file.known[:rows]]) if file.known.ndim == 3 else file.known[:rows]
        covariates = covariates[~np.isnan(covariates).any(1)]
        spreads = covariates.std(0) if len(covariates) else np.ones(covariates.shape[1])
        statics, static_values = _encoded([name.strip() for name in static.split(",") if name.strip()], file)
        return cls(
            targets=file.targets,
            covariates=file.covariates,
            centres=tuple(covariates.mean(0).tolist()),
            spreads=tuple(np.where(spreads > 0, spreads, 1.0).tolist()),
            date=file.date,
            frequency=file.frequency,
            utc_offset=file.utc_offset,
            season=season,
            calendar=() if file.frequency is None else tuple(calendar_names(file.frequency, file.dates[:rows])),
            anchor=anchor,
            scalings=tuple(scalings),
            fill=fill,
            item=file.item,
            value=file.value,
            statics=statics,
            static_values=static_values,
            date_format=file.date_format,
            fitted_rows=rows,
            trained_until=_last_date(file, rows),
        )

    def trained_on(self, file: SeriesFile, rows: int) -> "SeriesSchema":
        """Return a copy of the schema for training on the first rows of another file."""
        return replace(self, trained_until=_last_date(file, rows))

    @property
    def last_trained(self) -> datetime | None:
        """The date of the last training row, by the clock of training."""
        return None if self.trained_until is None else as_date(self.trained_until)

    @property
    def num_covariates(self) -> int:
        """F of the model: the columns, what never changes, and two numbers for each cycle of the calendar."""
        return len(self.covariates) + len(self.statics) + 2 * len(self.calendar)

    @property
    def lags(self) -> list[int]:
        """Lags that the model reads: the last value, a season ago, and a week ago if a season is a day."""
        lags = {1, 2, 3} | {self.season, self.season + 1}
        if self.frequency is not None and not self.frequency.daily and self.season > 1:
            lags.add(7 * self.season)
        return sorted(lags | ({self.anchor} if self.anchor else set()))

    def open(self, path: str | Path) -> SeriesFile:
        """Read another file as this one was read."""
        file = read_series(
            path,
            ",".join(self.targets) if self.item is None else self.value,
            ",".join(self.covariates),
            self.date or "none",
            item=self.item or "none",
            date_format=self.date_format,
            fill=self.fill,
            frequency=self.frequency,
            utc_offset=self.utc_offset,
        )
        if file.frequency != self.frequency:
            raise ValueError(f"{path}: expected rows {self.frequency}, as in training, got rows {file.frequency}")
        if (file.utc_offset is None) != (self.utc_offset is None):
            wanted = "without a zone" if self.utc_offset is None else "with a zone, as +02:00 or Z,"
            raise ValueError(f"{path}: expected dates {wanted} as in training: rewrite them")
        return file if self.item is None else self._in_order(file)

    def _in_order(self, file: SeriesFile) -> SeriesFile:
        """Return a copy of a file with its items in training order; a missing item has an empty span."""
        number_of = {name: number for number, name in enumerate(self.targets)}
        if unknown := [name for name in file.targets if name not in number_of]:
            raise ValueError(
                f"{file.where}, {self.item}: {unknown[0]!r:.60} was not among the {len(self.targets):,} items of "
                "training: leave its rows out, or train on them too"
            )
        columns = np.array([number_of[name] for name in file.targets])
        count = len(self.targets)
        values, observed = np.full((len(file.values), count), np.nan), np.zeros((len(file.values), count), dtype=bool)
        covariates, spans = (
            np.full((len(file.known), count, file.known.shape[-1]), np.nan),
            np.zeros((count, 2), np.int64),
        )
        values[:, columns], observed[:, columns] = file.values, file.observed
        covariates[:, columns], spans[columns] = file.known, file.spans
        return replace(file, targets=self.targets, values=values, observed=observed, known=covariates, spans=spans)

    def features(self, file: SeriesFile, horizon: int = 0) -> Floats:
        """(N, F) covariates of all rows of a file, and of `horizon` rows after its last value; (N, S, F) where items
        have their own.
        """
        missing = len(file.values) + horizon - len(file.known)
        if horizon and self.covariates:
            self._check_future(file, horizon)
        covariates = (file.known - np.array(self.centres)) / np.array(self.spreads)
        if missing > 0:
            covariates = np.concatenate([covariates, np.full((missing, *covariates.shape[1:]), np.nan)])
        dates = [] if self.frequency is None else future_dates(file.dates, self.frequency, max(missing, 0))
        calendar = calendar_features(dates, self.calendar) if dates else np.zeros((len(covariates), 0))
        if self.item is None or not (self.covariates or self.statics):
            return np.concatenate([covariates if covariates.ndim == 2 else covariates[:, 0], calendar], 1)
        count = len(self.targets)
        statics = np.broadcast_to(np.array(self.static_values), (len(covariates), count, len(self.statics)))
        calendar = np.broadcast_to(calendar[:, None], (len(covariates), count, calendar.shape[1]))
        return np.concatenate([covariates, statics, calendar], 2)

    def _check_future(self, file: SeriesFile, horizon: int) -> None:
        for number, (start, stop) in enumerate(file.spans.tolist()):
            own = file.known[stop : stop + horizon]
            own = own if self.item is None else own[:, number]
            available = int((~np.isnan(own).any(1)).sum())
            if stop > start and available < horizon:
                what = "" if self.item is None else f" of {self.targets[number]!r:.60}"
                raise ValueError(
                    f"{file.where}: expected {horizon} rows after the last value{what} with "
                    f"{', '.join(self.covariates)} filled in and the target empty, got {available}: covariates must be "
                    "known for the whole horizon"
                )


def _encoded(names: list[str], file: SeriesFile) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
    """Names of numbers that never change, and these of each item: scaled numbers, or ones and zeros for categories."""
    features: dict[str, list[float]] = {}
    for index, name in enumerate(names):
        cells = [own[index] for own in file.statics]
        numbers = np.array([math.nan if (number := as_number(cell)) is None else number for cell in cells])
        if np.isfinite(numbers).all():
            features[name] = ((numbers - numbers.mean()) / (numbers.std() or 1.0)).tolist()
            continue
        categories = sorted(set(cells))
        if len(categories) > _MOST_CATEGORIES:
            raise ValueError(
                f"--static: {name!r} has {len(categories):,} different cells: expected at most {_MOST_CATEGORIES}, or "
                "numbers"
            )
        for category in categories:
            features[f"{name}={category}"] = [float(cell == category) for cell in cells]
    rows = list(zip(*features.values(), strict=True)) or [()] * len(file.targets)
    return tuple(features), tuple(rows)


def _last_date(file: SeriesFile, rows: int) -> str | None:
    return file.dates[rows - 1].isoformat() if file.dates else None


def future_dates(dates: list[datetime], frequency: Frequency, count: int) -> list[datetime]:
    """Dates, and `count` more after the last.

    >>> future_dates([datetime(2024, 1, 1)], Frequency("seconds", 86_400), 1)
    [datetime.datetime(2024, 1, 1, 0, 0), datetime.datetime(2024, 1, 2, 0, 0)]
    """
    timeline = list(dates)
    for _ in range(count):
        timeline.append(frequency.after(timeline[-1]))
    return timeline
