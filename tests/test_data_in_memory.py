"""Data in memory reach the model as they are: no value is written to a text and guessed again."""

import csv
import io
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chainrule
from chainrule_app.cli.main import main

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
arrow = pytest.importorskip("pyarrow")

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=60)
SMALL: dict[str, Any] = {"steps": 1, "hidden_size": 8}
FILMS = [("good film", "pos"), ("bad film", "neg")] * 30


OTHER_ENDS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # which some readers of lines and of CSV take for the end of a line
SIGNS = ["\r", OTHER_ENDS]


def sampled(frame: Any, n: int = 6, **options: Any) -> Any:
    return chainrule.fit(frame, **SMALL, **options).sample(n, seed=0)


# Texts: nothing in a string ends a row, and blanks at its ends belong to it.


@pytest.fixture(scope="module")
def classifier():
    return chainrule.fit(FILMS, steps=1)


@pytest.mark.parametrize("signs", SIGNS)
def test_each_text_is_one_row_whatever_is_in_it(classifier, signs):
    texts = [f"good{signs}film", "bad film", f"good{signs}"]
    answer = classifier.classify(texts)
    assert answer["index"] == [0, 1, 2]
    assert [text.strip(signs) for text in answer["text"]] == [text.strip(signs) for text in texts]


def test_texts_keep_the_blanks_at_their_ends(classifier):
    texts = [" good film", "bad film\u2028", "\x85film ", "film\r"]
    assert classifier.classify(texts)["text"] == texts


@pytest.mark.parametrize("signs", SIGNS)
def test_each_text_is_trained_on_whatever_is_in_it(signs):
    run = chainrule.fit([(f"good{signs}day", "p"), ("bad day", "n")] * 30, steps=1)
    assert run.classify(["bad day"])["index"] == [0]


def test_labels_keep_the_blanks_at_their_ends():
    run = chainrule.fit([("good film", "pos "), ("bad film", " neg")] * 30, steps=1)
    assert sorted(run.classify(["good film"])["probabilities"][0]) == [" neg", "pos "]


@pytest.mark.parametrize("signs", SIGNS)
def test_strings_are_sequences_whatever_is_in_them(signs):
    run = chainrule.fit([f"a{signs}b", "ab"] * 30, level="char", **SMALL)
    assert run.score([f"a{signs}b", "ab", f"a{signs}"])["elements"] == [3 + len(signs), 3, 2 + len(signs)]


@pytest.mark.parametrize("signs", SIGNS)
def test_pairs_to_translate_are_pairs_whatever_is_in_them(signs):
    run = chainrule.fit(
        [(f"das{signs}haus", "the house"), ("ein hund", f"a{signs}dog")] * 20, task="translate", steps=1
    )
    assert run.translate([f"das{signs}haus", "ein hund"], max_length=2)["source"] == [f"das{signs}haus", "ein hund"]


@pytest.mark.parametrize("signs", SIGNS)
def test_words_are_words_whatever_is_in_them(signs):
    run = chainrule.fit([[(f"A{signs}da", "B-PER"), ("saw", "O")]] * 30, steps=1)
    assert run.tag([[f"A{signs}da", "saw"], ["saw"]])["words"] == [[f"A{signs}da", "saw"], ["saw"]]


# Cells of tables.


@pytest.mark.parametrize("signs", SIGNS)
def test_categories_may_hold_signs_that_end_lines_elsewhere(signs):
    frame = pandas.DataFrame({"c": [f"x{signs}y", "z"] * 30, "x": X})
    run = chainrule.fit(frame, **SMALL)
    assert run.score(frame)["index"] == list(range(60))
    assert set(run.sample(6, seed=0)["c"]) <= {f"x{signs}y", "z"}


def test_samples_that_are_written_can_be_read(tmp_path):
    """A cell with a lone carriage return was not quoted, and then read as two rows."""
    run, new = tmp_path / "run", tmp_path / "new.csv"
    chainrule.fit(pandas.DataFrame({"c": ["x\ry", "z"] * 30, "x": X}), out=run, **SMALL)
    assert main(["sample", str(run), "-n", "9", "--out", str(new)]) == 0
    assert len(chainrule.load(run).score(str(new))["nats"]) == 9


def test_tables_that_are_written_can_be_read(tmp_path):
    frame = pandas.DataFrame({"c": ["x\ry", "z"] * 30, "x": X})
    new = chainrule.fit(frame, out=tmp_path / "run", **SMALL).sample(9, seed=0)
    new.to_csv(tmp_path / "new.csv", index=False, quoting=csv.QUOTE_ALL)
    assert chainrule.load(tmp_path / "run").score(str(tmp_path / "new.csv"))["nats"]


