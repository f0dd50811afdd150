"""Data in memory are read as they are: without a file, and as a file with the same values is read."""

import tempfile

import numpy as np
import pytest
from PIL import Image

import chainrule

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")

ONE = {"steps": 1, "threads": 1, "precision": "float32"}
RANDOM = np.random.default_rng(0)
PICTURES = RANDOM.integers(0, 2, (20, 6, 6), dtype=np.uint8)
TABLE = polars.DataFrame(
    {
        "colour": RANDOM.choice(["red", "a, b", 'say "x"', "é"], 60),
        "count": RANDOM.integers(0, 40, 60),
        "size": RANDOM.normal(size=60).round(2),
        "gaps": [None if number % 7 == 0 else number % 5 / 4 for number in range(60)],
        "day": [pandas.Timestamp(2024, 1, 1 + number % 25).date() for number in range(60)],
    }
)


def sounds():
    return [np.sin(np.arange(200.0) / (3 + number)).astype(np.float32) for number in range(10)]


DATA = {
    "frame": (lambda: TABLE.to_pandas(), {"hidden_size": 4}, ["score"]),
    "array": (lambda: RANDOM.integers(0, 4, (40, 3)), {"hidden_size": 4}, ["score"]),
    "records": (lambda: TABLE.to_dicts(), {"hidden_size": 4}, ["score"]),
    "series": (lambda: np.sin(np.arange(120.0)), {"hidden_size": 4, "horizon": 2}, ["forecast"]),
    "strings": (lambda: ["a b", "c d"] * 20, {"hidden_size": 4}, ["score", "inspect"]),
    "labelled texts": (lambda: [("good film", "p"), ("bad film", "n")] * 20, {}, ["evaluate"]),
    "sentences": (lambda: [[("Ada", "N"), ("saw", "V")]] * 20, {"hidden_size": 4}, ["evaluate", "tag"]),
    "images": (lambda: PICTURES, {"layers": 1, "channels": 4}, ["score"]),
    "pictures": (lambda: list(map(Image.fromarray, PICTURES * 255)), {"layers": 1, "channels": 4}, ["score"]),
    "sounds": (sounds, {"rate": 8000, "blocks": 1, "layers_per_block": 2, "channels": 4}, ["score"]),
    "rolls": (lambda: RANDOM.integers(0, 2, (12, 8, 88)), {"task": "music", "hidden_size": 4}, ["score"]),
}


@pytest.mark.parametrize("kind", DATA)
def test_data_in_memory_are_written_to_no_file(tmp_path, monkeypatch, kind):
    """Frames became CSV, strings text files, arrays images, wav and MIDI files; a frame's was opened 13 times."""
    make, options, methods = DATA[kind]
    data = make()

    def refuse(*arguments, **keywords):
        raise AssertionError("no temporary file is needed")

    for name in ("mkdtemp", "mkstemp", "TemporaryFile", "NamedTemporaryFile"):
        monkeypatch.setattr(tempfile, name, refuse)
    run = chainrule.fit(data, out=tmp_path / "run", **ONE, **options)
    for method in methods:
        getattr(run, method)(data)


def weights(data, folder):
    run = chainrule.fit(data, out=folder, hidden_size=4, **ONE)
    return run, (run.path / "model.safetensors").read_bytes()


def test_a_frame_its_csv_and_its_parquet_give_the_same_run(tmp_path):
    TABLE.write_csv(tmp_path / "rows.csv")
    TABLE.write_parquet(tmp_path / "rows.parquet")
    sources = [str(tmp_path / "rows.csv"), str(tmp_path / "rows.parquet"), TABLE, TABLE.to_pandas(), TABLE.to_arrow()]
    runs = [weights(source, tmp_path / f"run{number}") for number, source in enumerate(sources)]
    assert len({content for _, content in runs}) == 1
    assert len({tuple(run.score(data)["nats"]) for run, _ in runs for data in (sources[0], TABLE)}) == 1


def test_a_series_and_its_csv_give_the_same_run(tmp_path):
    index = pandas.date_range("2024-03-30", periods=300, freq="h", tz="Europe/Berlin", name="when")
    frame = pandas.DataFrame({"load": np.sin(np.arange(300.0)).round(3), "holiday": index.day_of_week > 4}, index=index)
    frame.reset_index().assign(when=[moment.isoformat(" ") for moment in index]).to_csv(tmp_path / "rows.csv")
    options = {"task": "forecast", "target": "load", "covariates": "holiday", "horizon": 2, "hidden_size": 4}
    own = chainrule.fit(frame, **options, **ONE)
    of_file = chainrule.fit(tmp_path / "rows.csv", **options, **ONE)
    assert len({(run.path / "model.safetensors").read_bytes() for run in (own, of_file)}) == 1
    ahead = frame.iloc[:250].copy()
    ahead.iloc[248:, 0] = None
    assert own.forecast(ahead, seed=0).to_pandas().index[0] == index[248]


def test_the_same_strings_have_the_same_fingerprint_as_their_file(tmp_path):
    (tmp_path / "text.txt").write_text("a b\nc d\n" * 20)
    options = {"hidden_size": 4, "reading": "lines"}
    runs = [chainrule.fit(data, **options, **ONE) for data in (["a b", "c d"] * 20, tmp_path / "text.txt")]
    assert len({run.config["facts"]["source"]["sha256"] for run in runs}) == 1
    assert len({(run.path / "model.safetensors").read_bytes() for run in runs}) == 1


def test_a_run_on_data_in_memory_is_continued(tmp_path):
    run = chainrule.fit(TABLE, out=tmp_path / "run", hidden_size=4, **ONE)
    assert run.config["data"]["sources"]["source"] == "data (in memory)"
    assert chainrule.load(tmp_path / "run").resume(steps=2).history["step"][-1] == 2
