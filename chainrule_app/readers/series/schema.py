"""What a run knows of its series: columns, units, the calendar, and the covariates as its model takes them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from chainrule.files import Record
from chainrule.models import SeriesScaling
from chainrule.option_error import OptionError
from chainrule_app.printing import listed
from chainrule_app.readers.series.frequency import (
    CYCLES,
    DAY,
    Frequency,
    calendar_features,
    calendar_names,
    harmonics,
    without_gaps,
)
from chainrule_app.readers.series.series_file import SeriesFile, read_series
from chainrule_app.readers.tables.cell import as_number
from chainrule_app.readers.tables.dates import as_date
from chainrule_app.readers.tables.table_file import TableSource

Floats = npt.NDArray[np.float64]
_ROWS_A_LAG, _MOST_LAGS = 20, 12
_MOST_CATEGORIES = 64  # of a column that never changes


@dataclass(frozen=True)
class SeriesSchema(Record):
    """Columns to forecast, their covariates and their units."""

    FORMAT: ClassVar[int] = 8

    targets: tuple[str, ...]  # names of the series
    covariates: tuple[str, ...]  # names of the columns that are known in advance, and of those that are not
    past: int  # how many, the last ones, are known up to the present only
    delay: int  # rows by which they are read late: a horizon
    centres: tuple[float, ...]  # (F,) training means of the covariates
    spreads: tuple[float, ...]  # (F,) their standard deviations
    date: str | None  # the name of the column of dates; None where rows are counted
    frequency: Frequency | None  # the step between dates
    utc_offset: int | None  # of the clock that dates are read by, in seconds; None without zones
    season: int  # rows of a season; 1 for none
    calendar: tuple[str, ...]  # the cycles of the calendar that are told to the model
    anchor: int  # the lag that values are measured from; 0 for the centre
    scalings: tuple[SeriesScaling, ...]  # (S,) of the targets
    counts: tuple[bool, ...]  # (S,) whether training values are whole numbers, none below 0
    item: str | None  # the name of the column of items; None where each series has a column
    value: str  # the name of the column of their values
    static: tuple[str, ...]  # names of the columns of what never changes
    statics: tuple[str, ...]  # names of what they tell, a number each
    static_units: tuple[tuple[float, float], ...]  # of each the mean and the spread
    static_values: tuple[tuple[float, ...], ...]  # (S, statics) of each series
    date_format: str  # see `SeriesFile`
    header: bool  # whether the file had one
    fitted_rows: int  # the number of training rows that it was fitted on
    trained_until: str | None  # the date of the last training row, by ISO 8601; None where rows are counted

    def __post_init__(self) -> None:
        if not len(self.scalings) == len(self.counts) == len(self.targets):
            raise ValueError(
                f"scalings, counts: expected {len(self.targets)}, one for each series, got {len(self.scalings)} and "
                f"{len(self.counts)}"
            )
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
        cls, file: SeriesFile, rows: int, season: int, anchor: int, static: str = "", past: int = 0, delay: int = 1
    ) -> "SeriesSchema":
        """From the first rows of a file."""
        scalings, counts = _measured(file, rows, anchor)
        covariates = np.concatenate([*file.known[:rows]]) if file.known.ndim == 3 else file.known[:rows]
        covariates = covariates[~np.isnan(covariates).any(1)]
        spreads = covariates.std(0) if len(covariates) else np.ones(covariates.shape[1])
        columns = tuple(name.strip() for name in static.split(",") if name.strip())
        statics, units = _static_features(columns, file)
        return cls(
            targets=file.targets,
            covariates=file.covariates,
            past=past,
            delay=delay,
            centres=tuple(covariates.mean(0).tolist()),
            spreads=tuple(np.where(spreads > 0, spreads, 1.0).tolist()),
            date=file.date,
            frequency=file.frequency,
            utc_offset=file.utc_offset,
            season=season,
            calendar=() if file.frequency is None else tuple(calendar_names(file.frequency, file.dates[:rows])),
            anchor=anchor,
            scalings=scalings,
            counts=counts,
            item=file.item,
            value=file.value,
            static=columns,
            statics=statics,
            static_units=units,
            static_values=tuple(_static_values(columns, statics, units, cells) for cells in file.statics)
            or ((),) * len(file.targets),
            date_format=file.date_format,
            header=file.header,
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
    def ahead(self) -> tuple[str, ...]:
        """Names of the covariates that are known in advance."""
        return self.covariates[: len(self.covariates) - self.past]

    @property
    def num_covariates(self) -> int:
        """F of the model: the columns, what never changes, and two numbers for each harmonic of the calendar."""
        return len(self.covariates) + len(self.statics) + 2 * sum(self.harmonics.values())

    @property
    def harmonics(self) -> dict[str, int]:
        """How many sines and cosines describe each cycle of the calendar."""
        if self.frequency is None:
            return {}
        return {name: harmonics(self.frequency, name, self.fitted_rows) for name in self.calendar}

    @property
    def lags(self) -> list[int]:
        """Lags that the model reads: the last values, a season ago, and a week ago if a season is a day.

        Without a season there are more of the last values, one for 20 training rows: cycles have no fixed length.
        """
        lags = {1, 2, 3} | {self.season, self.season + 1}
        if self.season == 1:
            lags |= set(range(1, min(self.fitted_rows // _ROWS_A_LAG, _MOST_LAGS) + 1))
        if self.frequency is not None and not self.frequency.daily and self.season > 1:
            lags.add(7 * self.season)
        return sorted(lags | ({self.anchor} if self.anchor else set()))

    def possible(self, paths: Floats, places: Sequence[tuple[int, int]]) -> Floats:
        """Return drawn paths (n, P, H) of places, each an origin and a series; those of counts are never below 0."""
        least = np.array([0.0 if self.counts[series] else -math.inf for _, series in places])
        return np.maximum(paths, least[:, None])

    def open(
        self, source: TableSource, where: str | None = None, *, new_items: bool = False, static: bool = False
    ) -> SeriesFile:
        """Read other data as these were read; `where` names them in errors.

        New items are refused, or come after those of training, see `grown`.
        """
        file = read_series(
            source,
            ",".join(self.targets) if self.item is None else self.value,
            ",".join(self.ahead),
            self.date or "none",
            past_covariates=",".join(self.covariates[len(self.ahead) :]),
            header=self.header,
            item=self.item or "none",
            static=",".join(self.static) if static else "",
            date_format=self.date_format,
            frequency=self.frequency,
            utc_offset=self.utc_offset,
            called=where,
        )
        if file.frequency != self.frequency:
            raise ValueError(f"{file.where}: expected rows {self.frequency}, as in training, got rows {file.frequency}")
        if (file.utc_offset is None) != (self.utc_offset is None):
            wanted = "without a zone" if self.utc_offset is None else "with a zone, as +02:00 or Z,"
            raise ValueError(f"{file.where}: expected dates {wanted} as in training: rewrite them")
        if self.item is None:
            return file
        unknown = [name for name in file.targets if name not in self.targets]
        if unknown and not new_items:
            raise ValueError(
                f"{file.where}, {self.item}: {unknown[0]!r:.60} is not among the {len(self.targets):,} items of "
                "training: remove its rows, or train on them too"
            )
        if unknown and self.static and not static:  # which tell what they are
            return self.open(source, where, new_items=new_items, static=True)
        return self._in_order(file, unknown)

    def _in_order(self, file: SeriesFile, unknown: list[str]) -> SeriesFile:
        """Return a copy of a file with its items in training order; a missing item has an empty span."""
        targets = (*self.targets, *unknown)
        number_of = {name: number for number, name in enumerate(targets)}
        columns = np.array([number_of[name] for name in file.targets])
        count = len(targets)
        values = np.full((len(file.values), count), np.nan)
        covariates = np.full((len(file.known), count, file.known.shape[-1]), np.nan)
        spans = np.zeros((count, 2), np.int64)
        values[:, columns], covariates[:, columns], spans[columns] = file.values, file.known, file.spans
        told = dict(zip(file.targets, file.statics, strict=False))
        statics = tuple(told.get(name, ()) for name in targets)
        return replace(file, targets=targets, values=values, known=covariates, spans=spans, statics=statics)

    def grown(self, file: SeriesFile) -> "SeriesSchema":
        """Return the schema with the new items of a file, measured by their rows there."""
        new = file.targets[len(self.targets) :]
        if not new:
            return self
        scalings, counts = _measured(file, len(file.values), self.anchor, len(self.targets))
        values = []
        for item, cells in zip(new, file.statics[len(self.targets) :], strict=True):
            try:
                values.append(_static_values(self.static, self.statics, self.static_units, cells))
            except ValueError as error:
                raise ValueError(f"{file.where}, {self.item} {item!r:.60}: {error}") from None
        return replace(
            self,
            targets=file.targets,
            scalings=self.scalings + scalings,
            counts=self.counts + counts,
            static_values=(*self.static_values, *values),
        )

    def features(self, file: SeriesFile, horizon: int = 0) -> Floats:
        """(N, F) covariates of a file and of `horizon` rows after its last value; (N, S, F) with items.

        What is known up to the present only is that of a horizon ago: of all rows that are forecast, it is known.
        """
        missing = len(file.values) + horizon - len(file.known)
        if horizon > self.delay and self.past:
            names = listed(self.covariates[len(self.ahead) :])
            raise OptionError(
                "horizon", f"expected at most {self.delay}, the rows by which {names} is delayed, got {horizon}"
            )
        if horizon and self.ahead:
            self._check_future(file, horizon)
        covariates = (file.known - np.array(self.centres)) / np.array(self.spreads)
        if missing > 0:
            covariates = np.concatenate([covariates, np.full((missing, *covariates.shape[1:]), np.nan)])
        if self.past:
            late = np.full_like(covariates[..., -self.past :], np.nan)
            late[self.delay :] = covariates[: -self.delay, ..., -self.past :]
            covariates[..., -self.past :] = without_gaps(late)
        dates = [] if self.frequency is None else future_dates(file.dates, self.frequency, max(missing, 0))
        calendar = calendar_features(dates, self.harmonics) if dates else np.zeros((len(covariates), 0))
        if self.item is None or not (self.covariates or self.statics):
            return np.concatenate([covariates if covariates.ndim == 2 else covariates[:, 0], calendar], 1)
        count = len(self.targets)
        statics = np.broadcast_to(np.array(self.static_values), (len(covariates), count, len(self.statics)))
        calendar = np.broadcast_to(calendar[:, None], (len(covariates), count, calendar.shape[1]))
        return np.concatenate([covariates, statics, calendar], 2)

    def _check_future(self, file: SeriesFile, horizon: int) -> None:
        for number, (start, stop) in enumerate(file.spans.tolist()):
            own = file.known[stop : stop + horizon, ..., : len(self.ahead)]
            own = own if self.item is None else own[:, number]
            available = int((~np.isnan(own).any(1)).sum())
            if stop > start and available < horizon:
                what = "" if self.item is None else f" of {self.targets[number]!r:.60}"
                raise ValueError(
                    f"{file.where}: expected {horizon} rows after the last value{what} with "
                    f"{', '.join(self.ahead)} filled in and the target empty, got {available}: covariates must be "
                    "known for the whole horizon"
                )


def _measured(
    file: SeriesFile, rows: int, anchor: int, first: int = 0
) -> tuple[tuple[SeriesScaling, ...], tuple[bool, ...]]:
    """Units of the series from a number on, and whether each is one of counts, from the first rows."""
    scalings, counts = list[SeriesScaling](), list[bool]()
    for number, (start, stop) in list(enumerate(file.spans.tolist()))[first:]:
        values = torch.from_numpy(file.values[start : min(stop, rows), number])
        known = values[~values.isnan()]
        counts.append(bool(((known >= 0) & (known == known.round())).all()))
        try:
            scalings.append(SeriesScaling.fit(values, anchor))
        except ValueError as error:
            what = file.item or "column"
            raise ValueError(f"{file.where}, {what} {file.targets[number]!r}: {error}: leave it out") from None
    return tuple(scalings), tuple(counts)


def _static_features(
    columns: Sequence[str], file: SeriesFile
) -> tuple[tuple[str, ...], tuple[tuple[float, float], ...]]:
    """Names of numbers that never change, or of categories, `column=category`; the mean and spread of each."""
    features: dict[str, tuple[float, float]] = {}
    for index, name in enumerate(columns):
        cells = [own[index] for own in file.statics]
        numbers = np.array([math.nan if (number := as_number(cell)) is None else number for cell in cells])
        if np.isfinite(numbers).all():
            features[name] = float(numbers.mean()), float(numbers.std()) or 1.0
            continue
        categories = sorted(set(cells))
        if len(categories) > _MOST_CATEGORIES:
            raise OptionError(
                "static",
                f"{name!r} has {len(categories):,} different cells: expected at most {_MOST_CATEGORIES}, or numbers",
            )
        features |= {f"{name}={category}": (0.0, 1.0) for category in categories}
    return tuple(features), tuple(features.values())


def _static_values(
    columns: Sequence[str], features: Sequence[str], units: Sequence[tuple[float, float]], cells: Sequence[str]
) -> tuple[float, ...]:
    """The features of an item with some cells: numbers in their units, 1 for its categories and 0 for others.

    An empty cell is a number's mean, or no category. Raises ValueError for a cell of which training knows nothing.
    """
    told = dict(zip(columns, cells, strict=True))
    categories = {f"{column}={cell}" for column, cell in told.items()}
    for column, cell in told.items():
        known = [name.removeprefix(f"{column}=") for name in features if name.startswith(f"{column}=")]
        if cell and cell not in known and (column not in features or as_number(cell) is None):
            expected = "a number" if column in features else f"one of {', '.join(known)}"
            raise ValueError(f"{column}: expected {expected}, as in training, got {cell!r:.60}: correct or empty it")
    values = []
    for name, (mean, spread) in zip(features, units, strict=True):
        number = as_number(told[name]) if name in told else float(name in categories)
        values.append(0.0 if number is None else (number - mean) / spread)
    return tuple(values)


def _last_date(file: SeriesFile, rows: int) -> str | None:
    return file.dates[rows - 1].isoformat() if file.dates else None


def future_dates(dates: list[datetime], frequency: Frequency, count: int) -> list[datetime]:
    """Return dates, and `count` more after the last."""
    timeline = list(dates)
    for _ in range(count):
        timeline.append(frequency.after(timeline[-1]))
    return timeline