def test_categories_keep_the_blanks_at_their_ends():
    frame = pandas.DataFrame({"c": ["x", " x", "x ", "y"] * 15, "x": X})
    assert set(sampled(frame, 60)["c"]) == {"x", " x", "x ", "y"}


def test_names_of_columns_keep_the_blanks_at_their_ends():
    frame = pandas.DataFrame({" c": ["x", "y"] * 30, "x ": X})
    assert list(sampled(frame).columns) == [" c", "x "]


def test_an_empty_text_is_not_a_missing_one():
    frame = pandas.DataFrame({"c": ["", "y", None] * 20, "x": X})
    drawn = sampled(frame, 60)["c"]
    assert set(drawn.dropna()) == {"", "y"}
    assert drawn.isna().any()


@pytest.mark.parametrize("text", ["<other>", "NA", "null", "nan", "-", "?"])
def test_a_text_is_a_text_whatever_it_says_elsewhere(text):
    frame = pandas.DataFrame({"c": [text, "y"] * 30, "x": X})
    assert set(sampled(frame, 40)["c"]) == {text, "y"}


@pytest.mark.parametrize("names", [[0, 1, 2], [2020, "x", 1.5]], ids=str)
def test_columns_that_are_named_by_numbers_keep_their_names(names):
    frame = pandas.DataFrame(dict(zip(names, (X, X + 1, ["a", "b"] * 30), strict=True)))
    assert list(sampled(frame).columns) == names


# Numbers of one column, although Python has them in several types.

