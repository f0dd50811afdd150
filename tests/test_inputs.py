"""Data in memory: what each kind is read as, what is refused, and in which kind samples come back."""

import io
import sys
from datetime import date, timedelta
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import chainrule
from chainrule_app.inputs import Inputs

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")

ONE = {"steps": 1, "threads": 1, "precision": "float32"}
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (30, 6, 6), dtype=np.uint8)
WAVE = np.sin(np.arange(300)).astype(np.float32)
PIXELS = {"bits": 1, "layers": 1, "channels": 4}


def repeated(values):
    """40 rows in turn: each value is there often, as no column of identifiers has it."""
    return [values[number % len(values)] for number in range(40)]


COLUMNS = {
    "small": st.lists(st.integers(-5, 5), min_size=2, max_size=4),
    "maybe": st.lists(st.none() | st.integers(0, 300), min_size=2, max_size=4),
    "truth": st.lists(st.booleans(), min_size=2, max_size=4),
    "unsure": st.just([True, None, False]),
    "name": st.lists(st.sampled_from(["red", "07", "1e3", "a, b", 'say "x"', "é"]), min_size=2, max_size=4),
    "day": st.lists(st.dates(date(1999, 1, 1), date(2040, 1, 1)), min_size=2, max_size=4),
    "price": st.just([Decimal("1.10"), Decimal("2.50"), Decimal("0.75")]),
    "wait": st.lists(st.timedeltas(timedelta(0), timedelta(days=9)), min_size=2, max_size=4),
}
FRAMES = st.fixed_dictionaries(COLUMNS).map(lambda found: {name: repeated(values) for name, values in found.items()})


def polars_frame(columns):
    kinds = {"small": polars.Int8, "maybe": polars.Int64, "unsure": polars.Boolean, "name": polars.Categorical}
    return polars.DataFrame(columns, schema_overrides=kinds)


def pandas_frame(columns):
    frame = pandas.DataFrame(columns)
    kinds = {"small": "int16", "maybe": "Int64", "unsure": "boolean", "name": "category", "wait": "timedelta64[us]"}
    return frame.astype(kinds)


def arrow_table(columns):
    return pyarrow.table(columns | {"name": pyarrow.array(columns["name"], pyarrow.large_string())})


def types_of(frame):
    return frame.dtypes.to_dict() if isinstance(frame, pandas.DataFrame) else frame.schema


@pytest.mark.parametrize("make", [polars_frame, pandas_frame, arrow_table])
@settings(max_examples=3)
@given(columns=FRAMES)
def test_a_frame_comes_back_with_its_types(make, columns):
    frame = make(columns)
    drawn = chainrule.fit(frame, **ONE).sample(5, seed=0)
    assert types_of(drawn) == types_of(frame)
    for name in ("truth", "name", "day"):
        assert set(drawn[name]) <= set(frame[name])


def test_the_kind_of_frame_outlives_the_session(tmp_path):
    frame = pandas.DataFrame({"code": pandas.Categorical(repeated([3, 1, 2])), "x": repeated([1, 2])})
    chainrule.fit(frame, out=tmp_path / "run", **ONE)
    drawn = chainrule.load(tmp_path / "run").sample(4, seed=0)
    assert drawn.dtypes.to_dict() == frame.dtypes.to_dict()
    assert set(drawn["code"]) <= {1, 2, 3}


@pytest.mark.parametrize("dtype", ["int32", "bool", "float32", "uint8"])
def test_an_array_comes_back_as_an_array_of_its_type(dtype):
    array = RANDOM.integers(0, 2, (40, 3)).astype(dtype)
    drawn = chainrule.fit(array, **ONE).sample(4, seed=0)
    assert drawn.dtype == dtype
    assert drawn.shape == (4, 3)


def test_images_come_back_as_images():
    run = chainrule.fit(torch.from_numpy(IMAGES), **PIXELS, **ONE)
    assert run.task.name == "image"
    assert run.sample(2, seed=0).shape == (2, 6, 6)
    scores = run.score(IMAGES[:3])
    assert len(scores) == 3
    assert scores.to_numpy("nats").dtype == np.float64
    completed = run.sample(2, seed=0, complete=IMAGES[0], keep_rows=3)
    assert (completed[:, :3] == np.where(IMAGES[0, :3] > 127, 255, 0)).all()
    assert run.sample(2, seed=0).tobytes() == run.sample(2, seed=0).tobytes()


