"""Scores of forecasts over origins, series and steps."""

import numpy as np
import pytest

from chainrule.metrics._forecasting import ForecastScores, naive_paths


def test_paths_from_the_truth_are_calibrated_and_their_score_is_known():
    random = np.random.default_rng(0)
    paths, observed = random.normal(size=(200, 40, 2, 5)), random.normal(size=(40, 2, 5))
    scores = ForecastScores.of_paths(paths, observed, np.ones(2))
    assert scores.crps == pytest.approx(1 / np.sqrt(np.pi), abs=0.06)  # E|X - Y| - E|X - X'| / 2 of normal numbers
    assert scores.rmse == pytest.approx(1.0, abs=0.1)
    assert scores.coverage == pytest.approx(0.8, abs=0.05)
    assert scores.coverage_50 == pytest.approx(0.5, abs=0.06)


def test_each_series_counts_in_its_own_unit():
    random = np.random.default_rng(0)
    paths, observed = random.normal(size=(50, 9, 2, 3)), random.normal(size=(9, 2, 3))
    units = np.array([1.0, 1000.0])
    scaled = ForecastScores.of_paths(paths * units[:, None], observed * units[:, None], units)
    assert vars(scaled) == pytest.approx(vars(ForecastScores.of_paths(paths, observed, np.ones(2))))


def test_without_a_spread_the_score_is_the_absolute_error():
    observed = np.array([[[1.0, 2.0], [10.0, 30.0]]])
    scores = ForecastScores.of_values(np.zeros_like(observed), observed, np.array([1.0, 10.0]))
    assert scores.crps == scores.mae == pytest.approx((1 + 2 + 1 + 3) / 4)
    assert scores.coverage is None


def test_a_naive_forecast_errs_as_it_did_in_training():
    values = np.cumsum(np.tile([[1.0, -1.0]], (100, 1)), 0)  # it changes by 1 and -1 at each step
    paths = naive_paths(values, 60, [70, 80], 4, 1, 5, np.random.default_rng(0))
    assert paths.shape == (5, 2, 2, 4)
    np.testing.assert_allclose(paths[:, 0, 0], np.tile(values[70:74, 0], (5, 1)))
    np.testing.assert_allclose(paths[:, 1, 1], np.tile(values[80:84, 1], (5, 1)))


def test_a_season_is_repeated_beyond_its_length():
    season = np.array([3.0, 1.0, 4.0])
    values = np.tile(season, 20)[:, None]
    paths = naive_paths(values, 40, [45], 7, 3, 2, np.random.default_rng(0))
    np.testing.assert_allclose(paths[0, 0, 0], values[45:52, 0])


def test_naive_paths_need_a_season_before_each_origin_and_rows_to_draw_from():
    """An origin within the first season was forecast from the end of the series."""
    values = np.arange(20.0)[:, None]
    with pytest.raises(ValueError, match="origins: expected a season of 7 rows before each, got row 2"):
        naive_paths(values, 15, [9, 2], 3, 7, 4, np.random.default_rng(0))
    with pytest.raises(ValueError, match="rows: expected at least 10 of training"):
        naive_paths(values, 9, [12], 3, 7, 4, np.random.default_rng(0))
    assert naive_paths(values, 10, [7], 3, 7, 4, np.random.default_rng(0)).shape == (4, 1, 1, 3)
