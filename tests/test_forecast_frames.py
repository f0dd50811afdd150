"""A forecast of a frame is a result whose frame has the index of the data."""

import numpy as np
import pytest

import chainrule

pandas = pytest.importorskip("pandas")

STEPS = {"horizon": 3, "steps": 1, "hidden_size": 4, "threads": 1, "validation_fraction": 0.2}


@pytest.fixture(scope="module")
def frame():
    time = pandas.date_range("2024-01-01", periods=400, freq="h", name="when")
    values = np.sin(np.arange(400) * np.pi / 12) + np.random.default_rng(0).normal(size=400) / 10
    return pandas.DataFrame({"load": values, "sun": values[::-1]}, index=time)


@pytest.fixture(scope="module")
def forecast(frame):
    return chainrule.fit(frame, task="forecast", target="all", **STEPS).forecast(frame, paths=5, seed=0)


def test_a_forecast_is_indexed_as_the_data(frame, forecast):
    found = forecast.to_pandas()
    assert found.index.name == "when"
    assert found.index.dtype.kind == "M"
    expected = pandas.date_range(frame.index[-1], periods=4, freq="h")[1:]
    for series in ("load", "sun"):
        assert list(found[found.series == series].index) == list(expected)
    assert list(found.columns) == ["series", "mean", "q0.1", "q0.5", "q0.9", "paths"]
    assert (found["q0.1"] <= found["q0.9"]).all()
    assert forecast.to_polars().columns[0] == "when"


def test_paths_have_a_row_for_each_step(forecast):
    whole, paths = forecast.to_pandas(), forecast.per("path").to_pandas()
    assert paths.index.name == "when"
    assert len(paths) == 2 * 5 * 3
    wide = paths[paths.series == "load"].pivot(columns="path", values="value")
    assert np.array_equal(wide.to_numpy(), np.stack(whole[whole.series == "load"]["paths"]))


def test_a_forecast_displays_and_draws_itself(forecast):
    assert repr(forecast).splitlines()[0].split() == ["when", "series", "mean", "q0.1", "q0.5", "q0.9"]
    assert "<table" in forecast._repr_html_()
    assert forecast.plot()._repr_png_().startswith(b"\x89PNG")
