"""A mixture of forecasters: its density, weights by the CRPS of whole windows, never worse than its best part."""

import numpy as np
import pytest
import torch

from chainrule.data import Batch
from chainrule.metrics import crps_of_samples
from chainrule.models import Forecaster, ForecastMixture
from chainrule.models._forecast_mixture import _crps, _weights
from chainrule.models._series_window import SeriesScaling


def mixture(values, hidden_size=4, **options):
    torch.manual_seed(0)
    scalings = [SeriesScaling.fit(column, 1) for column in values.unbind(1)]
    network = Forecaster(scalings, hidden_size=hidden_size, dropout=0.0, lags=[1, 2, 5])
    return ForecastMixture(network, scalings, lags=[1, 2, 5], **options).eval()


def walks(rows=200, columns=2):
    random = torch.Generator().manual_seed(0)
    return 20 + torch.randn(rows, columns, generator=random, dtype=torch.float64).cumsum(0)


def test_densities_are_averaged():
    values = walks()
    model = mixture(values).fit(values, torch.zeros(200, 0))
    model.weights.copy_(torch.tensor([0.5, 0.1, 0.3, 0.1]))
    x, context = values[100:106].t(), {"past": values[80:100].t(), "series": torch.tensor([0, 1])}
    expected = sum(
        w * part(x, context).log_prob(x).exp() for w, part in zip((0.5, 0.1, 0.3, 0.1), model.parts, strict=True)
    )
    torch.testing.assert_close(model(x, context).log_prob(x).exp(), expected)


def test_weights_have_the_smallest_score_of_pooled_draws():
    """Against the CRPS of a sample with so many draws of each part, at each point of the grid, without a doubt."""
    random = np.random.default_rng(0)
    y = random.normal(size=(1, 40))
    centres = random.normal(size=(3, 1, 1, 40)) * 0.7
    paths = centres + random.normal(size=(3, 1, 600, 40))
    found = _weights(torch.from_numpy(paths), torch.from_numpy(y), torch.full((3,), 1 / 3))

    def score(weights):
        counts = [round(600 * float(weight)) for weight in weights]
        pooled = np.concatenate([part[0, :count] for part, count in zip(paths, counts, strict=True)])
        return crps_of_samples(pooled, y[0]).mean() + np.abs(paths - y[:, None]).mean((1, 2, 3)).min() * sum(
            (float(weight) - 1 / 3) ** 2 for weight in weights
        )

    others = [(a / 10, b / 10, 1 - a / 10 - b / 10) for a in range(11) for b in range(11 - a)]
    assert score(found) <= min(map(score, others)) + 1e-3  # draws of a part differ from its other draws


@pytest.mark.parametrize("best", range(3))
def test_a_part_that_is_best_gets_nearly_all_weight(best):
    """If the network is far off, the mean is no worse than the random walk that the others are."""
    y = torch.zeros(64, 12, dtype=torch.float64)
    paths = torch.randn(3, 64, 16, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    paths[[part for part in range(3) if part != best]] += 9
    assert _weights(paths, y, torch.full((3,), 1 / 3))[best] > 0.9


def test_calibration_reads_windows_of_held_out_rows():
    values = walks()
    model = mixture(values, season=5).fit(values[:150], torch.zeros(150, 0))
    model.network.output.bias.data += 30  # a network that is wrong
    places = [(origin, number) for origin in (150, 160, 170, 180) for number in (0, 1)]
    past = torch.stack([values[origin - 30 : origin, number] for origin, number in places])
    x = torch.stack([values[origin : origin + 10, number] for origin, number in places])
    model.calibrate([Batch(x, context={"past": past, "series": torch.tensor([0, 1] * 4)})])
    assert model.weights[0] < 0.1
    assert model.weights.sum().item() == pytest.approx(1)


@pytest.mark.parametrize(("wave", "windows", "alone"), [(0, 20, True), (0, 15, False), (6, 20, False)])
def test_a_walk_stands_alone_where_the_others_are_not_better_in_many_windows(wave, windows, alone):
    values = walks(500, 1) + wave * torch.sin(torch.arange(500.0).double() / 2).unsqueeze(1)
    model = mixture(values).fit(values[:400], torch.zeros(400, 0))
    model.network.output.bias.data += 30  # a network that is wrong
    origins = range(400, 400 + 5 * windows, 5)
    past = torch.stack([values[origin - 30 : origin, 0] for origin in origins])
    x = torch.stack([values[origin : origin + 5, 0] for origin in origins])
    model.calibrate([Batch(x, context=past)])
    assert (model.weights.tolist() == [0, 0, 0, 1]) == alone
    spread = values[:400].diff(dim=0).std().item()
    assert float(model.walk.log_scales.exp() * model.walk.scaling[1]) == pytest.approx(spread, rel=0.3)
    weights = model.weights.clone()
    model.calibrate([Batch(torch.full_like(x, torch.nan), context=past)])
    assert torch.equal(model.weights, weights)  # nothing is known there


def test_the_score_of_a_window_is_that_of_its_pooled_draws():
    random = np.random.default_rng(0)
    y, paths = random.normal(size=(3, 4)), random.normal(size=(2, 3, 50, 4))
    found = _crps(torch.from_numpy(paths), torch.from_numpy(y), torch.tensor([0.5, 0.5], dtype=torch.float64))
    pooled = [np.concatenate(paths[:, window]) for window in range(3)]
    expected = [crps_of_samples(draws, own).mean() for draws, own in zip(pooled, y, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=0.02)


@pytest.mark.slow
def test_keeps_the_contract(keeps_contract):
    values = walks()
    model = mixture(values).double().fit(values, torch.zeros(200, 0))
    context = {"past": values[90:100].t(), "series": torch.tensor([0, 1])}
    keeps_contract(model, values[100:106].t(), context, torch.tensor([6, 3]))


@torch.no_grad()
def test_a_new_series_is_forecast_with_the_means_of_the_others_and_leaves_these_as_they_are():
    values = walks()
    model = mixture(values).double().fit(values, torch.zeros(200, 0)).eval()
    new = SeriesScaling(centre=50.0, scale=3.0)
    past, x = values[:30].T, values[30:34].T
    before = model.log_prob(x, {"past": past, "series": torch.arange(2)})
    rows = model.network.embedding.weight.clone()
    for part in model.parts:
        part.add_series([new])
    after = model.log_prob(x, {"past": past, "series": torch.arange(2)})
    torch.testing.assert_close(after, before, rtol=1e-12, atol=0)
    torch.testing.assert_close(model.network.embedding.weight, torch.cat([rows, rows.mean(0, keepdim=True)]))
    torch.testing.assert_close(model.linear.coefficients[2], model.linear.coefficients[:2].mean(0))
    scaled = torch.cat([50 + 3 * (past[:1] - 1)]), 50 + 3 * (x[:1] - 1)
    walk = model.smoothing(scaled[1], {"past": scaled[0], "series": torch.tensor([2])})
    torch.testing.assert_close(walk.means[0, 0, 0], scaled[0][0, -1])
    assert model.log_prob(scaled[1], {"past": scaled[0], "series": torch.tensor([2])}).isfinite().all()