def test_labels_of_images_may_be_words():
    run = chainrule.fit(IMAGES, labels=["cat", "dog"] * 15, task="classify", **ONE)
    assert run.task.name == "classify-images"
    assert set(run.classify(IMAGES[:4]).values) <= {"cat", "dog"}
    assert run.evaluate(IMAGES[:4], labels=["cat", "dog"] * 2).summary["images"] == 4
    with pytest.raises(ValueError, match="labels: expected images in an array"):
        run.evaluate(run.path, labels=["cat"])
    with pytest.raises(ValueError, match="labels: unknown option"):
        chainrule.fit(["a b"] * 20, **ONE).score(["a"], labels=["cat"])
    assert run.embed(IMAGES[:2]).to_numpy().shape[0] == 2


def test_codes_of_images_are_decoded():
    run = chainrule.fit(IMAGES, model="vae", **ONE)
    assert run.reconstruct(IMAGES[:3]).shape == (3, 6, 6)
    between = run.interpolate(IMAGES[0], IMAGES[1], count=4)
    assert between.shape == (6, 6, 6)
    assert (between[[0, -1]] == IMAGES[:2]).all()


def test_captions_of_images_in_memory():
    images = RANDOM.integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)
    words = ["a red square", "a blue one"] * 12
    run = chainrule.fit(images, captions=words, task="caption", image_size=8, batch_size=4, **ONE)
    assert len(run.caption(images[:2])) == 2
    with pytest.raises(ValueError, match="captions: expected those of the images, got none: pass a list"):
        chainrule.fit(images, words, task="caption", **ONE)


def test_sounds_need_a_rate_and_come_back_as_arrays():
    sounds = [np.sin(np.arange(120.0 + number)) for number in range(10)]
    run = chainrule.fit(sounds, rate=8000, blocks=1, layers_per_block=2, **ONE)
    assert run.sample(2, seed=0, seconds=0.01).shape == (2, 80)
    assert run.sample(1, seed=0, prompt=sounds[0][:20], seconds=0.01).shape == (1, 80)
    assert len(run.score(sounds[:2])) == 2
    with pytest.raises(ValueError, match="rate: expected the samples a second"):
        chainrule.fit(sounds, **ONE)


def test_a_series_is_forecast_and_its_times_go_on():
    index = pandas.date_range("2024-01-01", periods=300, freq="h")
    series = pandas.Series(np.sin(np.arange(300.0)), index=index, name="load")
    run = chainrule.fit(series, horizon=4, **ONE)
    assert run.task.name == "forecast"
    own = run.forecast(seed=0)
    assert list(own["mean"]) == list(run.forecast(series, seed=0)["mean"])
    assert own.to_pandas().index[0] == index[-1] + pandas.Timedelta(hours=1)
    answer = run.forecast(series[:200], seed=0)
    frame = answer.to_pandas()
    assert list(frame.index) == list(pandas.date_range(index[199], periods=5, freq="h")[1:])
    assert frame["mean"].dtype == np.float64
    assert answer.plot().axes
    levels = ["q0.1", "q0.25"]
    for quantiles in ("0.25,0.1", [0.25, 0.1], np.array([0.1, 0.25])):
        assert [name for name in run.forecast(quantiles=quantiles).names if name[:2] == "q0"] == levels
    with pytest.raises(ValueError, match=r"^data: expected a file of series to forecast"):
        run.evaluate()  # its error once named DATA


def test_lists_of_texts_pairs_and_sentences_name_their_task():
    def task_of(data, task=""):
        with Inputs(task, rate=8000) as inputs:
            inputs.source(data)
            return inputs.task

    assert task_of(["a", "b"]) == "text"
    assert task_of(pandas.Series(["a", "b"])) == "text"
    assert task_of([("a text", "label")]) == "classify"
    assert task_of([[("the", "D"), ("dog", "N")]]) == "tag"
    assert task_of([0.5, 1.5]) == "forecast"
    assert task_of([np.zeros(9)]) == "sound"
    assert task_of([np.zeros((9, 9))]) == "image"
    assert task_of(polars.Series([0.5, 1.5])) == "forecast"
    assert task_of([{"a": 1}]) == "table"
    assert task_of([("a", "b")], task="translate") == "translate"


def test_texts_with_labels_are_classified():
    run = chainrule.fit([("a good one", "pos"), ("a bad one", "neg")] * 20, **ONE)
    assert set(run.classify(["a good", "one, two"]).values) <= {"pos", "neg"}
    assert run.evaluate([("a good one", "pos")]).summary["texts"] == 1


def test_a_generator_is_streamed():
    alive, most = set(), 0

    class Line(str):
        def __del__(self):
            alive.discard(id(self))

    def lines():
        nonlocal most
        for number in range(100):
            line = Line(f"line {number}")
            alive.add(id(line))
            most = max(most, len(alive))
            yield line

    with Inputs() as inputs:
        assert len(inputs.source(lines()).open().readlines()) == 100
    assert most < 5


