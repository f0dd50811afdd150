"""Linear autoregression: the contract, coefficients of written equations, outliers, and what is refused."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import t as student

from chainrule.heads import GaussianMixture, StudentTMixture
from chainrule.models import LinearForecaster
from chainrule.models._forecaster import _fit
from chainrule.models._series_window import SeriesScaling

VARIANTS = {
    "from the last value": {"lags": [1, 2]},
    "lags beyond the past": {"lags": [1, 6]},
    "from the last season, student": {"lags": [1, 4], "anchor": 3, "head": "student"},
    "from the centre": {"lags": [1, 3], "anchor": 0, "head": "normal"},
}


def series(rows=300, columns=2, seed=0):
    """Values that follow y_t = 0.6 y_{t-1} + 0.3 y_{t-4} + noise about 20, and covariates that they follow as well."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, 2))
    values = np.zeros((rows, columns))
    for t in range(rows):
        before, far = (values[t - lag] if t >= lag else 0.0 for lag in (1, 4))
        values[t] = 0.6 * before + 0.3 * far + 0.5 * features[t, 0] + random.standard_t(4, columns)
    return torch.from_numpy(20 + values), torch.from_numpy(features)


def fitted(values, features, **options):
    scalings = [SeriesScaling.fit(column, options.get("anchor", 1)) for column in values.unbind(1)]
    options = {"lags": [1, 4], "num_covariates": features.shape[1]} | options
    return LinearForecaster(scalings, **options).fit(values, features)


def window(values, features, origin=200, past=12, length=6):
    rows = slice(origin - past, origin)
    context = {
        "past": values[rows].t(),
        "covariates": features[origin - past : origin + length].expand(2, -1, -1),
        "series": torch.tensor([0, 1]),
    }
    return values[origin : origin + length].t(), context


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_keeps_the_contract(keeps_contract, variant):
    values, features = series()
    x, context = window(values, features, past=4)
    keeps_contract(fitted(values, features, **VARIANTS[variant]), x, context, torch.tensor([6, 3]))


@pytest.mark.parametrize(("anchor", "head"), [(1, "student"), (0, "normal"), (4, "student")])
def test_densities_are_those_of_the_equation(anchor, head):
    """Student's t or the normal density about the line, each written out for one row and step."""
    values, features = series()
    model = fitted(values, features, anchor=anchor, head=head, lags=[1, 4, 5])
    x, context = window(values, features, past=12)
    found = model(x, context)
    assert isinstance(found, StudentTMixture if head == "student" else GaussianMixture)
    recent = 5 - anchor
    for row in range(2):
        every = torch.cat([context["past"][row], x[row]]).tolist()
        centre, usual, finest = model.window.scaling[:, row].tolist()
        anchors = [every[t - anchor] if anchor else centre for t in range(len(every))]
        for step in range(x.shape[1]):
            t = 12 + step
            changes = [every[j] - anchors[j] for j in range(t - recent, t)]
            scale = np.sqrt((24 * usual**2 + sum(change**2 for change in changes)) / (24 + recent))
            inputs = [(every[t - lag] - anchors[t]) / scale for lag in (1, 4, 5) if lag != anchor]
            inputs += [*context["covariates"][row, t].tolist(), 1.0]
            middle = anchors[t] + scale * float(np.dot(inputs, model.coefficients[row].numpy()))
            width = scale * (np.exp(model.log_scales[row].item()) + finest * usual / scale)
            degrees = model.degrees[row].item() if head == "student" else np.inf
            expected = student.logpdf(every[t], degrees, middle, width)
            assert found.log_prob(x)[row, step].item() == pytest.approx(expected, rel=1e-10)


def test_coefficients_are_those_of_least_squares_where_rows_are_many():
    """With the normal head and the prior's one row, against numpy's least squares on the written-out columns."""
    values, features = series(rows=2000)
    model = fitted(values, features, anchor=0, head="normal")
    y = values[:, 1].numpy()
    centre, usual = model.window.scaling[:2, 1].tolist()
    scales = np.array([np.sqrt((24 * usual**2 + ((y[t - 4 : t] - centre) ** 2).sum()) / 28) for t in range(4, 2000)])
    columns = [(np.roll(y, lag)[4:] - centre) / scales for lag in (1, 4)]
    columns += [*features[4:].numpy().T, np.ones(1996)]
    expected = np.linalg.lstsq(np.stack(columns, 1), (y[4:] - centre) / scales, rcond=None)[0]
    np.testing.assert_allclose(model.coefficients[1].numpy(), expected, atol=2e-3)
    assert np.abs(expected[:2]).min() > 0.1


@pytest.mark.parametrize("step", [0.0, 2.0])
def test_the_fit_is_a_maximum_of_the_likelihood(step):
    """Of values that are written down in coarse steps too, where the density has a highest peak."""
    values, features = series(rows=400)
    values = (values / step).round() * step if step else values
    model = fitted(values, features)
    assert (model.window.scaling[2] > 0.1).all() == (step > 0)
    x, context = window(values, features, origin=4, past=4, length=396)

    def likelihood():
        return float(model.log_prob(x, context).sum())

    best = likelihood()
    for table in (model.coefficients, model.log_scales):
        for place in np.ndindex(*table.shape):
            kept = table[place].item()
            for change in (-0.1, 0.1):
                table[place] = kept + change
                assert likelihood() < best + (2.0 if step else 0.05)  # the prior, n − N in place of n, rounded values
            table[place] = kept


