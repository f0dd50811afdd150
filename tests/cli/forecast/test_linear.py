"""Models beside the network of a run on series: fitted to its rows, kept with its weights."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from chainrule.models import Forecaster, ForecastMixture, LinearForecaster
from chainrule_app.tasks import open_run
from chainrule_app.tasks.forecast.companions import lags_of

ASKED = ("--task", "forecast", "--target", "all", "--horizon", 4, "--hidden-size", 8, "--steps", 3)
SAME = ("--precision", "float32", "--backend", "vendor", "--threads", 1)  # nothing is timed, and so nothing differs


@pytest.fixture(scope="module")
def months(tmp_path_factory):
    """Few rows with a season and a trend, which a network of few steps does not know."""
    path, noise = tmp_path_factory.mktemp("series") / "months.csv", np.random.default_rng(0).normal(size=(72, 2))
    rows = [
        f"{1990 + n // 12}-{n % 12 + 1:02}-01,{100 + n + 20 * math.sin(math.tau * n / 12) + noise[n, 0]:.3f},"
        f"{50 - n + 9 * math.cos(math.tau * n / 12) + noise[n, 1]:.3f}"
        for n in range(72)
    ]
    path.write_text("\n".join(["date,rising,falling", *rows]) + "\n")
    return path


def test_a_forecast_of_few_rows_is_that_of_the_lines(command, ok, months, tmp_path):
    out, alone = tmp_path / "run", tmp_path / "alone"
    trained = ok("train", months, *ASKED, *SAME, "--out", out)
    assert " + linear autoregression + exponential smoothing + random walk with " in trained.err
    run = open_run(out)
    model = run.model()
    assert isinstance(model, ForecastMixture)
    network, linear, smoothing, walk = model.weights.tolist()
    assert network < 0.5
    fitted = f"linear autoregression: {linear:.0%}, exponential smoothing: {smoothing:.0%}, random walk: {walk:.0%}"
    assert f"{fitted} of the mean\n" in trained.err
    (best,) = [record for record in run.metrics() if record.get("best")][-1:]
    assert (best["share_of_linear"], best["share_of_smoothing"]) == pytest.approx((linear, smoothing), abs=1e-6)
    assert f"linear {linear:.0%}, smoothing {smoothing:.0%}, walk {walk:.0%} of the mean\n" in command("info", out).out

    without = command("train", months, *ASKED, *SAME, "--no-linear", "--out", alone)
    assert "linear" not in without.err
    assert type(open_run(alone).model()) is Forecaster
    assert "linear autoregression" not in command("info", alone).out
    assert "13 rows back at each step; the linear autoregression also the last 13\n" in command("inspect", out).out
    assert "13 rows back at each step\n" in command("inspect", alone).out
    found, other = (json.loads(command("evaluate", path, months, "--json").out) for path in (out, alone))
    assert found["nats_per_value"] < other["nats_per_value"] - 0.5
    for row, its in zip(found["scores"], other["scores"], strict=True):
        if row["forecast"] == "model":
            assert row["crps"] < 0.8 * its["crps"]


def test_coefficients_are_those_of_the_training_rows(ok, months, tmp_path):
    ok("train", months, *ASKED, *SAME, "--out", tmp_path / "run")
    run = open_run(tmp_path / "run")
    series, schema = run.series(), run.schema
    expected = LinearForecaster(schema.scalings, lags=lags_of(schema), num_covariates=schema.num_covariates)
    rows = slice(0, series.train_rows)
    expected.fit(torch.tensor(series.values[rows]), torch.tensor(series.features[rows]))
    found = run.model().linear
    for name in ("coefficients", "log_scales", "degrees"):
        assert torch.equal(found.get_buffer(name), expected.get_buffer(name))
    assert found.coefficients.abs().max() > 0.1
    assert found.window.longest_lag == run.model().network.window.longest_lag == run.longest_lag


def test_a_resumed_run_keeps_what_was_fitted(ok, refused, months, tmp_path, monkeypatch):
    run = tmp_path / "run"
    ok("train", months, *ASKED, *SAME, "--out", run)
    before = open_run(run).model().linear.coefficients
    assert "--linear was True" in refused("train", "--resume", "--out", run, "--no-linear")
    monkeypatch.delattr(LinearForecaster, "fit")
    ok("train", "--resume", "--steps", 6, "--out", run)
    assert torch.equal(open_run(run).model().linear.coefficients, before)


def test_lags_are_as_many_as_rows_tell(months, ok, tmp_path):
    ok("train", months, *ASKED, *SAME, "--out", tmp_path / "run")
    schema = open_run(tmp_path / "run").schema
    assert (schema.season, schema.lags) == (12, [1, 2, 3, 12, 13])
    lags = [lags_of(replace(schema, fitted_rows=rows)) for rows in (65, 10**6)]
    assert lags == [list(range(1, 14))] * 2  # the network reads no farther back
    few, many = (SimpleNamespace(season=24, lags=[1, 2, 3, 24, 25, 168], fitted_rows=rows) for rows in (2399, 2400))
    assert lags_of(few) == [*range(1, 26), 168]
    assert lags_of(many) == [*range(1, 50), 168]
    minutes = SimpleNamespace(season=1440, lags=[1, 2, 3, 1440, 1441], fitted_rows=10**6)
    assert lags_of(minutes) == [*range(1, 101), 1440, 1441]
