"""Forecasts of series drawn from a trained forecaster, and the linear autoregression averaged with its network."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import partial
from secrets import randbelow
from typing import TYPE_CHECKING, Any, ClassVar

from chainrule.option_error import OptionError
from chainrule_app import frames
from chainrule_app.heavy import np
from chainrule_app.printing import counted
from chainrule_app.readers import series as series_reader
from chainrule_app.results import Column, Result
from chainrule_app.tasks.config import CheckedOptions
from chainrule_app.tasks.forecast.companions import refit, take_new_items
from chainrule_app.tasks.forecast.paths import draw_paths
from chainrule_app.tasks.options import Horizon, Paths, Seed
from chainrule_app.tasks.run_directory import FRAME

if TYPE_CHECKING:
    import numpy.typing as npt

    from chainrule_app.readers.series.series_file import SeriesFile
    from chainrule_app.tasks.forecast.task import ForecastTask

    Floats = npt.NDArray[np.float64]

_OWN = "the rows of training"  # the run's copy of them has a name that no user gave
_PATHS = 20  # drawn as lines
_MOST_AXES = 40  # of a figure
_DIGITS, _MOST_DIGITS = 6, 15  # of a number in CSV; the most that every float64 keeps
_ACROSS = 120  # characters of a label that fit side by side below a figure
_BLUE, _GREY = "#2a6fbb", "#888888"


@dataclass(frozen=True)
class ForecastPrediction(CheckedOptions):
    """Forecast what comes after the last row of a file."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "file": (
            "A file with the columns that the run was trained on; last rows with empty targets are the future, "
            "with their known covariates. By default the file that the run was trained on."
        ),
        "out": "A CSV file with the quantiles; standard output by default.",
        "json": "Print one JSON object per row, with its time, its mean, its quantiles and all paths.",
        "plot": "An image (.png, .svg, .pdf) of the last rows, some paths and the quantiles.",
    }

    quantiles: str = "0.1,0.5,0.9"
    """Quantiles to print, separated by commas."""
    paths: Paths = 100
    """Number of sample paths, from which quantiles are computed."""
    horizon: Horizon | None = None
    """Rows to forecast; the run's horizon by default."""
    seed: Seed | None = None
    """The same seed gives the same paths; random by default."""


def predict_series(run: "ForecastTask", data: list[str] | None, options: ForecastPrediction, *, device: str) -> Result:
    levels = parse_quantiles(options.quantiles)
    horizon = run.data.horizon if options.horizon is None else options.horizon
    seed = randbelow(1 << 31) if options.seed is None else options.seed
    path = str(run.own_file) if data is None else data[0]
    file = run.schema.open(path, where=_OWN if data is None else None, new_items=True)
    prediction = _forecast(run, file, horizon, levels, options.paths, seed, device)

    def notes() -> Iterator[str]:
        shortest = min(stop - start for start, stop in prediction.file.spans[prediction.series].tolist())
        if shortest < run.longest_lag:
            rows = counted(shortest, "row")
            yield f"the shortest series has {rows}, but the model reads {run.longest_lag} back: add earlier rows"

    others = [
        Column("mean"),
        *(Column(f"q{level:g}") for level in levels),
        Column("paths", shown=False),
    ]
    keys = key_columns(run, file, [column.name for column in others])
    hints = {"index": keys[0].name} if file.item is None else {}
    return Result(
        [*keys, *others],
        prediction.rows(),
        about={"seed": seed, "paths": options.paths},
        notes=notes,
        main="mean",
        form="csv",
        hints=hints,
        figure=lambda _: forecast_figure(prediction),
        views={
            "path": lambda: Result(
                [*keys, Column("path"), Column("value")],
                prediction.path_rows(),
                main="value",
                hints=hints,
            )
        },
    )