@pytest.mark.parametrize("truth", [3.0, 6.0, 30.0])
def test_the_degrees_are_the_likeliest(truth):
    random = np.random.default_rng(0)
    inputs = torch.from_numpy(np.stack([random.normal(size=800), np.ones(800)], 1))
    z = 0.5 * inputs[:, 0] + torch.from_numpy(random.standard_t(truth, 800))

    def best(degrees):  # coefficients and scale of the highest likelihood, by another optimiser
        def nats(point):
            return -student.logpdf(z.numpy(), degrees, inputs.numpy() @ point[:2], np.exp(point[2])).sum()

        return minimize(nats, [0.5, 0.0, 0.0]).fun

    coefficients, scale, degrees = _fit(inputs, z, heavy=True)
    nats = {candidate: best(candidate) for candidate in (3.0, 4.0, 6.0, 10.0, 30.0)}
    assert degrees == min(nats, key=nats.get)
    found = -student.logpdf(z.numpy(), degrees, (inputs @ coefficients).numpy(), scale).sum()
    assert found == pytest.approx(nats[degrees], abs=0.05)


def test_an_anchor_that_is_seen_alone_is_declared():
    model = LinearForecaster([SeriesScaling()], lags=[1, 5], anchor=4)
    assert model.visible_past(8)[7].nonzero().flatten().tolist() == [2, 3, 6]  # 5, 4 and 1 before


def test_outliers_do_not_pull():
    random = torch.Generator().manual_seed(0)
    inputs = torch.cat([torch.randn(400, 2, generator=random), torch.ones(400, 1)], 1).double()
    truth = torch.tensor([0.5, -1.0, 0.2], dtype=torch.float64)
    z = inputs @ truth + 0.1 * torch.randn(400, generator=random)
    z[::20] += 10 * torch.randn(20, generator=random)
    robust, plain = ((_fit(inputs, z, heavy)[0] - truth).abs().max() for heavy in (True, False))
    assert robust < 0.02
    assert plain > 5 * robust


def test_a_new_model_is_the_anchor_again():
    values, features = series()
    scalings = [SeriesScaling.fit(column, 4) for column in values.unbind(1)]
    model = LinearForecaster(scalings, lags=[1, 2], anchor=4, num_covariates=2)
    x, context = window(values, features, past=8, length=3)
    torch.testing.assert_close(model(x, context).mean, context["past"][:, 4:7])


def test_a_season_that_was_there_a_few_times_is_known():
    t = torch.arange(60, dtype=torch.float64)
    values = (50 + t + 8 * torch.sin(t * torch.pi / 6) + torch.randn(60, generator=torch.Generator().manual_seed(0)))[
        :, None
    ]
    model = fitted(values[:48], torch.zeros(48, 0, dtype=torch.float64), lags=[1, 2, 3, 12, 13])
    paths = model.sample(300, values[None, :48, 0], length=12, generator=torch.Generator().manual_seed(0))
    error = (paths.mean(0) - values[48:, 0]).square().mean().sqrt()
    again = (values[36:48] - values[48:]).square().mean().sqrt()
    assert error < again / 3


def test_rows_that_repeat_are_fitted():
    """No noise at all: the scale is held, and the density has a highest peak."""
    values = torch.tensor([1.0, 3.0, 2.0] * 20, dtype=torch.float64).unsqueeze(1)
    model = fitted(values, torch.zeros(60, 0, dtype=torch.float64), lags=[1, 3])
    x, past = values[30:36].t(), values[20:30].t()
    assert (model(x, past).mean - x).abs().max() < 0.1
    assert torch.isfinite(model.log_prob(x, past)).all()


def test_the_last_rows_are_fitted_where_there_are_many(monkeypatch):
    monkeypatch.setattr("chainrule.models._forecaster.FEWEST_ROWS", 100)
    monkeypatch.setattr("chainrule.models._forecaster.ROWS_TOGETHER", 100)
    values, features = series(rows=300)
    changed = values.clone()
    changed[:196] += torch.randn(196, 2)
    scalings = [SeriesScaling(20.0, 1.0)] * 2
    models = [
        LinearForecaster(scalings, lags=[1, 4], num_covariates=2).fit(rows, features) for rows in (values, changed)
    ]
    assert torch.equal(models[0].coefficients, models[1].coefficients)


@pytest.mark.parametrize(
    ("values", "features", "named"),
    [
        (torch.zeros(50, 1), torch.zeros(50, 2), r"expected \(T, 2\)"),
        (torch.zeros(50, 2), torch.zeros(50, 1), r"expected \(T, 2\)"),
        (torch.zeros(50, 2), torch.zeros(49, 2), r"expected \(T, 2\)"),
        (torch.zeros(4, 2), torch.zeros(4, 2), "T > 4"),
        (torch.full((50, 2), torch.inf), torch.zeros(50, 2), "finite"),
        (torch.zeros(50, 2), torch.full((50, 2), torch.nan), "finite"),
    ],
)
def test_rows_that_do_not_fit_are_named(values, features, named):
    model = LinearForecaster([SeriesScaling()] * 2, lags=[1, 4], num_covariates=2)
    with pytest.raises(ValueError, match=named):
        model.fit(values, features)


def test_arguments_out_of_range_are_named():
    with pytest.raises(ValueError, match="head: expected"):
        LinearForecaster([SeriesScaling()], head="cauchy")
    with pytest.raises(ValueError, match="x: expected shape"):
        LinearForecaster([SeriesScaling()])(torch.zeros(3), torch.zeros(1, 3))
