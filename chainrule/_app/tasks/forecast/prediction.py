"""Forecasts of series drawn from a trained forecaster, and the linear autoregression averaged with its network."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from secrets import randbelow
from typing import TYPE_CHECKING, Any

from chainrule._app.heavy import modes, np, torch
from chainrule._app.results import Column, Result
from chainrule._app.tasks.config import MOST_SEED, CheckedOptions, within
from chainrule._app.tasks.display import counted
from chainrule._app.tasks.run_directory import WEIGHTS
from chainrule.data import _series

if TYPE_CHECKING:
    import numpy.typing as npt

    from chainrule._app.tasks.forecast.task import ForecastTask
    from chainrule._base import AutoregressiveModel
    from chainrule.data._series import SeriesFile, SeriesSchema

    Floats = npt.NDArray[np.float64]

PLOTS = (".png", ".svg", ".pdf")
_TOGETHER = 1 << 14  # paths drawn side by side
_PATHS = 20  # drawn as lines
_DIGITS, _MOST_DIGITS = 6, 15  # of a number in CSV; the most that every float64 keeps
_ACROSS = 120  # characters of a label that fit side by side below a figure
_CALIBRATED_ON = 1 << 16  # values
_MOST_LAGS, _ROWS_A_LAG = 100, 50  # the shape of the weights follows: other numbers are another format of runs
_BLUE, _GREY = "#2a6fbb", "#888888"


@dataclass(frozen=True)
class ForecastPrediction(CheckedOptions):
    """Forecast what comes after the last row of a file.

    Args:
        file: A file with the columns that the run was trained on; last rows with empty targets are the future, with
            their known covariates.
        out: A CSV file with the quantiles; standard output by default.
        json: Print one JSON object per row, with its time, its mean, its quantiles and all paths.
        plot: An image (.png, .svg, .pdf) of the last rows, some paths and the quantiles.
    """

    quantiles: str = "0.1,0.5,0.9"
    """Quantiles to print, separated by commas."""
    paths: int = within(100, 2, 1 << 20)
    """Number of sample paths, from which quantiles are computed."""
    horizon: int | None = within(None, 1, 1 << 20)
    """Rows to forecast; the run's horizon by default."""
    seed: int | None = within(None, 0, MOST_SEED)
    """The same seed gives the same paths; random by default."""


def predict_series(run: "ForecastTask", data: list[str], options: ForecastPrediction, *, device: str) -> Result:
    levels = parse_quantiles(options.quantiles)
    horizon = run.data.horizon if options.horizon is None else options.horizon
    seed = randbelow(1 << 31) if options.seed is None else options.seed
    prediction = _forecast(run, data[0], horizon, levels, options.paths, seed, device)

    def notes() -> Iterator[str]:
        if len(prediction.file.values) < run.longest_lag:
            rows = counted(len(prediction.file.values), "row")
            yield f"{data[0]}: {rows}, but the model reads {run.longest_lag} rows back: add earlier rows"

    others = [
        Column("series"),
        Column("mean"),
        *(Column(f"q{level:g}") for level in levels),
        Column("paths", shown=False),
    ]
    time = "time" if prediction.place in [column.name for column in others] else prediction.place
    return Result(
        [Column(time, heading=prediction.place, parse=_as_time), *others],
        prediction.rows(),
        about={"seed": seed, "paths": options.paths},
        notes=notes,
        main="mean",
        form="csv",
        hints={"index": time},
        plots=dict.fromkeys(PLOTS, lambda: forecast_figure(prediction)),
        views={
            "path": lambda: Result(
                [Column(time, parse=_as_time), Column("series"), Column("path"), Column("value")],
                prediction.path_rows(),
                main="value",
                hints={"index": time},
            )
        },
    )


def _as_time(text: str) -> datetime | int | str:
    """Parse the time of a row: a date, or a row number."""
    with suppress(ValueError):
        return int(text) if text.isdecimal() else datetime.fromisoformat(text)
    return text


