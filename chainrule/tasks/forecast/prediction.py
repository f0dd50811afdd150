"""The future of series, drawn from a trained forecaster."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING, Any

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.config import MOST_SEED, CheckedOptions, within
from chainrule.tasks.display import counted, csv_line
from chainrule.tasks.page import save_figure

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from chainrule.base import AutoregressiveModel
    from chainrule.data.series import SeriesFile
    from chainrule.tasks.forecast.task import ForecastTask

    Floats = npt.NDArray[np.float64]

_TOGETHER = 1 << 14  # paths drawn side by side
_PATHS = 20  # drawn as lines
_DIGITS, _MOST_DIGITS = 6, 15  # of a number in CSV; the most that every float64 keeps
_ACROSS = 120  # characters of a label that fit side by side below a figure
_BLUE, _GREY = "#2a6fbb", "#888888"


@dataclass(frozen=True)
class ForecastPrediction(CheckedOptions):
    """Forecast what comes after the last row of a file.

    Args:
        file: A file with the columns that the run was trained on; rows at the end with empty targets are the future, of
            which covariates are known.
        out: A CSV file with the quantiles; standard output if not given.
        json: Print one JSON object a series, with the times of its rows, its quantiles and all paths.
    """

    quantiles: str = "0.1,0.5,0.9"
    """Which quantiles to give, separated by commas."""
    paths: int = within(100, 2, 1 << 20)
    """How many possible futures to draw; quantiles are those of the draws."""
    horizon: int | None = within(None, 1, 1 << 20)
    """Rows to forecast; that of the run if not given."""
    plot: Path | None = None
    """An image (.png, .svg, .pdf) of the last rows, some paths and the quantiles."""
    seed: int | None = within(None, 0, MOST_SEED)
    """The same seed gives the same paths; new ones each time if not given."""


def predict_series(
    run: "ForecastTask", data: list[str], options: ForecastPrediction, *, out: Path | None, device: str, json: bool
) -> Answer:
    """Forecast a file."""
    levels = parse_quantiles(options.quantiles)
    horizon = run.data.horizon if options.horizon is None else options.horizon
    seed = randbelow(1 << 31) if options.seed is None else options.seed
    found = _forecast(run, data[0], horizon, levels, options.paths, seed, device)
    if options.plot is not None:
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
        rows = []
        for number, name in enumerate(self.file.targets):
            digits = significant_digits(self.paths[:, number])
            means, quantiles = self.paths[:, number].mean(0), self.quantiles[:, number].T  # (H,), (H, Q)
            for time, mean, levels in zip(self.times, means, quantiles, strict=True):
                rows.append([time, name, *(f"{value:.{digits}g}" for value in (mean, *levels))])
        return rows

    def values(self, number: int, seed: int) -> dict[str, Any]:
        """A series, as JSON takes it."""
        return {
            "series": self.file.targets[number],
            "times": self.times,
            "mean": self.paths[:, number].mean(0).tolist(),
            "quantiles": {
                f"{level:g}": values.tolist()
                for level, values in zip(self.levels, self.quantiles[:, number], strict=True)
            },
            "paths": self.paths[:, number].tolist(),
            "seed": seed,
        }


def significant_digits(paths: "Floats") -> int:
    """Digits that write each number to a thousandth of the spread of the paths (n, H), 6 to 15.

    >>> import numpy as np
    >>> [significant_digits(level + np.linspace(-100, 100, 21)[:, None]) for level in (0, 500, 123456789)]
    [6, 6, 10]
    """
    import numpy as np

    low, high = np.quantile(paths, (0.1, 0.9), axis=0)
    spread = (high - low)[high > low]
    if not spread.size:
        return _MOST_DIGITS
    first, last = np.floor(np.log10((np.abs(paths).max(), spread.min()))).astype(int).tolist()
    return min(max(first - last + 4, _DIGITS), _MOST_DIGITS)


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
    from chainrule.metrics.forecasting import quantiles_of_samples

    schema = run.schema
    file = schema.open(data)
    origin = len(file.values)
    features = schema.features(file, horizon)
    if origin < run.longest_lag:
        print(
            f"{data}: {counted(origin, 'row')}, though the model looks {run.longest_lag} back: give it more",
            file=sys.stderr,
        )
    model = run.model(device)
    drawn = draw_paths(model, file.values, features, [origin], run.history, horizon, paths, seed)[:, 0]
    if schema.frequency is None:
        times = [str(origin + step) for step in range(1, horizon + 1)]
    else:
        dates = future_dates(file.dates[:origin], schema.frequency, horizon)[origin:]
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
    """Forecasts of all series from each origin.

    Args:
        model: the trained model.
        values: (T, S).
        features: (N, F) covariates, as far as the last forecast goes.
        origins: rows at which forecasts begin.
        past: rows before each that it is made from; fewer where there are not so many.
        horizon: H.
        paths: n draws of each.
        seed: of the draws.

    Returns:
        (n, O, S, H).
    """
    import torch

    from chainrule.data.series import window_context
    from chainrule.decoding.sample_paths import sample_paths

    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    past, series = min(past, min(origins)), values.shape[1]
    places = [(origin, number) for origin in origins for number in range(series)]
    block = max(_TOGETHER // paths, 1)
    drawn = []
    for start in range(0, len(places), block):
        context = window_context(values, features, places[start : start + block], past, horizon)
        drawn.append(sample_paths(model, context, paths=paths, length=horizon, generator=generator).cpu())
    result: Floats = torch.cat(drawn).view(len(origins), series, paths, horizon).movedim(2, 0).double().numpy()
    return result


def plot_forecast(forecast: Forecast, out: Path) -> None:
    """Draw the last rows of each series, some paths, and bands between quantiles; written all or nothing.

    Raises:
        ValueError: matplotlib is not installed, or does not write such images.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("--plot: matplotlib is not installed: pip install matplotlib") from None
    names = forecast.file.targets
    figure = Figure(figsize=(9, 2.6 * len(names)), layout="constrained")
    if out.suffix[1:].lower() not in figure.canvas.get_supported_filetypes():
        raise ValueError(f"--plot: expected a file .png, .svg or .pdf, got {out}")
    axes = figure.subplots(len(names), squeeze=False)[:, 0]
    for number, name in enumerate(names):
        _draw(axes[number], forecast, number, name)
    save_figure(figure, out)


