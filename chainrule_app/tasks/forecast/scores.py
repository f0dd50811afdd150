"""Scores of forecasts over origins, series and steps, and naive forecasts."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chainrule.metrics import coverage_of_samples, crps_of_samples, quantiles_of_samples
from chainrule.option_error import OptionError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ForecastScores:
    """Mean scores over the known values of all origins, series and steps, in the unit of each series.

    Args:
        crps: continuous ranked probability score; mean absolute error of a single-valued forecast.
        rmse: RMSE of the mean of the paths.
        mae: MAE of the median of the paths.
        coverage: share of values inside the central 80% of the paths, see `coverage_of_samples`; None for a
            single-valued forecast.
        coverage_50: the same for the central 50%.
    """

    crps: float
    rmse: float
    mae: float
    coverage: float | None = None
    coverage_50: float | None = None

    @classmethod
    def of_paths(cls, paths: Floats, observed: Floats, units: Floats) -> "ForecastScores":
        """Score forecasts given as draws.

        >>> ForecastScores.of_paths(np.array([[[[0.0]]], [[[2.0]]]]), np.array([[[1.0]]]), np.array([1.0])).rmse
        0.0
        """
        known = np.isfinite(observed)
        scale, paths, observed = np.broadcast_to(units[:, None], known.shape)[known], paths[:, known], observed[known]
        (middle,) = quantiles_of_samples(paths, [0.5])
        return cls(
            crps=float((crps_of_samples(paths, observed) / scale).mean()),
            rmse=_rmse((paths.mean(0) - observed) / scale),
            mae=float(np.abs((middle - observed) / scale).mean()),
            coverage=coverage_of_samples(paths, observed, 0.8),
            coverage_50=coverage_of_samples(paths, observed, 0.5),
        )

    @classmethod
    def of_values(cls, forecast: Floats, observed: Floats, units: Floats) -> "ForecastScores":
        """Score a single value for each step, (O, S, H)."""
        errors = ((forecast - observed) / units[:, None])[np.isfinite(observed)]
        mae = float(np.abs(errors).mean())
        return cls(mae, _rmse(errors), mae)


def _rmse(errors: Floats) -> float:
    return float(np.sqrt(np.square(errors).mean()))


def naive_paths(
    values: Floats, rows: int, origins: list[int], horizon: int, season: int, draws: int, random: np.random.Generator
) -> Floats:
    """Draw naive forecasts (n, O, S, H): the last season plus errors that this forecast made in the training rows.

    values (T, S); `rows`: number of training rows, at the beginning. Season 1 is a random walk with the changes over h
    steps that occur in the training rows.
    """
    steps = np.arange(horizon)
    back = season * (steps // season + 1)  # steps from each value back to the value that it repeats
    first = int(back.max())
    if min(origins) + int((steps - back).min()) < 0:
        raise OptionError("origins", f"expected a season of {season} rows before each, got row {min(origins)}")
    if rows < first + horizon:
        raise ValueError(f"rows: expected at least {first + horizon} of training to draw errors from, got {rows}")
    starts = random.integers(first, rows - horizon + 1, size=(draws, len(origins)))
    index = starts[..., None] + steps  # (n, O, H)
    errors = values[index] - values[index - back]  # (n, O, H, S)
    now = np.array(origins)[:, None] + steps
    paths: Floats = np.moveaxis(values[now - back][None] + errors, 3, 2)
    return paths
