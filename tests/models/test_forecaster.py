"""Forecasts behind the contract: densities in the user's units, paths from the state."""

import math

import pytest
import torch

from chainrule.heads import GaussianMixture
from chainrule.models import Forecaster
from chainrule.models._series_window import SeriesScaling

SCALINGS = [SeriesScaling(centre=20.0, scale=2.0), SeriesScaling(centre=-1.0, scale=0.5)]
VARIANTS = {
    "from the last value": {"lags": [1, 2]},
    "lags beyond the past": {"lags": [1, 6]},
    "from the last season, student": {"lags": [1, 3], "anchor": 3, "head": "student"},
    "from the centre, gru": {"anchor": 0, "cell": "gru", "num_layers": 2, "dropout": 0.2, "components": 1},
}


def forecaster(series=1, **options):
    torch.manual_seed(0)
    model = Forecaster(SCALINGS[:series], **({"hidden_size": 8, "head": "normal", "dropout": 0.0} | options))
    torch.nn.init.normal_(model.output.weight, std=0.3)
    return model


def known(rows=3, past=4, time=5, covariates=2):
    random = torch.Generator().manual_seed(3)
    parts = {"past": 20 + torch.randn(rows, past, generator=random).cumsum(1)}
    if covariates:
        parts["covariates"] = torch.randn(rows, past + time, covariates, generator=random)
    return parts


def values(rows=3, time=5):
    return 20 + torch.randn(rows, time, generator=torch.Generator().manual_seed(4)).cumsum(1)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_keeps_the_contract(keeps_contract, variant):
    model = forecaster(num_covariates=2, **VARIANTS[variant])
    keeps_contract(model, values(), known(), torch.tensor([5, 2, 4]))


def test_keeps_the_contract_with_several_series(keeps_contract):
    model = forecaster(2, lags=[1, 2])
    context = known(covariates=0) | {"series": torch.tensor([0, 1, 0])}
    keeps_contract(model, values(), context)


def test_another_unit_changes_the_density_by_its_jacobian_and_nothing_else():
    """Centimetres for metres: values 100 times as large, log-densities less by log 100 an element."""
    metres = forecaster().double()
    centimetres = Forecaster([SeriesScaling(2000.0, 200.0)], hidden_size=8, head="normal", dropout=0.0).double()
    state = {name: part for name, part in metres.state_dict().items() if name != "window.scaling"}
    centimetres.load_state_dict(state | {"window.scaling": centimetres.window.scaling})
    x, past = values().double(), known(covariates=0)["past"].double()
    expected = metres.log_prob(x, past) - 5 * math.log(100)
    torch.testing.assert_close(centimetres.log_prob(100 * x, 100 * past), expected)
    paths = [
        model.sample(3, unit * past, length=4, generator=torch.Generator().manual_seed(0))
        for model, unit in ((metres, 1), (centimetres, 100))
    ]
    torch.testing.assert_close(paths[1], 100 * paths[0])


@pytest.mark.parametrize("past", [1, 3, 9])
@pytest.mark.parametrize(("lags", "anchor"), [([1, 4], 1), ([1, 4], 2), ([1, 4], 0), ([1, 2], 4)])
def test_the_scale_is_that_of_the_last_changes_and_of_the_usual_one(lags, anchor, past):
    model = forecaster(lags=lags, anchor=anchor, components=1).double()
    torch.nn.init.zeros_(model.output.weight)  # one distribution everywhere, in units of the scale
    x, before = values(rows=2).double(), 20 + torch.randn(2, past, dtype=torch.float64).cumsum(1)
    measured = model(x, before).parameters[2].squeeze(2).exp()
    recent, every = max(*lags, anchor) - anchor, torch.cat([before, x], 1)
    for row, all_values in enumerate(every.tolist()):
        for t in range(x.shape[1]):
            came = range(max(past + t - recent, 0), past + t)
            changes = [all_values[j] - (all_values[j - anchor] if anchor else 20.0) for j in came if j >= anchor]
            scale = math.sqrt((24 * 2.0**2 + sum(change**2 for change in changes)) / (24 + len(changes)))
            # The finest scale is in units of the usual one; the bias of the log scale is 0.
            assert measured[row, t].item() == pytest.approx(scale + 1e-3 * 2.0, rel=1e-12)


def test_a_new_level_is_no_new_situation_where_values_are_measured_from_the_last():
    model, moved = forecaster(lags=[1, 2, 3]).double(), 1e4
    x, past = values().double(), known(covariates=0)["past"].double()
    torch.testing.assert_close(model.log_prob(x + moved, past + moved), model.log_prob(x, past))
    level = forecaster(anchor=0).double()
    assert not torch.allclose(level.log_prob(x + moved, past + moved), level.log_prob(x, past))


