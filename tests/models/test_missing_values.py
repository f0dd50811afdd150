"""Missing values of series, NaN: neither scored nor conditioned on, in one pass as in steps."""

import math

import numpy as np
import pytest
import torch

from chainrule.data import SeriesWindows
from chainrule.decoding import sample_paths
from chainrule.models import Ensemble, Forecaster, ForecastMixture, LinearForecaster, SeriesScaling
from chainrule.models._smoothing_forecaster import SmoothingForecaster
from chainrule.training import TrainingOptions, count_elements, evaluate, train

SCALINGS = [SeriesScaling(centre=20.0, scale=2.0)]
NAN = math.nan


def network(**options):
    torch.manual_seed(0)
    return Forecaster(SCALINGS, hidden_size=8, dropout=0.0, **({"lags": [1, 2, 5]} | options)).double()


def fitted(model):
    return model.fit(walk(90), torch.zeros(90, 0))


def walk(rows):
    return 20 + 2 * torch.randn(rows, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64).cumsum(0)


MODELS = {
    "network": network,
    "network, anchored a season ago": lambda: network(anchor=3, lags=[1, 3]),
    "network, anchored at the centre": lambda: network(anchor=0),
    "network of several members": lambda: Ensemble([network(), network(cell="gru")]),
    "linear": lambda: fitted(LinearForecaster(SCALINGS, lags=[1, 2, 4])),
    "smoothing": lambda: fitted(SmoothingForecaster(SCALINGS, season=3)),
    "mixture": lambda: fitted(ForecastMixture(network(), SCALINGS, lags=[1, 2, 4], season=3)),
}
PASTS = {"a gap": [0, 1, 5, 6], "a long gap at the end": list(range(3, 12)), "all but one": list(range(11)), "": []}


@pytest.mark.parametrize("gaps", PASTS)
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_steps_equal_one_pass_and_missing_values_are_not_scored(name, gaps):
    model, series = MODELS[name]().eval(), walk(21)[:, 0]
    past, x = series[None, :12].clone(), series[None, 12:].clone()
    past[0, PASTS[gaps]], x[0, [1, 2, 6]] = NAN, NAN
    conditionals, state, previous, total = model(x, past), model.initial_state(1, past), None, 0.0
    for t in range(9):
        conditional, state = model.step(previous, state)
        for one, other in zip(conditional.parameters, conditionals.parameters, strict=True):
            torch.testing.assert_close(one, other[:, t], rtol=1e-10, atol=1e-10)
        previous = x[:, t]
        total += 0.0 if previous.isnan() else float(conditional.log_prob(previous))
    assert float(model.log_prob(x, past)) == pytest.approx(total, rel=1e-9)
    unrolled, _ = model.unroll(x[:, 4:], model.unroll(x[:, :4], model.initial_state(1, past))[1], x[:, 3])
    torch.testing.assert_close(unrolled.parameters[1], conditionals.parameters[1][:, 4:], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["network", "linear"])
@torch.no_grad()
def test_the_unit_counts_no_change_from_or_to_a_missing_value(name):
    """With the value before repeated, the changes would be 0 and one that is too large."""
    model, past = MODELS[name]().eval(), walk(12).T.clone()
    past[0, [7, 8]] = NAN
    readings, _ = model.window.read(past[:, :1], model.window.begin(model.window.known(1, past)), None)
    recent = past[0, -model.window.longest_lag :]
    changes = recent[1:] - recent[:-1]
    changes = changes[~changes.isnan()]
    scale = ((24 * 4 + changes.square().sum()) / (24 + len(changes))).sqrt()
    assert float(readings.scale) == pytest.approx(float(scale), rel=1e-12)


def test_a_linear_autoregression_is_fitted_to_the_values_that_are_there():
    """Least squares over the rows whose value is known, with the last known one where a lag reads a gap."""
    values, missing = walk(200), [50, 51, 120]
    values[missing] = NAN
    model = LinearForecaster(SCALINGS, head="normal", lags=[1, 2]).fit(values, torch.zeros(200, 0))
    filled = values.clone()
    filled[missing] = values[[49, 49, 119]]
    rows, target = [], []
    for t in range(2, 200):
        if t in missing:
            continue
        change = filled[t - 1] - filled[t - 2] if not {t - 1, t - 2} & set(missing) else torch.zeros(1).double()
        scale = math.sqrt((24 * 4 + float(change) ** 2) / (24 + (not {t - 1, t - 2} & set(missing))))
        rows.append([float(filled[t - 2] - filled[t - 1]) / scale, 1.0])
        target.append(float(values[t] - filled[t - 1]) / scale)
    u, z = np.array(rows), np.array(target)
    penalty = np.diag([np.square(u[:, 0]).mean(), 1e-9])
    np.testing.assert_allclose(model.coefficients[0].numpy(), np.linalg.solve(u.T @ u + penalty, u.T @ z), rtol=1e-9)


def test_scales_are_of_known_values():
    values = torch.tensor([1.0, 3.0, NAN, 7.0, 7.5], dtype=torch.float64)
    scaling = SeriesScaling.fit(values, 1)
    assert scaling.centre == pytest.approx((1 + 3 + 7 + 7.5) / 4)
    assert scaling.scale == pytest.approx(math.sqrt((2**2 + 4**2 + 0.5**2) / 3))
    assert scaling.finest == pytest.approx(0.25 / scaling.scale)


def test_training_and_its_figures_count_known_values_alone(tmp_path):
    values = walk(160).numpy()
    values[[30, 31, 77, 150]] = NAN
    windows = SeriesWindows(values[:120], np.zeros((120, 0)), past=5, length=10, batch_size=4)
    held_out = SeriesWindows.batch(values, np.zeros((160, 0)), [(125, 0), (145, 0)], 5, 10)
    assert count_elements(held_out) == 19
    model = network()
    result = train(model, windows, lambda: [held_out], TrainingOptions(steps=30, validate_every=30), tmp_path)
    assert math.isfinite(result.best.nats_per_element)
    assert all(weight.isfinite().all() for weight in model.parameters())
    nats = -model.eval().log_prob(held_out.x, held_out.context).sum() / 19
    assert evaluate(model, [held_out]).nats_per_element == pytest.approx(float(nats.detach()))


def test_paths_follow_a_gap_and_weights_are_chosen_by_known_values():
    values = walk(160)
    model = ForecastMixture(network(), SCALINGS, lags=[1, 2, 4]).fit(values[:120], torch.zeros(120, 0))
    past = values[None, 100:120, 0].clone()
    past[0, -3:] = NAN
    paths = sample_paths(model, {"past": past}, paths=200, length=3, generator=torch.Generator().manual_seed(0))
    assert paths.isfinite().all()
    assert abs(float(paths.median()) - float(values[116])) < 8
    batch = SeriesWindows.batch(values.numpy(), np.zeros((160, 0)), [(130, 0), (145, 0)], 20, 10)
    weights = []
    for gap in (False, True):
        if gap:
            batch.x[0, 3:] = NAN
        model.calibrate([batch])
        assert model.weights.isfinite().all()
        weights.append(model.weights.clone())
    assert float(weights[1].sum()) == pytest.approx(1)