class Dataset:
    """Looks as a Dataset of Hugging Face does."""

    def __init__(self, frame, **classes):
        self.column_names, self._frame = frame.columns, frame
        plain = dict.fromkeys(frame.columns, SimpleNamespace(dtype="string"))
        self.features = plain | {name: SimpleNamespace(names=names) for name, names in classes.items()}

    def __len__(self):
        return len(self._frame)

    def to_polars(self):
        return self._frame


def test_a_dataset_is_a_frame():
    frame = polars.DataFrame({"a": repeated([1, 2]), "b": repeated(["x", "y"])})
    drawn = chainrule.fit(Dataset(frame), **ONE).sample(3, seed=0)
    assert drawn.schema == frame.schema
    texts = Dataset(polars.DataFrame({"text": repeated(["a b", "c d"])}))
    assert chainrule.fit(texts, task="text", hidden_size=8, **ONE).task.name == "text"


def test_masked_numbers_are_missing():
    """They were read as if they had no mask."""
    with Inputs() as inputs:
        table = inputs.source(np.ma.masked_equal([[1, 2], [3, 4]], 3))
        assert [cells for _, cells in table.rows()] == [["1.0", "2.0"], [None, "4.0"]]


@pytest.mark.parametrize("dtype", [None, object])
def test_arrays_of_strings_are_lists_of_them(dtype):
    """They were refused."""
    with Inputs() as inputs:
        text = inputs.source(np.array(["a b", "c d"], dtype))
        assert (inputs.task, text.open().read()) == ("text", b"a b\nc d\n")
    with Inputs() as inputs:
        inputs.source(np.array([["a b", "x"], ["c d", "y"]], dtype))
        assert inputs.task == "classify"


def test_labels_may_be_the_numbers_that_they_were(capsys):
    """They had to be written as texts."""
    run = chainrule.fit(IMAGES, labels=np.arange(30) % 3, **PIXELS, **ONE)
    assert np.array_equal(run.sample(1, label=2, seed=0), run.sample(1, label="2", seed=0))
    frame = pandas.DataFrame(RANDOM.normal(size=(60, 2)))
    columns = {"task": "forecast", "horizon": 3, "hidden_size": 4, **ONE}
    assert set(chainrule.fit(frame, target=1, **columns).forecast(frame, paths=2)["series"]) == {"1"}
    assert "reading data …" in capsys.readouterr().err  # not where it was written


def test_labels_apart_from_texts_name_the_remedy():
    with pytest.raises(ValueError, match=r"of texts pass list\(zip\(texts, labels\)\)"):
        chainrule.fit(["a", "b"], labels=["x", "y"], **ONE)


def test_sentences_without_tags_are_not_evaluated():
    """The error named a column from 2 to 1."""
    run = chainrule.fit([[("Ada", "B-PER"), ("saw", "O")]] * 20, **ONE)
    with pytest.raises(ValueError, match="data index 0: expected words with tags, got only words"):
        run.evaluate([["Ada", "saw"]])


def test_classes_of_a_dataset_have_their_names():
    """They were numbers."""
    frame = polars.DataFrame({"text": repeated(["a b", "c d"]), "label": repeated([1, 0])})
    run = chainrule.fit(Dataset(frame, label=["no", "yes"]), task="classify", hidden_size=8, **ONE)
    assert set(run.classify(["a b", "c d"]).values) <= {"no", "yes"}
    unlabelled = frame.with_columns(label=polars.Series(repeated([1, -1])))  # no class
    drawn = chainrule.fit(Dataset(unlabelled, label=["no", "yes"]), task="table", hidden_size=8, **ONE).sample(20)
    assert set(drawn["label"]) <= {"yes", None}


class Decoder:
    """A sound of a Dataset of Hugging Face that is decoded when it is read, as by torchcodec."""

    def get_all_samples(self):
        raise NotImplementedError

    def __getitem__(self, key):
        return {"array": WAVE, "sampling_rate": 4000}[key]


@pytest.mark.parametrize("clip", [{"array": WAVE, "sampling_rate": 4000, "path": None}, Decoder()])
def test_sounds_of_a_dataset_have_their_rate(clip):
    with Inputs() as inputs:
        sounds = inputs.source([clip] * 2).files
        assert (inputs.task, len(sounds)) == ("sound", 2)
        assert (sounds[0].rate, len(sounds[0].samples)) == (4000, len(WAVE))
        with pytest.raises(ValueError, match="more index 1: expected a sound of 4,000 samples a second"):
            inputs.source([clip, {"array": WAVE, "sampling_rate": 8000}], "more")