def test_what_was_forecast_becomes_past():
    """p(x_1 ... x_5 | past) = p(x_1, x_2 | past) p(x_3, x_4, x_5 | past, x_1, x_2)."""
    model, context, x = forecaster(num_covariates=2).double(), known(), values().double()
    context = {name: part.double() for name, part in context.items()}
    longer = context | {"past": torch.cat([context["past"], x[:, :2]], 1)}
    parts = model.log_prob(x[:, :2], context) + model.log_prob(x[:, 2:], longer)
    torch.testing.assert_close(parts, model.log_prob(x, context))


def test_covariates_of_the_future_change_nothing_before_them():
    model, context, x = forecaster(num_covariates=2).double(), known(), values().double()
    changed = context["covariates"].clone()
    changed[:, 4 + 3] += 5.0  # of the fourth value forecast
    moved = (model(x, context).log_prob(x) - model(x, context | {"covariates": changed}).log_prob(x)).abs() > 1e-9
    assert not moved[:, :3].any()
    assert moved[:, 3].all()


def test_a_value_that_repeats_has_a_bounded_density():
    model = Forecaster([SeriesScaling(20.0, 2.0, finest=0.01)], head="normal", components=1)
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.copy_(torch.tensor([0.0, 0.0, -100.0]))
    peak = model(torch.full((1, 1), 20.0), torch.full((1, 4), 20.0)).log_prob(torch.tensor(20.0)).item()
    assert peak == pytest.approx(-math.log(2.0 * 0.01 * math.sqrt(2 * math.pi)), abs=1e-6)


def test_small_changes_of_a_large_value_keep_their_digits():
    """A float32 network on values of 1e7 that change by 1e-2: float32 alone cannot tell these apart."""
    model = Forecaster([SeriesScaling(1e7, 1e-2)], hidden_size=8, head="normal", dropout=0.0)
    past = 1e7 + 1e-2 * torch.arange(6, dtype=torch.float64).view(1, -1)
    near = model.log_prob(past[:, -1:] + 1e-2, past)
    far = model.log_prob(past[:, -1:] + 5e-2, past)
    assert (near - far).item() > 2


def test_one_past_serves_many_paths():
    model = forecaster(num_covariates=2)
    context = known(rows=1)
    paths = model.sample(7, context, length=5, generator=torch.Generator().manual_seed(0))
    assert paths.shape == (7, 5)
    assert len(paths[:, 0].unique()) == 7


def test_scaling_is_that_of_the_changes_where_values_are_measured_from_the_last():
    values = torch.tensor([100.0, 102.0, 100.0, 102.0, 100.0])
    assert SeriesScaling.fit(values, anchor=1).scale == pytest.approx(2.0)
    assert SeriesScaling.fit(values, anchor=0).scale == pytest.approx(math.sqrt(0.96))
    with pytest.raises(ValueError, match="that change"):
        SeriesScaling.fit(torch.full((9,), 3.0), anchor=1)
    with pytest.raises(ValueError, match="at least 9"):
        SeriesScaling.fit(values, anchor=7)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"lags": []}, "lags"),
        ({"lags": [0, 1]}, "lags"),
        ({"lags": [1], "anchor": 1}, "lags"),
        ({"anchor": -1}, "anchor"),
        ({"components": 0}, "components"),
        ({"head": "cauchy"}, "head"),
        ({"num_covariates": -1}, "num_covariates"),
        ({"cell": "cnn"}, "cell"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"series": []}, "series"),
    ],
)
def test_arguments_out_of_range_are_named(options, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        Forecaster(**({"series": SCALINGS[:1]} | options))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"covariates": None}, "expected a dict with covariates, past, series, got past, series"),
        ({"history": torch.zeros(3, 4)}, "expected a dict with"),
        ({"past": torch.zeros(3, 0)}, "^past"),
        ({"past": torch.zeros(2, 4)}, "^past"),
        ({"covariates": torch.zeros(3, 9, 1)}, "^covariates"),
        ({"covariates": torch.zeros(3, 3, 2)}, "^covariates"),
        ({"covariates": torch.zeros(3, 8, 2)}, "^covariates: known for 4 elements"),
        ({"series": torch.tensor([0, 1, 2])}, "^series"),
        ({"series": torch.zeros(3)}, "^series"),
    ],
)
def test_contexts_that_do_not_fit_are_named(changes, message):
    context = known() | {"series": torch.tensor([0, 1, 0])} | changes
    context = {name: part for name, part in context.items() if part is not None}
    with pytest.raises(ValueError, match=message):
        forecaster(2, num_covariates=2)(values(), context)


def test_a_missing_context_is_named():
    with pytest.raises(ValueError, match="expected a dict with past, got NoneType"):
        forecaster()(values())


def test_heads_are_in_the_users_units():
    conditional = forecaster(components=1)(values(), known(covariates=0)["past"])
    assert isinstance(conditional, GaussianMixture)
    assert conditional.mean.dtype == torch.float64
    assert (conditional.mean - 20).abs().max() < 10
