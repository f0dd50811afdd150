"""The future of series, drawn from a trained forecaster."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING, Any

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.display import csv_line

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from chainrule.data.series import SeriesFile
    from chainrule.tasks.forecast.task import ForecastTask

    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ForecastPrediction:
    """Forecast what comes after the last row of a file.

    Args:
        file: A file with the columns that the run was trained on; rows at the end with empty targets are the future, of
            which covariates are known.
        out: A CSV file with the quantiles; standard output if not given.
        json: Print one JSON object a series, with its quantiles and all paths.
    """

    quantiles: str = "0.1,0.5,0.9"
    """Which quantiles to give, separated by commas."""
    paths: int = 100
    """How many possible futures to draw; quantiles are those of the draws."""
    horizon: int | None = None
    """Rows to forecast; that of the run if not given."""
    plot: Path | None = None
    """An image (.png, .svg, .pdf) of the last rows, some paths and the quantiles."""
    seed: int | None = None
    """The same seed gives the same paths; new ones each time if not given."""


def predict_series(
    run: "ForecastTask", data: str, options: ForecastPrediction, *, out: Path | None, device: str, json: bool
) -> Answer:
    """Forecast a file."""
    levels = parse_quantiles(options.quantiles)
    if options.paths < 2:
        raise ValueError(f"--paths: expected a whole number >= 2, got {options.paths}")
    horizon = run.data.horizon if options.horizon is None else options.horizon
    if horizon < 1:
        raise ValueError(f"--horizon: expected a whole number >= 1, got {horizon}")
    seed = randbelow(1 << 31) if options.seed is None else options.seed
    found = _forecast(run, data, horizon, levels, options.paths, seed, device)
    if options.plot is not None:
        from chainrule.tasks.forecast.plot import plot_forecast

        plot_forecast(found, options.plot)
        print(f"{options.plot} (seed {seed})", file=sys.stderr)

    def records() -> Iterator[Record]:
        if json:
            for number in range(len(found.file.targets)):
                yield Record(found.values(number, seed))
        else:
            header = [found.place, "series", "mean", *(f"q{level:g}" for level in levels)]
            for row in [header, *found.rows()]:
                yield Record({}, csv_line(row))

    def closing() -> Iterable[str]:
        if out is not None:
            yield f"{out} (seed {seed})"

    return Answer(records(), closing=closing)


@dataclass(frozen=True)
class Forecast:
    """A forecast of all series of a file.

    Args:
        file: the data it was made from.
        times: name of each step: its date, or its number in rows.
        levels: Q quantiles.
        quantiles: (Q, S, H).
        paths: (n, S, H).
    """

    file: "SeriesFile"
    times: list[str]
    levels: list[float]
    quantiles: "Floats"
    paths: "Floats"

    @property
    def place(self) -> str:
        """Meaning of the times."""
        return self.file.date or "row"

    def rows(self) -> list[list[str]]:
        """A row for each series and step, as CSV takes them."""
        return [
            [time, name, f"{self.paths[:, number, step].mean():.6g}"]
            + [f"{value:.6g}" for value in self.quantiles[:, number, step]]
            for number, name in enumerate(self.file.targets)
            for step, time in enumerate(self.times)
        ]

    def values(self, number: int, seed: int) -> dict[str, Any]:
        """A series, as JSON takes it."""
        return {
            "series": self.file.targets[number],
            self.place: self.times,
            "mean": self.paths[:, number].mean(0).tolist(),
            "quantiles": {
                f"{level:g}": values.tolist()
                for level, values in zip(self.levels, self.quantiles[:, number], strict=True)
            },
            "paths": self.paths[:, number].tolist(),
            "seed": seed,
        }


def parse_quantiles(text: str) -> list[float]:
    """The quantiles that a user named, ascending.

    >>> parse_quantiles("0.9, 0.1")
    [0.1, 0.9]
    """
    try:
        levels = sorted({float(part) for part in text.split(",") if part.strip()})
    except ValueError:
        levels = []
    if not levels or not all(0 < level < 1 for level in levels):
        raise ValueError(f"--quantiles: expected numbers between 0 and 1, separated by commas, got {text!r:.80}")
    return levels


def _forecast(
    run: "ForecastTask", data: str, horizon: int, levels: Sequence[float], paths: int, seed: int, device: str
) -> Forecast:
    from chainrule.data.series import future_dates
    from chainrule.data.series.frequency import date_text
    from chainrule.metrics.forecasting import quantiles_of_samples
    from chainrule.tasks.forecast.drawing import draw_paths

    schema = run.schema
    file = schema.open(data)
    origin = len(file.values)
    features = schema.features(file, horizon)
    if origin < run.longest_lag:
        print(f"{data}: {origin} rows, though the model looks {run.longest_lag} back: give it more", file=sys.stderr)
    model = run.model(device)
    drawn = draw_paths(model, file.values, features, [origin], run.history, horizon, paths, seed)[:, 0]
    if schema.frequency is None:
        times = [str(origin + step) for step in range(1, horizon + 1)]
    else:
        dates = future_dates(file.dates[:origin], schema.frequency, horizon)[origin:]
        times = [date_text(date, daily=schema.frequency.daily) for date in dates]
    return Forecast(file, times, list(levels), quantiles_of_samples(drawn, levels), drawn)
