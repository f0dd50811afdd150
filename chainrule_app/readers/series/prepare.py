"""A file of series becomes arrays on disk: a schema from training rows, values, covariates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from chainrule.files import Record
from chainrule.models import SeriesScaling
from chainrule.option_error import OptionError, UserError, option
from chainrule_app.readers.series.frequency import (
    CYCLES,
    DAY,
    Frequency,
    calendar_features,
    calendar_names,
    harmonics,
)
from chainrule_app.readers.series.series_file import SeriesFile, read_series
from chainrule_app.readers.store import Store, StoreWriter
from chainrule_app.readers.tables.cell import as_number
from chainrule_app.readers.tables.dates import as_date
from chainrule_app.readers.tables.table_file import TableSource
from chainrule_app.readers.text import fingerprint

Floats = npt.NDArray[np.float64]
_ROWS_A_LAG, _MOST_LAGS = 20, 12
_MOST_CATEGORIES = 64  # of a column that never changes


@dataclass(frozen=True)
class SeriesSchema(Record):
    """Columns to forecast, their covariates and their units."""

    FORMAT: ClassVar[int] = 7

    targets: tuple[str, ...]  # names of the series
    covariates: tuple[str, ...]  # names of the columns that are known in advance
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
    fill: bool  # whether what a file leaves out is filled in
    item: str | None  # the name of the column of items; None where each series has a column
    value: str  # the name of the column of their values
    statics: tuple[str, ...]  # names of what never changes, a number each
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
        cls, file: SeriesFile, rows: int, season: int, anchor: int, fill: bool = False, static: str = ""
    ) -> "SeriesSchema":
        """From the first rows of a file."""
        scalings, counts = [], []
        for number, (name, (start, stop)) in enumerate(zip(file.targets, file.spans.tolist(), strict=True)):
            own = slice(start, min(stop, rows))
            values, observed = (torch.from_numpy(part[own, number]) for part in (file.values, file.observed))
            counts.append(bool(((values >= 0) & (values == values.round())).all()))
            try:
                scalings.append(SeriesScaling.fit(values, anchor, observed))
            except ValueError as error:
                what = "column" if file.item is None else f"{file.item}"
                raise ValueError(f"{file.where}, {what} {name!r}: {error}: leave it out") from None
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
            counts=tuple(counts),
            fill=fill,
            item=file.item,
            value=file.value,
            statics=statics,
            static_values=static_values,
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

    def open(self, source: TableSource, where: str | None = None) -> SeriesFile:
        """Read other data as these were read; `where` names them in errors."""
        file = read_series(
            source,
            ",".join(self.targets) if self.item is None else self.value,
            ",".join(self.covariates),
            self.date or "none",
            header=self.header,
            item=self.item or "none",
            date_format=self.date_format,
            fill=self.fill,
            frequency=self.frequency,
            utc_offset=self.utc_offset,
            called=where,
        )
        if file.frequency != self.frequency:
            raise ValueError(f"{file.where}: expected rows {self.frequency}, as in training, got rows {file.frequency}")
        if (file.utc_offset is None) != (self.utc_offset is None):
            wanted = "without a zone" if self.utc_offset is None else "with a zone, as +02:00 or Z,"
            raise ValueError(f"{file.where}: expected dates {wanted} as in training: rewrite them")
        return file if self.item is None else self._in_order(file)

    def _in_order(self, file: SeriesFile) -> SeriesFile:
        """Return a copy of a file with its items in training order; a missing item has an empty span."""
        number_of = {name: number for number, name in enumerate(self.targets)}
        if unknown := [name for name in file.targets if name not in number_of]:
            raise ValueError(
                f"{file.where}, {self.item}: {unknown[0]!r:.60} is not among the {len(self.targets):,} items of "
                "training: remove its rows, or train on them too"
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
        """(N, F) covariates of a file and of `horizon` rows after its last value; (N, S, F) with items."""
        missing = len(file.values) + horizon - len(file.known)
        if horizon and self.covariates:
            self._check_future(file, horizon)
        covariates = (file.known - np.array(self.centres)) / np.array(self.spreads)
        if missing > 0:
            covariates = np.concatenate([covariates, np.full((missing, *covariates.shape[1:]), np.nan)])
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
            raise OptionError(
                "static",
                f"{name!r} has {len(categories):,} different cells: expected at most {_MOST_CATEGORIES}, or numbers",
            )
        for category in categories:
            features[f"{name}={category}"] = [float(cell == category) for cell in cells]
    rows = list(zip(*features.values(), strict=True)) or [()] * len(file.targets)
    return tuple(features), tuple(rows)


def _last_date(file: SeriesFile, rows: int) -> str | None:
    return file.dates[rows - 1].isoformat() if file.dates else None


def future_dates(dates: list[datetime], frequency: Frequency, count: int) -> list[datetime]:
    """Return dates, and `count` more after the last."""
    timeline = list(dates)
    for _ in range(count):
        timeline.append(frequency.after(timeline[-1]))
    return timeline


_MANIFEST = "series.json"


@dataclass(frozen=True)
class PreparedSeries:
    """Series of a prepared folder."""

    schema: SeriesSchema  # columns and units
    values: Floats  # (T, S) the targets, those held out at the end
    features: Floats  # (T, F) covariates as the model takes them; (T, S, F) where items have their own
    spans: npt.NDArray[np.int64]  # (S, 2) rows of each series: its first, and the one after its last
    train_rows: int  # how many of the rows are trained on
    facts: dict[str, Any]  # fingerprint and counts


def prepare_series(
    source: TableSource,
    folder: str | Path,
    *,
    target: str | None,
    horizon: int,
    covariates: str = "",
    date: str = "auto",
    header: bool | None = None,
    item: str = "auto",
    static: str = "",
    date_format: str = "",
    fill: bool = False,
    season: int | None = None,
    anchor: str = "last",
    validation_fraction: float = 0.1,
    schema: SeriesSchema | None = None,
) -> PreparedSeries:
    """Read a file, fit the schema on all rows but the last, which are held out, and write both into a folder.

    Of items that end at different dates the rows after one common date are held out.

    Args:
        source: a file, or a table in memory, see `read_series`.
        folder: created if it is missing; `series.json` is the last file written into it.
        target: see `read_series`.
        horizon: rows of a forecast; at least this many rows are held out.
        covariates: see `read_series`.
        date, header, item, static, date_format, fill: see `read_series`.
        season: rows of a season; None takes the usual one for the step between dates.
        anchor: reference of the values: the "last" value, the value a "season" ago, or the "centre".
        validation_fraction: share of the rows that is held out, the last ones.
        schema: a schema fitted on other rows, which sets the columns, `season` and `anchor`; by default one is fitted.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file cannot be read, or has too few rows.
    """
    if schema is None:
        file = read_series(
            source, target, covariates, date,
            header=header, item=item, static=static, date_format=date_format, fill=fill,
        )  # fmt: skip
    else:
        file = schema.open(source)
    rows = len(file.values)
    held_out = max(round(validation_fraction * rows), horizon)
    if rows - held_out < 2 * horizon:
        raise UserError(
            f"{source}: expected at least {2 * horizon + held_out} rows for a horizon of {horizon}, got {rows}",
            f"choose a smaller {option('horizon')}",
        )
    if schema is None:
        length = season or (1 if file.frequency is None else file.frequency.season)
        if anchor == "season" and length == 1:
            raise OptionError(
                "anchor",
                "expected series with a season",
                f"pass its length with {option('season')}",
            )
        lag = {"last": 1, "season": length, "centre": 0}[anchor]
        schema = SeriesSchema.fit(file, rows - held_out, length, lag, fill, static)
    else:
        schema = schema.trained_on(file, rows - held_out)
    features = schema.features(file)[:rows]
    facts = {
        "source": fingerprint(source),
        "rows": {"train": rows - held_out, "valid": held_out},
        "future": file.future,
        "step": None if file.frequency is None else str(file.frequency),
        "season": schema.season,
        "items": None if file.item is None else len(file.targets),
        "filled": {part: int(count) for part, count in zip(("train", "valid"), _filled(file, held_out), strict=True)},
    }
    with StoreWriter(folder, _MANIFEST) as writer:
        schema.save(writer.path("schema.json"))
        writer.array("values", file.values)
        writer.array("features", features)
        writer.array("spans", file.spans)
        writer.finish(facts)
    return open_series(folder)


def open_series(folder: str | Path) -> PreparedSeries:
    """Open a folder written by `prepare_series`; raises the errors of `Store`."""
    store = Store(folder, _MANIFEST, "series")
    schema, facts = SeriesSchema.load(store.directory / "schema.json"), store.manifest
    with store.checked():
        rows, train_rows = facts["rows"]["train"] + facts["rows"]["valid"], facts["rows"]["train"]
        values = store.array("values", "f8", (rows, len(schema.targets)))
        own = schema.item is not None and bool(schema.covariates or schema.statics)
        shape = (rows, len(schema.targets), schema.num_covariates) if own else (rows, schema.num_covariates)
        features = store.array("features", "f8", shape)
        spans = store.array("spans", "i8", (len(schema.targets), 2))
        if not ((spans >= 0).all() and (spans[:, 0] <= spans[:, 1]).all() and (spans <= rows).all()):
            raise ValueError(f"expected spans of at most {rows} rows")
    return PreparedSeries(schema, values, features, np.array(spans), train_rows, facts)


def _filled(file: SeriesFile, held_out: int) -> tuple[int, int]:
    """Values that were filled in, of the rows to train on and of those held out."""
    filled = ~(file.observed | np.isnan(file.values))
    return filled[:-held_out].sum(), filled[-held_out:].sum()