def key_columns(run: "ForecastTask", file: "SeriesFile", others: Sequence[str]) -> list[Column]:
    """Return the columns of time and series; item and time if the file is in long form.

    Args:
        run: of the series.
        file: of the rows.
        others: names of the other columns: a column of time that has one of them is called time.
    """
    item, place = file.item or "series", file.date or "row"
    time = "time" if place in [item, *others] else place
    parse = partial(_as_time, date_format=file.date_format, zone=file.zone)
    keys = [
        Column(time, heading=place, parse=parse),
        Column(item, parse=frames.value_parser(run.path / FRAME, item)),
    ]
    return keys if file.item is None else keys[::-1]


def _as_time(text: str, date_format: str, zone: tzinfo | None) -> datetime | int | str:
    """Parse the time of a row: a date, or a row number."""
    with suppress(ValueError):
        if date_format:
            return datetime.strptime(text, date_format)
        if text.isdecimal():
            return int(text)
        moment = datetime.fromisoformat(text)
        if (
            moment.tzinfo is None and zone is not None
        ):  # a midnight that clocks skip is an hour later, as frames have it
            moment = moment.replace(tzinfo=zone).astimezone(UTC)
        return moment if moment.tzinfo is None else moment.astimezone(zone or moment.tzinfo)
    return text


@dataclass(frozen=True)
class Forecast:
    """Forecast of all series of a file."""

    file: "SeriesFile"  # source data
    series: list[int]  # (S,) numbers of the series in the file
    times: list[list[str]]  # (S, H) date or row number of each step
    levels: list[float]
    quantiles: "Floats"  # (Q, S, H)
    paths: "Floats"  # (n, S, H)

    def rows(self) -> Iterator[Sequence[Any]]:
        """Yield one row per series and step: time and series, mean, quantiles and all paths."""
        for place in range(len(self.series)):
            paths = self.paths[:, place]
            digits = significant_digits(paths)
            steps = zip(self.keys(place), paths.mean(0), self.quantiles[:, place].T, paths.T, strict=True)
            for keys, mean, levels, values in steps:
                yield *keys, *(float(f"{value:.{digits}g}") for value in (mean, *levels)), values.tolist()

    def path_rows(self) -> Iterator[Sequence[Any]]:
        """Yield one row per series, path and step: time and series, path number and value."""
        for place in range(len(self.series)):
            for path, values in enumerate(self.paths[:, place].tolist()):
                yield from ((*keys, path, value) for keys, value in zip(self.keys(place), values, strict=True))

    def keys(self, place: int) -> list[tuple[str, str]]:
        """Return time and series of each step; item and time if the file is in long form."""
        name = self.file.targets[self.series[place]]
        return [(time, name) if self.file.item is None else (name, time) for time in self.times[place]]


def significant_digits(paths: "Floats") -> int:
    """Return the digits that resolve a thousandth of the spread of the paths (n, H), 6 to 15.

    >>> import numpy as np
    >>> [significant_digits(level + np.linspace(-100, 100, 21)[:, None]) for level in (0, 500, 123456789)]
    [6, 6, 10]
    """
    low, high = np.quantile(paths, (0.1, 0.9), axis=0)
    spread = (high - low)[high > low]
    if not spread.size:
        return _MOST_DIGITS
    first, last = np.floor(np.log10((np.abs(paths).max(), spread.min()))).astype(int).tolist()
    return min(max(first - last + 4, _DIGITS), _MOST_DIGITS)


def parse_quantiles(text: str) -> list[float]:
    """Parse quantiles in ascending order."""
    try:
        levels = sorted({float(part) for part in text.split(",") if part.strip()})
    except ValueError:
        levels = []
    if not levels or not all(0 < level < 1 for level in levels):
        raise OptionError("quantiles", f"expected numbers between 0 and 1, separated by commas, got {text!r:.80}")
    return levels


