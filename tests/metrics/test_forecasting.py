"""Scores of forecasts: closed forms against integrals and draws, and over origins, series and steps."""

import numpy as np
import pytest
import torch

from chainrule.heads import GaussianMixture
from chainrule.metrics import (
    coverage,
    crps_of_gaussian_mixture,
    crps_of_samples,
    pinball_loss,
    quantiles_of_samples,
    seasonal_naive,
)
from chainrule.metrics._forecasting import coverage_of_samples
from chainrule_app.tasks.forecast.scores import ForecastScores, naive_paths

WEIGHTS, MEANS, SCALES = np.array([0.3, 0.7]), np.array([-1.0, 2.0]), np.array([0.5, 1.5])


def mixture():
    return GaussianMixture(*map(torch.from_numpy, (np.log(WEIGHTS), MEANS, np.log(SCALES))))


def test_the_closed_form_is_the_integral_of_its_definition():
    grid = torch.linspace(-40, 40, 400_001, dtype=torch.float64)
    for observed in (-2.0, 0.3, 5.0):
        steps = (mixture().cdf(grid) - (grid >= observed).double()) ** 2
        integral = torch.trapezoid(steps, grid).item()
        assert crps_of_gaussian_mixture(WEIGHTS, MEANS, SCALES, observed) == pytest.approx(integral, abs=1e-4)


def test_the_score_of_draws_is_right_on_average_with_few_of_them():
    """The score of the empirical distribution would be 0.23 too large here."""
    draws = mixture().sample((3, 40_000), generator=torch.Generator().manual_seed(0)).numpy()
    exact = crps_of_gaussian_mixture(WEIGHTS, MEANS, SCALES, 0.3)
    assert crps_of_samples(draws, np.full(40_000, 0.3)).mean() == pytest.approx(exact, abs=0.02)


def test_the_score_of_draws_is_the_mean_over_pairs():
    draws, observed = np.random.default_rng(0).normal(size=(7, 2, 3)), np.ones((2, 3))
    pairs = np.abs(draws[:, None] - draws[None]).sum((0, 1)) / (7 * 6)
    np.testing.assert_allclose(crps_of_samples(draws, observed), np.abs(draws - 1).mean(0) - pairs / 2, atol=1e-12)


def test_a_score_does_not_depend_on_where_zero_is_and_scales_with_the_unit():
    here = crps_of_gaussian_mixture(WEIGHTS, MEANS, SCALES, 0.3)
    assert crps_of_gaussian_mixture(WEIGHTS, 10 * MEANS + 5, 10 * SCALES, 8.0) == pytest.approx(10 * here)


def test_twice_the_pinball_loss_over_all_quantiles_is_the_score():
    levels = (np.arange(2000) + 0.5) / 2000
    quantiles = mixture().icdf(torch.from_numpy(levels)).numpy()
    losses = [2 * pinball_loss(value, 0.3, level) for level, value in zip(levels, quantiles, strict=True)]
    assert np.mean(losses) == pytest.approx(float(crps_of_gaussian_mixture(WEIGHTS, MEANS, SCALES, 0.3)), abs=1e-3)


def test_a_quantile_minimises_its_pinball_loss():
    values = np.arange(100.0)
    losses = [pinball_loss(np.full(100, guess), values, 0.8).mean() for guess in values]
    assert int(np.argmin(losses)) in (79, 80)


def test_coverage_counts_the_bounds():
    assert coverage([0, 0, 0], [1, 1, 1], [0, 1, 1.01]) == pytest.approx(2 / 3)


def test_naive_forecasts_repeat_what_was():
    past = np.arange(12.0).reshape(2, 6)
    np.testing.assert_array_equal(seasonal_naive(past, 3), [[5, 5, 5], [11, 11, 11]])
    np.testing.assert_array_equal(seasonal_naive(past, 3, 2), [[4, 5, 4], [10, 11, 10]])
    assert quantiles_of_samples(past, [0.5]).shape == (1, 6)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: crps_of_samples([[1.0]], [1.0]), "samples"),
        (lambda: crps_of_samples(np.zeros((5, 2)), np.zeros(3)), "samples"),
        (lambda: pinball_loss(0.0, 0.0, 1.0), "quantile"),
        (lambda: quantiles_of_samples([0.0, 1.0], [0.5, 1.0]), "quantiles"),
        (lambda: quantiles_of_samples([], [0.5]), "samples"),
        (lambda: coverage_of_samples([0.0, 1.0], [0.5], 0.5), "samples"),
        (lambda: coverage_of_samples([0.0, 1.0], 0.5, 1.0), "probability"),
        (lambda: seasonal_naive([1.0], 2, 2), "season"),
        (lambda: seasonal_naive([1.0], 2, 0), "season"),
    ],
)
def test_what_cannot_be_is_named(call, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: pinball_loss([[1.0], [2.0]], [1.0, 2.0], 0.5),
        lambda: coverage([[0.0], [0.0]], [[1.0], [1.0]], [0.5, 2.0]),
    ],
)
def test_other_shapes_are_not_broadcast(call):
    """Each forecast was compared with every value, and perfect ones had errors."""
    with pytest.raises(ValueError, match="forecast: expected the shape of observed"):
        call()