OBJECTS: dict[str, tuple[list[Any], type | tuple[type, ...]]] = {
    "floats": (list(X), float),
    "integers and floats": ([float(x) if i % 2 else i for i, x in enumerate(X)], (int, float)),
    "repeated numbers": ([1, 2.5, 3, 4.25] * 15, (int, float)),
    "decimals": ([Decimal("1.25"), Decimal("2.50")] * 30, Decimal),
    "decimals and integers": ([Decimal("1.25"), 2, 3] * 20, Decimal),
    "integers of numpy": ([np.int64(1), np.int32(2), 3] * 20, int),
    "booleans of numpy": ([np.bool_(True), np.bool_(False)] * 30, bool),
    "booleans of both kinds": ([np.bool_(True), False] * 30, bool),
    "booleans and nothing": ([True, False, None] * 20, (bool, type(None))),
    "times": ([pandas.Timestamp(2024, 1, 1 + i % 20, 5) for i in range(60)], pandas.Timestamp),
    "times of Python": ([datetime(2024, 1, 1 + i % 20, 5) for i in range(60)], datetime),
    "durations": ([pandas.Timedelta(days=i % 20) for i in range(60)], pandas.Timedelta),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_of_a_column_keep_their_kind(name):
    values, kind = OBJECTS[name]
    frame = pandas.DataFrame({"v": pandas.Series(values, dtype=object), "x": X})
    run = chainrule.fit(frame, **SMALL)
    drawn = run.sample(6, seed=0)["v"].tolist()
    assert all(isinstance(value, kind) for value in drawn), drawn
    assert np.isfinite(run.score(frame)["nats"]).all()


# Types of the libraries: restored, or refused before training.

DAYS = [date(2024, 1, 1 + i % 20) for i in range(60)]
STAMPS = [datetime(2024, 1, 1 + i % 20, 3, 4, 5) for i in range(60)]
DELTAS = [timedelta(seconds=i % 20) for i in range(60)]
TIMES = [time(1, 2, i % 20) for i in range(60)]
MONEY = [Decimal("1.25"), Decimal("2.50")] * 30
FLAGS, NUMBERS, LETTERS = [True, False] * 30, [1, 2, 5] * 20, ["a", "b"] * 30

ARROW: dict[str, Callable[[], Any]] = {
    **{kind: lambda kind=kind: arrow.array(NUMBERS, kind) for kind in ("int8", "uint8", "int32", "uint64")},
    "float16": lambda: arrow.array(X.astype(np.float16)),
    "float32": lambda: arrow.array(X, "float32"),
    "bool": lambda: arrow.array(FLAGS),
    **{kind: lambda kind=kind: arrow.array(LETTERS, kind) for kind in ("string", "large_string", "string_view")},
    "binary": lambda: arrow.array([b"a", b"b"] * 30),
    "uuid": lambda: arrow.array([b"0123456789abcdef", b"1123456789abcdef"] * 30, arrow.uuid()),
    "date32": lambda: arrow.array(DAYS, "date32"),
    "date64": lambda: arrow.array(DAYS, "date64"),
    **{f"timestamp {unit}": lambda unit=unit: arrow.array(STAMPS, arrow.timestamp(unit)) for unit in ("s", "ms", "ns")},
    "timestamp Berlin": lambda: arrow.array(STAMPS, arrow.timestamp("us", "Europe/Berlin")),
    "timestamp +02:00": lambda: arrow.array(STAMPS, arrow.timestamp("us", "+02:00")),
    "time32": lambda: arrow.array(TIMES, arrow.time32("s")),
    "time64": lambda: arrow.array(TIMES, arrow.time64("ns")),
    **{f"duration {unit}": lambda unit=unit: arrow.array(DELTAS, arrow.duration(unit)) for unit in ("s", "ms", "ns")},
    "interval": lambda: arrow.array([arrow.MonthDayNano([1, 2, 3])] * 60),
    "decimal32": lambda: arrow.array(MONEY, arrow.decimal32(5, 2)),
    "decimal64": lambda: arrow.array(MONEY, arrow.decimal64(10, 2)),
    "decimal128": lambda: arrow.array(MONEY, arrow.decimal128(10, 2)),
    "decimal256": lambda: arrow.array(MONEY, arrow.decimal256(50, 2)),
    "dictionary of texts": lambda: arrow.array(LETTERS).dictionary_encode(),
    "dictionary of integers": lambda: arrow.array(NUMBERS).dictionary_encode(),
    "dictionary of dates": lambda: arrow.array(DAYS).dictionary_encode(),
    "dictionary of booleans": lambda: arrow.DictionaryArray.from_arrays(arrow.array([0, 1] * 30), [True, False]),
    "run ends": lambda: arrow.RunEndEncodedArray.from_arrays([30, 60], ["a", "b"]),
    "null": lambda: arrow.nulls(60),
    "list": lambda: arrow.array([[1, 2]] * 60),
    "struct": lambda: arrow.array([{"a": 1}] * 60),
}
PANDAS: dict[str, Callable[[], Any]] = {
    **{kind: lambda kind=kind: pandas.array(NUMBERS, kind) for kind in ("int8", "Int64", "UInt8")},
    **{kind: lambda kind=kind: pandas.array(X, kind) for kind in ("float16", "Float32", "Sparse[float]")},
    "complex": lambda: np.array([1 + 1j, 2 + 1j] * 30),
    **{kind: lambda kind=kind: pandas.array(FLAGS, kind) for kind in ("bool", "boolean")},
    **{kind: lambda kind=kind: pandas.array(LETTERS, kind) for kind in ("str", "string", "object", "category")},
    "categories, one of them empty": lambda: pandas.Categorical(["", "no", "yes"] * 20),
    "categories of integers": lambda: pandas.Categorical(NUMBERS),
    "categories of times": lambda: pandas.Categorical(pandas.to_datetime(STAMPS)),
    "categories of dates": lambda: pandas.Categorical(DAYS),
    "categories of intervals": lambda: pandas.cut(X, 4),
    "intervals": lambda: pandas.arrays.IntervalArray.from_breaks(list(range(21))).take([i % 20 for i in range(60)]),
    "periods": lambda: pandas.PeriodIndex(DAYS, freq="D"),
    **{f"datetime64[{unit}]": lambda unit=unit: np.array(STAMPS, f"datetime64[{unit}]") for unit in ("s", "ms", "ns")},
    "datetime64 Berlin": lambda: pandas.to_datetime(STAMPS).tz_localize("Europe/Berlin"),
    "datetime64 +02:00": lambda: pandas.to_datetime(STAMPS).tz_localize("+02:00"),
    **{f"timedelta64[{unit}]": lambda unit=unit: np.array(DELTAS, f"timedelta64[{unit}]") for unit in ("s", "ns")},
    **{
        f"arrow {kind}": lambda kind=kind: pandas.arrays.ArrowExtensionArray(ARROW[kind]())
        for kind in (
            "int8", "float16", "float32", "bool", "string", "large_string", "date32", "date64", "timestamp ns",
            "duration s", "time64", "decimal128", "dictionary of texts", "binary", "list",
        )
    },
}  # fmt: skip
POLARS: dict[str, Callable[[], Any]] = {
    kind: lambda values=values, dtype=dtype: polars.Series("k", values, dtype)
    for kind, values, dtype in (
        ("Int8", NUMBERS, polars.Int8),
        ("UInt64", NUMBERS, polars.UInt64),
        ("Int128", NUMBERS, polars.Int128),
        ("Float16", X, getattr(polars, "Float16", polars.Float32)),
        ("Float32", X, polars.Float32),
        ("Boolean", FLAGS, polars.Boolean),
        ("String", LETTERS, polars.String),
        ("Categorical", LETTERS, polars.Categorical),
        ("Enum", LETTERS, polars.Enum(["a", "b", "c"])),
        ("Enum, one of it empty", ["", "b"] * 30, polars.Enum(["", "b"])),
        ("Date", DAYS, polars.Date),
        ("Datetime ms", STAMPS, polars.Datetime("ms")),
        ("Datetime ns", STAMPS, polars.Datetime("ns")),
        ("Datetime Berlin", STAMPS, polars.Datetime("us", "Europe/Berlin")),
        ("Time", TIMES, polars.Time),
        ("Duration ms", DELTAS, polars.Duration("ms")),
        ("Duration ns", DELTAS, polars.Duration("ns")),
        ("Decimal", MONEY, polars.Decimal(10, 2)),
        ("Binary", [b"a", b"b"] * 30, polars.Binary),
        ("List", [[1]] * 60, polars.List(polars.Int64)),
        ("Array", [[1, 2]] * 60, polars.Array(polars.Int64, 2)),
        ("Struct", [{"a": 1}] * 60, polars.Struct({"a": polars.Int64})),
        ("Null", [None] * 60, polars.Null),
        ("Object", [object()] * 60, polars.Object),
    )
}


LIBRARIES: dict[str, tuple[dict[str, Callable[[], Any]], Callable[[dict[str, Any]], Any], Callable[[Any], Any]]] = {
    "arrow": (ARROW, arrow.table, lambda table: table.schema),
    "pandas": (PANDAS, pandas.DataFrame, lambda frame: frame.dtypes.to_dict()),
    "polars": (POLARS, polars.DataFrame, lambda frame: frame.schema),
}
REFUSED = {
    "arrow": {"binary", "uuid", "interval", "list", "struct"},
    "pandas": {"intervals", "arrow binary", "arrow list"},
    "polars": {"Float16", "Binary", "List", "Array", "Struct", "Object"},
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_types_are_restored(library):
    columns, frame_of, types_of = LIBRARIES[library]
    kinds = [kind for kind in columns if kind not in REFUSED[library]]
    frame = frame_of({kind: columns[kind]() for kind in kinds} | {"x": X})
    assert types_of(sampled(frame)) == types_of(frame)


@pytest.mark.parametrize("library", LIBRARIES)
def test_other_types_are_refused_before_training(library):
    columns, frame_of, _ = LIBRARIES[library]
    for kind in REFUSED[library]:
        with pytest.raises(ValueError, match="column of this kind: expected"):
            chainrule.fit(frame_of({"column of this kind": columns[kind](), "x": X}), **SMALL)


# Times: their notation is not guessed from the rows at hand.


def test_rows_at_whole_seconds_are_scored_like_others():
    times = pandas.Timestamp("2024-01-01") + pandas.to_timedelta(RANDOM.integers(0, 40, 60) * 250, unit="ms")
    run = chainrule.fit(frame := pandas.DataFrame({"t": times, "x": X}), **SMALL)
    whole = frame[frame.t.dt.microsecond == 0]
    nats = [nats for row, nats in enumerate(run.score(frame)["nats"]) if row in whole.index]
    assert run.score(whole)["nats"] == pytest.approx(nats, rel=1e-6)  # float32, of rows in other company
    assert len(run.fill(whole.assign(x=None))) == len(whole)


def test_durations_in_nanoseconds_are_kept():
    values = pandas.to_timedelta([100 * (1 + i % 9) for i in range(60)], unit="ns")
    drawn = sampled(pandas.DataFrame({"t": values, "x": X}))["t"]
    assert drawn.between(values.min(), values.max()).all()


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_times_in_nanoseconds_are_refused_with_a_remedy_that_works(tmp_path, zone):
    """They were categories."""
    values = pandas.to_datetime([1_704_067_200_000_000_001 + 50_000 * (i % 20) for i in range(60)]).tz_localize(zone)
    frame = pandas.DataFrame({"t": values, "x": X})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    for data in (frame, str(tmp_path / "rows.csv"), str(tmp_path / "rows.parquet")):
        with pytest.raises(ValueError, match=r"'t': times finer than a microsecond.*round them, leave it out"):
            chainrule.fit(data, **SMALL)
    assert chainrule.fit(frame, types="t=skip", **SMALL).sample(1).shape[1] == 1
    rounded = frame.assign(t=frame.t.dt.round("us"))
    drawn = sampled(rounded)["t"]
    assert drawn.dtype == rounded["t"].dtype
    assert drawn.between(rounded["t"].min(), rounded["t"].max()).all()


# Dates and numbers that name rows.


@pytest.mark.parametrize(
    "index",
    [
        pandas.Index(DAYS),
        pandas.to_datetime(STAMPS),
        pandas.PeriodIndex(DAYS, freq="D"),
    ],
    ids=["dates of Python", "times", "periods"],
)
def test_an_unnamed_index_of_dates_is_a_column(index):
    assert sampled(pandas.DataFrame({"x": X}, index=index)).reset_index(drop=True).shape[1] == 2


def test_unnamed_levels_of_an_index_are_columns():
    index = pandas.MultiIndex.from_arrays([LETTERS, pandas.to_datetime(STAMPS)])
    frame = pandas.DataFrame({"x": X}, index=index)
    assert sampled(frame).reset_index(drop=True).shape[1] == 3


def test_a_series_with_dates_of_python_is_forecast_by_date():
    days = pandas.date_range("2024-01-01", periods=60).date
    run = chainrule.fit(pandas.Series(X, index=days), task="forecast", horizon=2, **SMALL)
    answer = pandas.to_datetime(run.forecast(horizon=2).to_pandas().index)
    assert answer.tolist() == list(pandas.date_range("2024-03-01", periods=2))


def test_items_that_are_numbers_are_answered_as_numbers():
    days = np.repeat(pandas.date_range("2024-01-01", periods=30), 2)
    frame = pandas.DataFrame({"shop": [7, 8] * 30, "day": days, "x": X})
    run = chainrule.fit(frame, task="forecast", item="shop", target="x", horizon=2, **SMALL)
    assert set(run.forecast(horizon=1)["shop"]) == {7, 8}


@pytest.mark.parametrize("labels", [(1, 0), (True, False), (1.5, 2.5)], ids=str)
def test_labels_of_texts_keep_their_type(labels):
    run = chainrule.fit([("good film", labels[0]), ("bad film", labels[1])] * 30, steps=1)
    (answer,) = run.classify(["good film"])["label"]
    assert type(answer) is type(labels[0])
    assert answer in labels


def test_labels_of_a_frame_keep_their_type():
    frame = pandas.DataFrame({"text": ["good film", "bad film"] * 30, "label": [3, 4] * 30})
    assert chainrule.fit(frame, task="classify", steps=1).classify(["good film"])["label"][0] in (3, 4)


def test_labels_of_images_keep_their_type():
    images = RANDOM.integers(0, 2, (40, 8, 8), dtype=np.uint8)
    run = chainrule.fit(images, labels=np.arange(40) % 2, task="classify", steps=1)
    assert run.classify(images[:1])["label"][0] in (0, 1)


# Images of Pillow are read as their files are.


def _picture(mode: str) -> Image.Image:
    return Image.fromarray(RANDOM.integers(0, 256, (8, 12, 3), dtype=np.uint8)).convert(mode)


def _turned() -> Image.Image:
    exif, file = Image.Exif(), io.BytesIO()
    exif[274] = 6  # turn it to the right
    _picture("RGB").save(file, "PNG", exif=exif)
    return Image.open(file)


PICTURES: dict[str, tuple[Callable[[], Image.Image], dict[str, Any]]] = {
    "grey": (lambda: _picture("L"), {}),
    "colours": (lambda: _picture("RGB"), {}),
    "palette": (lambda: _picture("RGB").quantize(16), {}),
    "turned": (_turned, {}),
    "black and white": (lambda: _picture("1"), {}),
    "grey of 16 bits": (lambda: Image.fromarray(RANDOM.integers(0, 65536, (8, 12), dtype=np.uint16)), {}),
    "transparent colours": (lambda: _picture("RGBA"), {"colour": "rgb"}),
    "transparent grey": (lambda: _picture("LA"), {"colour": "grey"}),
    "four inks": (lambda: _picture("CMYK"), {"colour": "rgb"}),
    "grey, wanted in colours": (lambda: _picture("L"), {"colour": "rgb"}),
}


PLAIN = ("grey", "colours", "grey, wanted in colours")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind in PLAIN else kind for kind in PICTURES]
)
def test_images_in_memory_are_read_as_their_files_are(kind, tmp_path):
    make, options = PICTURES[kind]
    images = [make() for _ in range(10)]
    for number, image in enumerate(images):
        image.save(tmp_path / f"{number}.tiff", exif=image.getexif())
    runs = [chainrule.fit(data, steps=1, layers=1, channels=6, **options) for data in (images, str(tmp_path))]
    assert runs[0].sample(1, seed=0).shape == runs[1].sample(1, seed=0).shape
    assert len({(run.path / "model.safetensors").read_bytes() for run in runs}) == 1