@dataclass(frozen=True)
class Forecast:
    """Forecast of all series of a file."""

    file: "SeriesFile"  # source data
    times: list[str]  # date or row number of each step
    levels: list[float]
    quantiles: "Floats"  # (Q, S, H)
    paths: "Floats"  # (n, S, H)

    @property
    def place(self) -> str:
        """Return the name of the time column."""
        return self.file.date or "row"

    def rows(self) -> Iterator[Sequence[Any]]:
        """Yield one row per series and step: time, series, mean, quantiles and all paths."""
        for number, name in enumerate(self.file.targets):
            paths = self.paths[:, number]
            digits = significant_digits(paths)
            steps = zip(self.times, paths.mean(0), self.quantiles[:, number].T, paths.T, strict=True)
            for time, mean, levels, values in steps:
                yield time, name, *(float(f"{value:.{digits}g}") for value in (mean, *levels)), values.tolist()

    def path_rows(self) -> Iterator[Sequence[Any]]:
        """Yield one row per series, path and step: time, series, path number and value."""
        for number, name in enumerate(self.file.targets):
            for path, values in enumerate(self.paths[:, number].tolist()):
                yield from ((time, name, path, value) for time, value in zip(self.times, values, strict=True))


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
    """Parse quantiles in ascending order.

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
    from chainrule.metrics import quantiles_of_samples

    schema = run.schema
    file = schema.open(data)
    origin = len(file.values)
    features = schema.features(file, horizon)
    model = run.model(device)
    drawn = draw_paths(model, file.values, features, [origin], run.history, horizon, paths, seed)[:, 0]
    if schema.frequency is None:
        times = [str(origin + step) for step in range(1, horizon + 1)]
    else:
        dates = _series.future_dates(file.dates[:origin], schema.frequency, horizon)[origin:]
        times = list(map(file.date_text, dates))
    return Forecast(file, times, list(levels), quantiles_of_samples(drawn, levels), drawn)


def draw_paths(
    model: "AutoregressiveModel",
    values: "Floats",
    features: "Floats",
    origins: Sequence[int],
    past: int,
    horizon: int,
    paths: int,
    seed: int,
) -> "Floats":
    """Draw n paths of all S series from each of O origins, (n, O, S, H), from `past` rows before each."""
    from chainrule.decoding import sample_paths

    generator = torch.Generator(modes.device_of(model)).manual_seed(seed)
    past, series = min(past, min(origins)), values.shape[1]
    places = [(origin, number) for origin in origins for number in range(series)]
    block = max(_TOGETHER // paths, 1)
    drawn = []
    for start in range(0, len(places), block):
        context = _series.window_context(values, features, places[start : start + block], past, horizon)
        drawn.append(sample_paths(model, context, paths=paths, length=horizon, generator=generator).cpu())
    result: Floats = torch.cat(drawn).view(len(origins), series, paths, horizon).movedim(2, 0).double().numpy()
    return result


def forecast_figure(forecast: Forecast) -> Any:
    """Plot the last rows, some paths and the quantiles of each series."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("--plot requires matplotlib: pip install matplotlib") from None
    names = forecast.file.targets
    figure = Figure(figsize=(9, 2.6 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), squeeze=False)[:, 0]
    for number, name in enumerate(names):
        _draw(axes[number], forecast, number, name)
    return figure


def _draw(axis: Any, forecast: Forecast, number: int, name: str) -> None:
    values, horizon = forecast.file.values[:, number], len(forecast.times)
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
    axis.legend(loc="upper left", fontsize=8, frameon=False)
    labels = {tick: _time(forecast, tick).replace(" ", "\n") for tick in (horizon - 1, -past, -1, -past // 2)}
    width = max(len(line) for label in labels.values() for line in label.splitlines())
    apart = (width + 2) / _ACROSS * (past + horizon)
    ticks: list[int] = []
    for tick in labels:  # the more telling first
        if all(abs(tick - other) >= apart for other in ticks):
            ticks.append(tick)
    axis.set_xticks(ticks, [labels[tick] for tick in ticks], fontsize=8)


def _time(forecast: Forecast, step: int) -> str:
    """Name a step, counted from the first forecast one."""
    if step >= 0:
        return forecast.times[step]
    row = len(forecast.file.values) + step
    file = forecast.file
    return file.date_text(file.dates[row]) if file.dates else str(row + 1)


def with_linear(run: "ForecastTask", network: "AutoregressiveModel") -> "AutoregressiveModel":
    """Average a network with a linear autoregression of its training rows."""
    from chainrule.models import CalibratedMixture, LinearForecaster

    schema, options, rows = run.schema, run.config.options, run.facts.rows.train
    linear = LinearForecaster(
        schema.scalings,
        head=options.head,
        lags=lags_of(schema, rows),
        anchor=schema.anchor,
        num_covariates=schema.num_covariates,
    )
    if not (run.path / WEIGHTS).is_file():  # else its coefficients are among the weights
        series = run.series()
        linear.fit(torch.tensor(series.values[:rows]), torch.tensor(series.features[:rows]))
    return CalibratedMixture(network, linear, calibrated_on=_CALIBRATED_ON)


def lags_of(schema: "SeriesSchema", rows: int) -> list[int]:
    """Choose the lags of the linear model: the network's, and each of the last season, or two for many rows."""
    enough = rows >= _ROWS_A_LAG * 2 * schema.season
    near = min((2 if enough else 1) * schema.season + 1, _MOST_LAGS, max(schema.lags))
    return sorted({*schema.lags, *range(1, near + 1)})