@pytest.mark.parametrize("sound", [WAVE / 2, (WAVE * 16384).astype(np.int16), (WAVE * 2**30).astype(np.int32)])
def test_sounds_in_integers_are_samples_of_their_width(sound):
    """They were cut to -1 and 1: scipy.io.wavfile reads such."""
    with Inputs(rate=8000) as inputs:
        (held,) = inputs.source([sound]).files
    np.testing.assert_allclose(held.samples, WAVE / 2, atol=1 / 16384)


@pytest.mark.parametrize("sound", [WAVE * 100, np.where(WAVE > 0.9, np.nan, WAVE), np.arange(300)], ids=str)
def test_sounds_of_other_numbers_are_refused(sound):
    with pytest.raises(ValueError, match="data index 1: expected amplitudes from -1 to 1, or int16, got"):
        chainrule.fit([WAVE, sound], rate=8000, **ONE)


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 3)])
def test_images_of_pillow_are_arrays(shape):
    """They were refused."""
    arrays = np.random.default_rng(0).integers(0, 256, (4, *shape), dtype=np.uint8)
    with Inputs() as inputs:
        images = inputs.source([Image.fromarray(array) for array in arrays])
        (block,) = images.opened(labelled=None, reading=None, skip_bad=False, black_and_white=2).blocks()
        assert np.array_equal(block, arrays[:, None] if arrays.ndim == 3 else np.moveaxis(arrays, 3, 1))
        assert inputs.task == "image"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "expected a path, a frame, an array, or a list of strings.*got int"),
        ({"a": [1]}, r"got dict: pass columns as pandas.DataFrame\(data\)"),
        ({"a"}, "got set"),
        (b"abc", "got bytes"),
        (io.StringIO("a,b"), "got StringIO: pass its path"),
        (io.BytesIO(b"a,b"), "got BytesIO: pass its path"),
        ([], "at least one row"),
        ([None], "got a list of NoneType"),
        (["a", 3], "index 1: expected rows of one kind, got 3"),
        ([("a", "b"), "c"], "index 1"),
        ([("a", "b", "c")], "3 values"),
        ([[1, 2], [3, 4]], r"pass them as an array, numpy.array\(rows\)"),
        ([{"a": 1}, {"b": 2}], "index 1: expected the keys a"),
        ([np.zeros((2, 2)), np.zeros((3, 2))], "arrays of one shape"),
        (np.array(["2024-01-01"], "M8[D]"), "expected an array of numbers"),
        (np.array(1.0), "expected an array of numbers"),
        (np.zeros((3, 3), complex), "expected an array of numbers"),
        (torch.nn.Linear(2, 2), "from_logits"),
        (polars.DataFrame({"a": [[1], [2]]}), "expected numbers, texts, booleans or dates, got list"),
        ([{"image": np.zeros((8, 8))}], "data, image: expected numbers, texts, booleans or dates, got ndarray"),
    ],
)
def test_data_of_a_wrong_kind_are_refused(data, message):
    with pytest.raises(ValueError, match=message) as caught:
        chainrule.fit(data, **ONE)
    assert "/" not in str(caught.value)  # no temporary file is named


@pytest.mark.parametrize(
    ("task", "data"),
    [
        ("image", ["a"]),
        ("text", IMAGES),
        ("text", [("a", "b")]),
        ("sound", polars.DataFrame({"a": [1]})),
        ("music", polars.DataFrame({"a": [1]})),
        ("music", np.ones((4, 128))),
        ("music", [np.ones((4, 3)), np.ones((5, 3))]),
        ("music", [np.ones(4)]),
        ("classify-images", polars.DataFrame({"a": [1]})),
        ("tag", polars.DataFrame({"a": [1], "b": [2]})),
        ("translate", [("a\nb", "c")]),
    ],
)
def test_data_of_another_task_are_refused(task, data):
    with pytest.raises(ValueError, match=r"^data( index \d)?: "):
        chainrule.fit(data, task=task, **ONE)


def test_a_text_in_place_of_a_path_is_told_from_a_missing_file():
    for path in ("no-such-file.txt", "It was a dark night,\nand so on"):
        with pytest.raises(FileNotFoundError, match=r"in a list, or to fit as text="):
            chainrule.fit(path, **ONE)


def test_errors_name_the_argument_and_not_a_temporary_file():
    with pytest.raises(ValueError, match=r"^data: expected at least"):
        chainrule.fit([0.1, 0.2, 0.3], horizon=24, **ONE)


def test_all_else_works_without_the_libraries_of_frames(monkeypatch):
    for name in ("pandas", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    assert chainrule.fit(RANDOM.integers(0, 2, (40, 3)), **ONE).sample(2, seed=0).shape == (2, 3)
    drawn = chainrule.fit([{"a": number % 3, "b": "xy"[number % 2]} for number in range(40)], **ONE).sample(2, seed=0)
    assert drawn.names == ["a", "b"]
    with pytest.raises(ImportError):
        drawn.to_pandas()
