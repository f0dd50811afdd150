"""A forecast of a frame is a result whose frame has the index of the data."""

import json

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


@pytest.mark.parametrize("names", [(0, 1, 2), (3, 0, 8), (2019, 2021, 2020)])
def test_columns_may_be_named_by_numbers(names):
    """They were refused: the first row of numbers was read as values of unnamed columns."""
    values = np.random.default_rng(0).normal(size=(120, 3))
    frame = pandas.DataFrame(values, columns=list(names))
    run = chainrule.fit(frame, task="forecast", target=str(names[1]), **STEPS)
    later = run.forecast(frame, paths=2, seed=0)
    assert later.to_pandas().index.tolist() == [121, 122, 123]
    assert set(later["series"]) == {str(names[1])}


def test_rows_in_memory_continue_files_without_a_header(tmp_path):
    """The names of the columns in memory were read as a first row."""
    values = np.random.default_rng(0).normal(size=(120, 3)).round(3)
    path = tmp_path / "rows.csv"
    np.savetxt(path, values, delimiter=",", fmt="%.3f")
    run = chainrule.fit(path, task="forecast", target="column1", **STEPS)
    from_path = run.forecast(path, paths=2, seed=0)["mean"]
    for rows in (values, pandas.DataFrame(values), pandas.DataFrame(values, columns=list("abc"))):
        assert run.forecast(rows, paths=2, seed=0)["mean"] == from_path
    run = chainrule.fit(path, task="table", steps=1, hidden_size=4, threads=1)
    from_path = run.score(path)["nats"]
    for rows in (values, pandas.DataFrame(values), [dict(zip("abc", row, strict=True)) for row in values.tolist()]):
        assert run.score(rows)["nats"] == from_path
        assert run.score(rows)["index"] == list(range(120))


def test_keys_of_records_are_names(tmp_path):
    records = [{"7": row % 9, "8": row * row % 7, "9": row % 3} for row in range(60)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    for data in (records, path):
        run = chainrule.fit(data, task="table", steps=1, hidden_size=4, threads=1)
        assert len(run.score(data)) == 60
        run = chainrule.fit(data, task="forecast", target="8", **STEPS)
        assert set(run.forecast(data, paths=2)["series"]) == {"8"}