def test_paths_from_the_truth_are_calibrated_and_their_score_is_known():
    random = np.random.default_rng(0)
    paths, observed = random.normal(size=(200, 40, 2, 5)), random.normal(size=(40, 2, 5))
    scores = ForecastScores.of_paths(paths, observed, np.ones(2))
    assert scores.crps == pytest.approx(1 / np.sqrt(np.pi), abs=0.06)  # E|X - Y| - E|X - X'| / 2 of normal numbers
    assert scores.rmse == pytest.approx(1.0, abs=0.1)
    assert scores.coverage == pytest.approx(0.8, abs=0.05)
    assert scores.coverage_50 == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("probability", [0.5, 0.8, 0.99])
@pytest.mark.parametrize("numbers", [[0.0, 1.0, 2.0], [5.0, 5.0, 6.0, 6.0, 6.0, 7.0], [1.0, 1.0], [*range(11)]])
def test_coverage_is_exact_for_any_number_of_draws(numbers, probability):
    """Each of some numbers in turn is observed and the others are drawn: all ranks are as likely, ties included."""
    numbers = np.array(numbers, np.float64)
    samples = np.stack([np.delete(numbers, place) for place in range(len(numbers))], 1)
    assert coverage_of_samples(samples, numbers, probability) == pytest.approx(probability, abs=1e-12)


@pytest.mark.parametrize("draws", [2, 3, 5, 10, 15, 100])
def test_a_perfect_forecast_has_the_coverage_of_its_intervals(draws):
    """With NumPy's quantiles, 10 draws covered 65% instead of 80%."""
    random, origins = np.random.default_rng(draws), 20_000
    paths, observed = random.normal(size=(draws, origins, 1, 1)), random.normal(size=(origins, 1, 1))
    scores = ForecastScores.of_paths(paths, observed, np.ones(1))
    assert scores.coverage == pytest.approx(0.8, abs=4 * (0.8 * 0.2 / origins) ** 0.5)  # four standard errors
    assert scores.coverage_50 == pytest.approx(0.5, abs=4 * (0.5 * 0.5 / origins) ** 0.5)


def test_the_kth_smallest_draw_is_the_quantile_that_the_next_draw_has():
    for n in (1, 2, 9, 99):
        draws = np.random.default_rng(n).permutation(n).astype(float) ** 2
        levels = [k / (n + 1) for k in range(1, n + 1)]
        np.testing.assert_allclose(quantiles_of_samples(draws, levels), np.sort(draws), atol=1e-9)


@pytest.mark.parametrize("draws", [2, 3, 5, 8, 9, 10, 15, 100])
@pytest.mark.parametrize("family", ["normal", "logistic", "laplace", "exponential"])
def test_intervals_between_quantiles_have_their_probability(draws, family):
    random, origins = np.random.default_rng(draws), 40_000
    x, y = getattr(random, family)(size=(draws, origins)), getattr(random, family)(size=origins)
    low, lower, upper, high = quantiles_of_samples(x, [0.1, 0.25, 0.75, 0.9])
    # Exact where a draw is the quantile. Else 0.03, the most by which these families differ from the logistic one.
    exact = draws == 9
    assert coverage(low, high, y) == pytest.approx(0.8, abs=0.008 if exact else 0.03)
    assert draws < 5 or coverage(lower, upper, y) == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize(("draws", "level"), [(2, 0.1), (3, 0.1), (5, 0.1), (8, 0.1), (20, 0.025), (30, 0.02)])
@pytest.mark.parametrize("family", ["normal", "logistic"])
def test_quantiles_outside_the_draws_are_passed_as_often_as_they_say(draws, level, family):
    random, origins = np.random.default_rng(draws), 40_000
    x, y = getattr(random, family)(size=(draws, origins)), getattr(random, family)(size=origins)
    low, high = quantiles_of_samples(x, [level, 1 - level])
    assert coverage(low, high, y) == pytest.approx(1 - 2 * level, abs=0.02)
    np.testing.assert_allclose(quantiles_of_samples(-x, [1 - level])[0], -low)


def test_quantiles_rise_with_their_level():
    levels = np.linspace(0.001, 0.999, 500)
    for n in (2, 3, 7, 30):
        assert (np.diff(quantiles_of_samples(np.random.default_rng(n).normal(size=n), levels)) > 0).all()


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
