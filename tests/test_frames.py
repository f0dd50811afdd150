"""Frames of pandas, polars and Arrow keep their dtypes on the way through a run."""

import json
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chainrule
from chainrule.files import write_json
from chainrule_app import frames
from chainrule_app.readers.origin import Origin
from chainrule_app.typed_columns import frame_table

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

INTEGERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text("abcXYZ 123,;\"'é", min_size=1).map(str.strip).filter(bool)


DATA = Origin("data", "index")


def described(native, known=None):
    """The table of a frame, and its description as a run keeps it."""
    frame = frames.as_frame(native)
    table = frame_table(frame, DATA, known)
    frames.check_restorable(frame, table, frames.describe(frame, table))
    return table, json.loads(json.dumps(frames.describe(frame, table)))


def made_again(native):
    """A frame made again of its cells and its description."""
    table, description = described(native)
    columns = zip(*(cells for _, cells in table.rows()), strict=True)
    return frames.restore(description, dict(zip(table.names, map(list, columns), strict=True)))


@settings(max_examples=30)
@given(
    st.lists(st.tuples(INTEGERS, st.none() | INTEGERS, st.floats(allow_nan=False), st.booleans(), TEXTS), min_size=1)
)
def test_columns_of_polars_come_back_equal(rows):
    kinds = {"i": polars.Int64, "n": polars.Int64, "f": polars.Float64, "b": polars.Boolean, "s": polars.String}
    frame = polars.DataFrame(dict(zip(kinds, zip(*rows, strict=True), strict=True)), schema=kinds)
    back = made_again(frame)
    assert back.schema == frame.schema
    assert back.equals(frame)


def test_dtypes_of_pandas_come_back():
    frame = pandas.DataFrame(
        {
            "integer": [1, 2, 3],
            "nullable": pandas.array([1, None, 3], dtype="Int64"),
            "real": [1.5, None, 2.0],
            "single": pandas.Series([1.5, 0.25, 2.0], dtype="float32"),
            "boolean": [True, False, True],
            "category": pandas.Categorical(["b", "a", None], categories=["b", "a", "c"], ordered=True),
            "time": pandas.to_datetime(["2024-01-01 10:00", "2024-01-02 00:00", "2024-01-03 12:30"]),
            "text": ["x", None, "7"],
            "decimal": [Decimal("1.10"), Decimal("2.50"), None],
            "date": [date(2024, 1, 1), date(2024, 1, 2), None],
        }
    )
    pandas.testing.assert_frame_equal(made_again(frame), frame)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_predicted_cells_have_the_types_of_the_frame(library, tmp_path):
    """Dates, booleans and decimals came back as texts and floats, and durations as numbers of minutes."""
    days = [date(2024, 1, 1 + number % 28) for number in range(60)]
    frame = polars.DataFrame(
        {
            "flag": [day.day % 2 == 0 for day in days],
            "day": days,
            "price": [Decimal(day.day) / 4 for day in days],
            "count": [day.day for day in days],
            "zoned": polars.Series([datetime(2024, 1, day.day, 6) for day in days]).dt.replace_time_zone("Asia/Tokyo"),
            "took": [timedelta(minutes=day.day) for day in days],
        }
    )
    own = {"pandas": frame.to_pandas, "polars": frame.clone, "pyarrow": frame.to_arrow}[library]()
    run = chainrule.fit(own, out=tmp_path / "run", steps=1, hidden_size=4, threads=1)
    cells = list(run.predict(own[:1], columns=list(frame.columns)[:4]))
    for name in ("value", "actual"):
        assert all(map(isinstance, [cell[name] for cell in cells], [bool, date, Decimal, int]))
    zoned, took = run.predict(own[:1], columns=["zoned", "took"])
    assert zoned["actual"] == datetime.fromisoformat("2024-01-01T06:00+09:00")
    assert zoned["actual"].tzinfo is not None
    assert zoned["low"] <= zoned["value"] <= zoned["high"]
    assert {type(value).__name__ for value in took["shares"].values()} <= {"timedelta", "Timedelta"}
    assert took["actual"] == timedelta(minutes=1)
    run.predict(own[:1], columns=["price"]).plot()


def test_rare_values_without_a_name_are_missing():
    frame = polars.DataFrame({"at": [datetime(2024, 1, 1)], "id": [2**60], "name": ["x"]})
    back = frames.restore(described(frame)[1], {name: ["<other>"] for name in frame.columns})
    assert back.schema == frame.schema
    assert back.row(0) == (None, None, "<other>")


def test_dtypes_of_polars_and_arrow_come_back():
    frame = polars.DataFrame(
        {
            "enum": polars.Series(["x", "y", "x"], dtype=polars.Enum(["x", "y"])),
            "category": polars.Series(["x", "y", None], dtype=polars.Categorical),
            "date": [date(2024, 1, 1)] * 3,
            "time": [datetime(2024, 1, 1, 1), None, datetime(2024, 1, 2)],
            "decimal": [Decimal("1.10"), Decimal("2.50"), None],
            "small": polars.Series([1, 2, 3], dtype=polars.UInt8),
        }
    )
    back = made_again(frame)
    assert back.schema == frame.schema
    assert back.equals(frame)
    pytest.importorskip("pyarrow")
    table = frame.select("date", "time", "small").to_arrow()
    assert made_again(table).equals(table)