def _forecast(
    run: "ForecastTask",
    file: "SeriesFile",
    horizon: int,
    levels: Sequence[float],
    paths: int,
    seed: int,
    device: str,
) -> Forecast:
    from chainrule.metrics import quantiles_of_samples

    schema = run.schema.grown(file)
    features = schema.features(file, horizon)
    model = run.model(device)
    take_new_items(model, len(run.schema.targets), schema, file, features)
    refit(model, run.facts.rows.train, file, features)
    places = [(stop, number) for number, (start, stop) in enumerate(file.spans.tolist()) if stop > start]
    drawn = draw_paths(model, file.values, features, places, file.spans, run.history, horizon, paths, seed)
    drawn = schema.possible(drawn, places)
    times = []
    for origin, number in places:
        if schema.frequency is None:
            first = origin - int(file.spans[number, 0])
            times.append([str(first + step) for step in range(1, horizon + 1)])
        else:
            dates = series_reader.future_dates(file.dates[origin - 1 : origin], schema.frequency, horizon)[1:]
            times.append(list(map(file.date_text, dates)))
    quantiles = quantiles_of_samples(drawn, levels)
    return Forecast(file, [number for _, number in places], times, list(levels), quantiles, drawn)


def forecast_figure(forecast: Forecast) -> Any:
    """Plot the last rows, some paths and the quantiles of each series."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise OptionError("plot", "requires matplotlib", "pip install matplotlib") from None
    names = [forecast.file.targets[number] for number in forecast.series]
    if len(names) > _MOST_AXES:
        raise OptionError("plot", f"expected at most {_MOST_AXES} series, got {len(names):,}", "forecast fewer items")
    figure = Figure(figsize=(9, 2.6 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), squeeze=False)[:, 0]
    for number, name in enumerate(names):
        _draw(axes[number], forecast, number, name)
    return figure


def _draw(axis: Any, forecast: Forecast, number: int, name: str) -> None:
    start, stop = forecast.file.spans[forecast.series[number]]
    values, horizon = forecast.file.values[start:stop, forecast.series[number]], len(forecast.times[number])
    past = min(max(4 * horizon, 50), len(values))
    before, after = range(-past, 0), range(horizon)
    axis.plot(before, values[len(values) - past :], color="black", linewidth=1)
    for path in forecast.paths[:_PATHS, number]:
        axis.plot([-1, *after], [values[-1], *path], color=_GREY, linewidth=0.5, alpha=0.4)
    quantiles, count = forecast.quantiles[:, number], len(forecast.levels)
    for index in range(count // 2):
        low, high = forecast.levels[index], forecast.levels[count - 1 - index]
        label = f"{low:g} to {high:g}"
        axis.fill_between(after, quantiles[index], quantiles[count - 1 - index], color=_BLUE, alpha=0.25, label=label)
    axis.plot(after, forecast.paths[:, number].mean(0), color=_BLUE, linewidth=1.5, label="mean")
    axis.axvline(-0.5, color=_GREY, linewidth=0.8)
    axis.set_title(name, loc="left", fontsize=10)
    axis.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=9, fontsize=8, frameon=False)  # never on the curves
    labels = {tick: _time(forecast, number, tick).replace(" ", "\n") for tick in (horizon - 1, -past, -1, -past // 2)}
    width = max(len(line) for label in labels.values() for line in label.splitlines())
    apart = (width + 2) / _ACROSS * (past + horizon)
    ticks: list[int] = []
    for tick in labels:  # the more telling first
        if all(abs(tick - other) >= apart for other in ticks):
            ticks.append(tick)
    axis.set_xticks(ticks, [labels[tick] for tick in ticks], fontsize=8)


def _time(forecast: Forecast, number: int, step: int) -> str:
    """Name a step, counted from the first forecast one."""
    if step >= 0:
        return forecast.times[number][step]
    file = forecast.file
    start, stop = file.spans[forecast.series[number]].tolist()
    return file.date_text(file.dates[stop + step]) if file.dates else str(stop - start + step + 1)