def _draw(axis: Any, forecast: Forecast, number: int, name: str) -> None:
    values, horizon = forecast.file.values[:, number], len(forecast.times)
    shown = min(max(4 * horizon, 50), len(values))
    before, after = range(-shown, 0), range(horizon)
    axis.plot(before, values[len(values) - shown :], color="black", linewidth=1)
    for path in forecast.paths[:_PATHS, number]:
        axis.plot([-1, *after], [values[-1], *path], color=_GREY, linewidth=0.5, alpha=0.4)
    quantiles, count = forecast.quantiles[:, number], len(forecast.levels)
    for place in range(count // 2):
        low, high = forecast.levels[place], forecast.levels[count - 1 - place]
        label = f"{low:g} to {high:g}"
        axis.fill_between(after, quantiles[place], quantiles[count - 1 - place], color=_BLUE, alpha=0.25, label=label)
    axis.plot(after, forecast.paths[:, number].mean(0), color=_BLUE, linewidth=1.5, label="mean")
    axis.axvline(-0.5, color=_GREY, linewidth=0.8)
    axis.set_title(name, loc="left", fontsize=10)
    axis.legend(loc="upper left", fontsize=8, frameon=False)
    labels = {tick: _time(forecast, tick).replace(" ", "\n") for tick in (horizon - 1, -shown, -1, -shown // 2)}
    width = max(len(line) for label in labels.values() for line in label.splitlines())
    apart = (width + 2) / _ACROSS * (shown + horizon)
    ticks: list[int] = []
    for tick in labels:  # the more telling first
        if all(abs(tick - other) >= apart for other in ticks):
            ticks.append(tick)
    axis.set_xticks(ticks, [labels[tick] for tick in ticks], fontsize=8)


def _time(forecast: Forecast, step: int) -> str:
    """Name of a step, counted from the first forecast one."""
    if step >= 0:
        return forecast.times[step]
    row = len(forecast.file.values) + step
    file = forecast.file
    return file.date_text(file.dates[row]) if file.dates else str(row + 1)
