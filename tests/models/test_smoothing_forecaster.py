"""Exponential smoothing: densities of a dense normal vector, written recursions, gaps, logarithms, what a fit finds."""

import math

import numpy as np
import pytest
import torch

from chainrule.heads import GaussianMixture, StudentTMixture
from chainrule.models._series_window import SeriesScaling
from chainrule.models._smoothing_forecaster import SmoothingForecaster

SCALING = SeriesScaling(centre=20.0, scale=2.0, finest=1e-3)
KINDS = {  # α, β, φ, γ, σ
    "level": (0.3, 0.0, 0.0, -1.0, 0.7),
    "trend": (0.6, 0.1, 1.0, -1.0, 0.5),
    "damped trend and season": (0.4, 0.05, 0.9, 0.2, 1.3),
}


def forecaster(kind, season=3, head="normal", num_covariates=0):
    model = SmoothingForecaster([SCALING], head=head, season=season, num_covariates=num_covariates)
    model.smoothing[0] = torch.tensor(KINDS[kind], dtype=torch.float64)
    return model


def written(kind, season):
    """Transition F, gain g, observation h and the variances of the prior, as in the textbook."""
    level, trend, damping, seasonal, _ = KINDS[kind]
    size = 2 + season
    transition = np.zeros((size, size))
    transition[0, :2], transition[1, 1] = (1, damping), damping
    transition[2:, 2:] = np.roll(np.eye(season), 1, axis=1)
    gain = np.array([level, trend if damping else 0.0, *[0.0] * (season - 1), max(seasonal, 0.0)])
    row = np.array([1.0, damping, 1.0, *[0.0] * (season - 1)])
    prior = [30.0**2, 1.0 if damping else 0.0, *[(3 + season / 4) ** 2 if seasonal >= 0 else 0.0] * season]
    return transition, gain, row, np.diag(prior)


def joint(kind, season, length):
    """Covariance of a series in units of s: rows of H x_0 + L e, each computed by the recursion from a unit vector."""
    transition, gain, row, prior = written(kind, season)
    sigma = KINDS[kind][-1]
    starts, shocks = np.zeros((length, len(gain))), np.zeros((length, length))
    for start in range(len(gain)):
        state = np.eye(len(gain))[start]
        for t in range(length):
            starts[t, start], state = row @ state, transition @ state
    for shock in range(length):
        state = gain.copy()
        shocks[shock, shock] = 1
        for t in range(shock + 1, length):
            shocks[t, shock], state = row @ state, transition @ state
    return starts @ prior @ starts.T + sigma**2 * shocks @ shocks.T


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_after_a_past_with_gaps_has_the_density_of_the_normal_vector(kind):
    """The conditional of a dense joint covariance in which the missing values are left out."""
    model, season, random = forecaster(kind), 3, np.random.default_rng(0)
    past = 20 + 2 * random.normal(size=17).cumsum()
    past[[3, 8, 9, 16]] = np.nan
    covariance = joint(kind, season, 18)
    known = np.flatnonzero(np.isfinite(past))
    z = (past[known] - past[0]) / 2
    solved = np.linalg.solve(covariance[np.ix_(known, known)], np.stack([z, covariance[known, 17]], 1))
    mean = covariance[17, known] @ solved[:, 0]
    variance = covariance[17, 17] - covariance[17, known] @ solved[:, 1]
    found = model(torch.zeros(1, 1), torch.from_numpy(past).unsqueeze(0))
    assert isinstance(found, GaussianMixture)
    assert found.mean.item() == pytest.approx(past[0] + 2 * mean, rel=1e-9)
    assert found.variance.sqrt().item() == pytest.approx(2 * (math.sqrt(variance) + 1e-3), rel=1e-9)


