"""Forecasts of the held-out rows beside the last season repeated."""

from time import monotonic
from typing import TYPE_CHECKING, Any

from chainrule_app.heavy import np
from chainrule_app.readers import series as series_reader
from chainrule_app.tasks.baseline import Baseline
from chainrule_app.tasks.forecast.paths import draw_paths

if TYPE_CHECKING:
    from chainrule_app.tasks.forecast.task import ForecastTask

_PATHS = 50
_MOST_ORIGINS = 32


def naive_baseline(run: "ForecastTask", model: Any, seconds: float) -> Baseline | None:
    """Compare the CRPS of some held-out forecasts, each in units of the naive errors of its training rows."""
    from chainrule.metrics import crps_of_samples, seasonal_naive

    series, horizon, season = run.series(), run.data.horizon, run.schema.season
    values, spans, rows = series.values, series.spans, series.train_rows
    origins = series_reader.rolling_origins(rows, len(values), horizon)
    places = [
        (origin, number)
        for origin, number in series_reader.places_of(spans, origins, horizon)
        if origin - spans[number][0] > season
    ]
    order = np.random.default_rng(0).permutation(len(places))[:_MOST_ORIGINS]
    own, naive, began = [], [], monotonic()
    for index in order.tolist():
        origin, number = places[index]
        past, observed = values[spans[number][0] : origin, number], values[origin : origin + horizon, number]
        past, known = series_reader.without_gaps(past), np.isfinite(observed)
        unit = np.abs(past[season:] - past[:-season]).mean()
        if not (unit > 0 and known.any()):
            continue
        drawn = draw_paths(
            model, values, series.features, [(origin, number)], spans, run.history, horizon, _PATHS, seed=0
        )
        own.append(float(crps_of_samples(drawn[:, 0, known], observed[known]).mean() / unit))
        naive.append(float(np.abs(seasonal_naive(past, horizon, season) - observed)[known].mean() / unit))
        if monotonic() - began > seconds:
            break
    if not own:
        return None
    name = "seasonal naive" if season > 1 else "last value repeated"
    return Baseline(name, float(np.mean(naive)), float(np.mean(own)), "CRPS in units of naive errors")