def test_an_index_of_times_becomes_a_column():
    series = pandas.Series([1.0, 2.0], index=pandas.date_range("2024-01-01", periods=2, freq="h"), name="load")
    assert described(series)[0].names == ["time", "load"]
    assert described(series.reset_index(drop=True))[0].names == ["load"]


def test_texts_that_spell_numbers_are_texts():
    table, _ = described(polars.DataFrame({"zip": ["123", "456"], "name": ["a", "1"], "n": [1, 2]}))
    assert table.texts == {"zip", "name"}


@pytest.mark.parametrize(
    ("step", "unit"),
    [
        (timedelta(days=2), "days"),
        (timedelta(hours=36), "hours"),
        (timedelta(minutes=-90), "minutes"),
        (timedelta(seconds=1), "seconds"),
        (timedelta(milliseconds=20), "milliseconds"),
        (timedelta(microseconds=3), "microseconds"),
    ],
)
def test_durations_are_whole_numbers_of_the_coarsest_unit(step, unit):
    """They were microseconds, so that samples were not round."""
    spans = [step * number for number in (0, 1, 5)] + [None]
    columns = {"wait": spans, "n": [1, 2, 3, 4]}
    for native in (pandas.DataFrame(columns), polars.DataFrame(columns)):
        assert described(native)[1]["columns"]["wait"]["unit"] == unit
        assert list(made_again(native)["wait"])[:3] == spans[:3]


def test_later_durations_have_the_unit_of_training():
    _, description = described(polars.DataFrame({"wait": [timedelta(hours=5)]}))
    later, _ = described(polars.DataFrame({"wait": [timedelta(days=1)]}), description)
    assert list(later.rows()) == [(0, ["24"])]
    assert frames.cells_of({"wait": timedelta(hours=3), "other": None}, description) == {"wait": "3", "other": ""}
    with pytest.raises(ValueError, match="wait: expected whole hours, as in training, got 0:30:00: round it"):
        frames.cells_of({"wait": timedelta(minutes=30)}, description)


def test_cells_that_are_no_values_are_refused():
    with pytest.raises(ValueError, match="a: expected numbers, texts, booleans or dates, got list"):
        described(polars.DataFrame({"a": [[1, 2], [3]]}))


def test_a_damaged_description_is_left_alone(tmp_path):
    path = tmp_path / "frame.json"
    for content in (
        "",
        "[]",
        '{"library": "os", "columns": {}}',
        '{"library": "pandas", "columns": {"a": 1}}',
        "[" * 9999,
    ):
        path.write_text(content)
        assert frames.load_description(path) is None
    write_json(path, {"library": "pandas", "columns": {"a": {"kind": "Int64", "pandas": "int64"}}})
    assert frames.load_description(path)["columns"]["a"]["kind"] == "Int64"


def test_indexes_and_columns_of_several_levels_are_columns():
    """The levels were left out without a word, and levels of columns ended in a TypeError."""
    frame = pandas.DataFrame({"shop": ["a", "b"], "year": [1, 2], "n": [3, 4]}).set_index(["shop", "year"])
    assert described(frame)[0].names == ["shop", "year", "n"]
    wide = pandas.DataFrame([[1, 2]], columns=pandas.MultiIndex.from_product([["n"], ["low", "high"]]))
    assert described(wide)[0].names == ["n low", "n high"]
    with pytest.raises(ValueError, match="expected columns of different names, got 'a' twice: rename one"):
        frames.is_frame(pandas.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(ValueError, match="expected columns of different names, got '1' twice: rename one"):
        described(pandas.DataFrame([[1, 2]], columns=[1, "1"]))


def test_periods_are_their_first_moments():
    """Their dates were left out, so that forecasts counted rows."""
    series = pandas.Series([1.0, 2.0], index=pandas.period_range("2024-01", periods=2, freq="M"), name="load")
    assert [cells[0] for _, cells in described(series)[0].rows()] == ["2024-01-01 00:00:00", "2024-02-01 00:00:00"]


def test_categories_need_not_be_texts():
    frame = pandas.DataFrame({"size": pandas.cut([1, 2, 9], 2), "n": [1, 2, 3]})
    pandas.testing.assert_frame_equal(made_again(frame), frame)


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


def test_an_index_that_is_a_column_too_is_read_once():
    """`set_index(drop=False)` ended in an error of pandas."""
    days = pandas.date_range("2024-01-01", periods=4)
    frame = pandas.DataFrame({"day": days, "shop": [1, 1, 2, 2], "x": [1.5, 2.5, 3.5, 4.5]})
    for index in ("day", ["shop", "day"], ["shop"]):
        native = frames.as_frame(frame.set_index(index, drop=False))
        assert native[["day", "shop", "x"]].equals(frame)
        assert len(native.columns) == 3
    other = frame.set_index(frame["x"].rename("day"))
    with pytest.raises(ValueError, match="the index is called 'day', as a column of other values is: rename one"):
        frames.as_frame(other)
    unnamed = frame.rename(columns={"day": "time"}).set_index(pandas.DatetimeIndex(days))
    assert len(frames.as_frame(unnamed).columns) == 3