def test_later_values_follow_the_recursions():
    """Level, trend and season moved on by each error, from the state after the past; covariates add their effect."""
    kind, model = "damped trend and season", forecaster("damped trend and season", head="student", num_covariates=2)
    model.effects[0] = torch.tensor([0.5, -1.0])
    random = np.random.default_rng(1)
    past, x = (torch.from_numpy(20 + random.normal(size=(1, n)).cumsum(1)) for n in (20, 7))
    covariates = torch.from_numpy(random.normal(size=(1, 27, 2)))
    context = {"past": past, "covariates": covariates}
    found, state = model(x, context), model.initial_state(1, context)
    assert isinstance(found, StudentTMixture)
    level, trend, *season = state["mean"][0].tolist()
    alpha, beta, phi, gamma, _ = KINDS[kind]
    for t in range(7):
        effect = float(covariates[0, 20 + t] @ model.effects[0])
        middle = level + phi * trend + season[0]
        assert found.means[0, t, 0].item() == pytest.approx(past[0, 0].item() + 2 * (middle + effect), rel=1e-10)
        error = (x[0, t].item() - past[0, 0].item()) / 2 - effect - middle
        level, trend = level + phi * trend + alpha * error, phi * trend + beta * error
        season = [*season[1:], season[0] + gamma * error]


@pytest.mark.parametrize("logarithms", [False, True])
def test_a_fit_finds_trend_season_and_logarithms(logarithms):
    """A rising series, whose season grows with it or does not, is forecast far better than by its last value."""
    months = torch.arange(120, dtype=torch.float64)
    noise = torch.randn(120, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = 0.01 * months + 0.2 * (math.tau * months / 12).sin() + 0.02 * noise
    y = (5 + y).exp() if logarithms else 10 + 4 * y
    model = SmoothingForecaster([SeriesScaling.fit(y[:96], 1)], season=12)
    model.fit(y[:96].unsqueeze(1), torch.zeros(96, 0))
    assert model.floors.item() == (float(y[:96].min()) / 100 if logarithms else 0)
    paths = model.sample(40, y[:96].expand(1, -1), length=24, generator=torch.Generator().manual_seed(0))
    naive = (y[96:] - y[95]).abs().mean()
    assert (paths.median(0).values - y[96:]).abs().mean() < 0.2 * naive
    assert bool((paths > 0).all()) or not logarithms


@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_a_fit_does_not_depend_on_the_sign_of_values(offset):
    """The density of the logarithms of negative values, NaN, once spoilt the scores: the first candidate was taken."""
    noise = torch.randn(100, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = SmoothingForecaster([SeriesScaling.fit(noise[:, 0] + offset, 1)]).fit(noise + offset, torch.zeros(100, 0))
    assert model.smoothing[0, 0] < 0.2  # a mean of many values
    assert 0.9 < model.smoothing[0, 4] * model.scaling[1, 0] * (50 if model.floors[0] else 1) < 1.1  # σ


def test_gaps_of_training_rows_play_no_part():
    """A value that is missing is not learnt from: whatever was there, the fit is the same."""
    random = np.random.default_rng(0)
    values = torch.from_numpy(20 + random.normal(size=(40, 1)).cumsum(0))
    features = torch.from_numpy(random.normal(size=(40, 1)))
    values[[7, 20, 21]] = torch.nan
    model = SmoothingForecaster([SCALING], season=4, num_covariates=1).fit(values, features)
    features[[7, 20, 21]] = 5.0  # the covariate of a missing value
    other = SmoothingForecaster([SCALING], season=4, num_covariates=1).fit(values, features)
    for name, buffer in model.named_buffers():
        assert bool(buffer.isfinite().all())
        torch.testing.assert_close(buffer, other.get_buffer(name))


@pytest.mark.slow
@pytest.mark.parametrize("head", ["student", "normal"])
def test_keeps_the_contract(keeps_contract, head):
    random = np.random.default_rng(0)
    values = torch.from_numpy(20 + random.normal(size=(80, 2)).cumsum(0))
    features = torch.from_numpy(random.normal(size=(80, 2)))
    scalings = [SeriesScaling.fit(column, 1) for column in values.unbind(1)]
    model = SmoothingForecaster(scalings, head=head, season=4, num_covariates=2).fit(values[:60], features[:60])
    context = {
        "past": values[50:64].t(),
        "covariates": features[50:70].expand(2, -1, -1),
        "series": torch.tensor([0, 1]),
    }
    keeps_contract(model, values[64:70].t(), context, torch.tensor([6, 3]))
