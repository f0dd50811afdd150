"""An image of a forecast."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.tasks.page import save_figure

if TYPE_CHECKING:
    from chainrule.tasks.forecast.prediction import Forecast

_PATHS = 20  # drawn as lines
_BLUE, _GREY = "#2a6fbb", "#888888"


def plot_forecast(forecast: "Forecast", out: Path) -> None:
    """Draw the last rows of each series, some paths, and bands between quantiles; written all or nothing.

    Raises:
        ValueError: matplotlib is not installed, or does not write such images.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("--plot: matplotlib is not installed: pip install 'chainrule[plots]'") from None
    names = forecast.file.targets
    figure = Figure(figsize=(9, 2.6 * len(names)), layout="constrained")
    if out.suffix[1:].lower() not in figure.canvas.get_supported_filetypes():
        raise ValueError(f"--plot: expected a file .png, .svg or .pdf, got {out}")
    axes = figure.subplots(len(names), squeeze=False)[:, 0]
    for number, name in enumerate(names):
        _draw(axes[number], forecast, number, name)
    save_figure(figure, out)


def _draw(axis: Any, forecast: "Forecast", number: int, name: str) -> None:
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
    ticks = sorted({-shown, -shown // 2, -1, horizon - 1})
    axis.set_xticks(ticks, [_time(forecast, tick) for tick in ticks], fontsize=8)


def _time(forecast: "Forecast", step: int) -> str:
    """Name of a step, counted from the first forecast one."""
    if step >= 0:
        return forecast.times[step]
    row = len(forecast.file.values) + step
    if not forecast.file.dates:
        return str(row + 1)
    date = forecast.file.dates[row].isoformat(sep=" ")
    return date[: len(forecast.times[0])]
