"""A table of scores: forecasts by paths, compared with naive forecasts."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chainrule.metrics import _forecasting as forecasting

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ForecastScores:
    """Means over origins, series and steps; of numbers with a unit, each in the unit of its series.

    Args:
        crps: continuous ranked probability score; of a forecast without a spread its mean absolute error.
        rmse: of the mean of the paths.
        mae: of their median.
        coverage: share of values inside the central 80% of the paths; None without a spread.
        coverage_50: the same of the central 50%.
    """

    crps: float
    rmse: float
    mae: float
    coverage: float | None = None
    coverage_50: float | None = None

    @classmethod
    def of_paths(cls, paths: Floats, observed: Floats, units: Floats) -> "ForecastScores":
        """Scores of forecasts given as draws.

        Args:
            paths: (n, O, S, H) draws for O origins, S series, H steps.
            observed: (O, S, H) observed values.
            units: (S,) the unit of each series.

        >>> ForecastScores.of_paths(np.array([[[[0.0]]], [[[2.0]]]]), np.array([[[1.0]]]), np.array([1.0])).rmse
        0.0
        """
        scale = units[:, None]
        low, lower, middle, upper, high = forecasting.quantiles_of_samples(paths, [0.1, 0.25, 0.5, 0.75, 0.9])
        return cls(
            crps=float((forecasting.crps_of_samples(paths, observed) / scale).mean()),
            rmse=forecasting.root_mean_squared_error(paths.mean(0) / scale, observed / scale),
            mae=forecasting.mean_absolute_error(middle / scale, observed / scale),
            coverage=forecasting.coverage(low, high, observed),
            coverage_50=forecasting.coverage(lower, upper, observed),
        )

    @classmethod
    def of_values(cls, forecast: Floats, observed: Floats, units: Floats) -> "ForecastScores":
        """Scores of a single value for each step, (O, S, H)."""
        scale = units[:, None]
        error = forecasting.mean_absolute_error(forecast / scale, observed / scale)
        return cls(error, forecasting.root_mean_squared_error(forecast / scale, observed / scale), error)


def naive_paths(
    values: Floats, rows: int, origins: list[int], horizon: int, season: int, draws: int, random: np.random.Generator
) -> Floats:
    """The naive forecast with the errors it made in training: the last season again, plus one of those errors.

    With season 1 it is a random walk whose changes over h steps are those of the training rows.

    Args:
        values: (T, S).
        rows: of training, the first ones; errors are drawn from them.
        origins: rows at which forecasts begin.
        horizon: H.
        season: rows of a season.
        draws: n.
        random: source of the draws.

    Returns:
        (n, O, S, H).

    Raises:
        ValueError: an origin has no whole season before it, or there are too few rows to draw errors from.
    """
    steps = np.arange(horizon)
    back = season * (steps // season + 1)  # steps from each value back to the one that it repeats
    first = int(back.max())
    if min(origins) + int((steps - back).min()) < 0:
        raise ValueError(f"origins: expected a season of {season} rows before each, got row {min(origins)}")
    if rows < first + horizon:
        raise ValueError(f"rows: expected at least {first + horizon} of training to draw errors from, got {rows}")
    starts = random.integers(first, rows - horizon + 1, size=(draws, len(origins)))
    places = starts[..., None] + steps  # (n, O, H)
    errors = values[places] - values[places - back]  # (n, O, H, S)
    now = np.array(origins)[:, None] + steps
    paths: Floats = np.moveaxis(values[now - back][None] + errors, 3, 2)
    return paths
