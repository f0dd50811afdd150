"""The schema of series: it turns a file into numbers for a model, and is fitted on training rows alone."""

from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data.atomic import read_json, write_json
from chainrule.data.series.frequency import CYCLES, UNITS, Frequency, calendar_features, calendar_names
from chainrule.data.series.series_file import SeriesFile, read_series
from chainrule.models.series_scaling import SeriesScaling

FORMAT = 1
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SeriesSchema:
    """Which columns are forecast from what, and in which units.

    Args:
        targets: names of the series.
        covariates: names of the columns that are known in advance.
        centres: (F,) training means of the covariates.
        spreads: (F,) their standard deviations.
        date: the name of the column of dates; None where rows are counted.
        frequency: the step between dates.
        season: rows of a season; 1 for none.
        calendar: the cycles of the calendar that are told to the model.
        anchor: the lag that values are measured from; 0 for the centre.
        scalings: (S,) of the targets.
    """

    targets: tuple[str, ...]
    covariates: tuple[str, ...]
    centres: tuple[float, ...]
    spreads: tuple[float, ...]
    date: str | None
    frequency: Frequency | None
    season: int
    calendar: tuple[str, ...]
    anchor: int
    scalings: tuple[SeriesScaling, ...]

    @classmethod
    def fit(cls, file: SeriesFile, rows: int, season: int, anchor: int) -> "SeriesSchema":
        """From the first rows of a file.

        Args:
            file: the file as read.
            rows: of training.
            season: rows of a season.
            anchor: see the class.

        Raises:
            ValueError: a series never changes, or there are too few rows.
        """
        scalings = []
        for name, values in zip(file.targets, torch.from_numpy(file.values[:rows]).unbind(1), strict=True):
            try:
                scalings.append(SeriesScaling.fit(values, anchor))
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
            season=season,
            calendar=() if file.frequency is None else tuple(calendar_names(file.frequency, file.dates[:rows])),
            anchor=anchor,
            scalings=tuple(scalings),
        )

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
            ValueError: a column is missing, or rows are another step apart.
        """
        targets = ",".join(self.targets)
        file = read_series(path, targets, ",".join(self.covariates), self.date or "none")
        if file.frequency != self.frequency:
            raise ValueError(f"{path}: expected rows {self.frequency}, as in training, got rows {file.frequency}")
        return file

    def features(self, file: SeriesFile, horizon: int = 0) -> Floats:
        """(N, F) covariates of all rows of a file, and of `horizon` rows after its last value.

        Raises:
            ValueError: there are columns of covariates, but not for that many rows to come.
        """
        missing = len(file.values) + horizon - len(file.lines)
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

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        write_json(path, {"format": FORMAT, **asdict(self)})

    @classmethod
    def load(cls, path: Path) -> "SeriesSchema":
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is damaged, or from a newer version.
        """
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file: expected the schema of series")
        content: dict[str, Any] = read_json(path)
        try:
            if content.pop("format", None) != FORMAT:
                raise ValueError(f"format: expected {FORMAT}")
            return cls._from_json(content)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path}: {error}; the file is damaged, or a newer chainrule wrote it") from None

    @classmethod
    def _from_json(cls, content: dict[str, Any]) -> "SeriesSchema":
        step = content.pop("frequency")
        frequency = None if step is None else Frequency(**step)
        if frequency is not None and (frequency.unit not in UNITS or type(frequency.count) is not int):
            raise ValueError(f"frequency: expected a unit and a count, got {step!r:.80}")
        scalings = tuple(SeriesScaling(**part) for part in content.pop("scalings"))
        schema = cls(
            frequency=frequency,
            scalings=scalings,
            season=int(content.pop("season")),
            anchor=int(content.pop("anchor")),
            date=content.pop("date"),
            targets=tuple(map(str, content.pop("targets"))),
            covariates=tuple(map(str, content.pop("covariates"))),
            calendar=tuple(map(str, content.pop("calendar"))),
            centres=tuple(map(float, content.pop("centres"))),
            spreads=tuple(map(float, content.pop("spreads"))),
        )
        counts = {len(schema.covariates), len(schema.centres), len(schema.spreads)}
        if (
            content
            or len(counts) > 1
            or len(scalings) != len(schema.targets)
            or schema.season < 1
            or not CYCLES.keys() >= set(schema.calendar)
        ):
            raise ValueError("expected one scaling for each series, and nothing that is not known")
        return schema


def future_dates(dates: list[datetime], frequency: Frequency, count: int) -> list[datetime]:
    """Dates, and `count` more after the last.

    >>> future_dates([datetime(2024, 1, 1)], Frequency("seconds", 86_400), 1)
    [datetime.datetime(2024, 1, 1, 0, 0), datetime.datetime(2024, 1, 2, 0, 0)]
    """
    made = list(dates)
    for _ in range(count):
        made.append(frequency.after(made[-1]))
    return made
