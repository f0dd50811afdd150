"""`fit` is `train`: equal data, seed and options give equal weights through Python and through the command line."""

import signal

import numpy as np
import pytest
import small_data

import chainrule
from chainrule_app.cli.main import main
from chainrule_app.keywords import config_of
from chainrule_app.readers.images.source import png
from chainrule_app.readers.sounds.sound_file import write_wav
from chainrule_app.tasks import TASKS, task_class
from chainrule_app.tasks.task import Task
from chainrule_app.tasks.text.run import TextRun
from chainrule_app.training_run import create_run

SAME = {"threads": 1, "precision": "float32"}
SMALL = {"hidden_size": 8, "kneser_ney_order": 0}
LINES = [f"{number % 7} is a number" for number in range(120)]


def weights(path):
    return (path / "model.safetensors").read_bytes()


def keywords(flags):
    """The keyword arguments that flags of the command line stand for."""
    names = (flag[2:].replace("-", "_") for flag in flags[::2])
    return dict(zip(names, flags[1::2], strict=True))


@pytest.mark.parametrize("task", small_data.WRITERS)
def test_both_doors_give_the_same_weights(task, tmp_path):
    data, *flags = small_data.WRITERS[task](tmp_path)
    line = [*map(str, flags), "--steps", "1", "--threads", "1", "--precision", "float32"]
    assert main(["train", str(data), "--out", str(tmp_path / "line"), *line]) == 0
    run = chainrule.fit(data, out=tmp_path / "python", steps=1, **keywords(flags), **SAME)
    assert run.task.name == task
    assert weights(tmp_path / "line") == weights(run.path)


def test_options_of_files_have_the_names_of_labels_and_rates_of_arrays(tmp_path):
    """They were taken for data in memory, and lost."""
    for label in "ab":
        (tmp_path / "sounds" / label).mkdir(parents=True)
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(8):
            wave = np.sin(np.arange(200) * (0.1 + number / 20)) / 2
            write_wav(tmp_path / "sounds" / label / f"{number}.wav", wave, 8000)
            image = np.full((4, 4), 20 * number, np.uint8)
            (tmp_path / "images" / label / f"{number}.png").write_bytes(png(image))
    options = {"steps": 1, "channels": 4, **SAME}
    run = chainrule.fit(tmp_path / "sounds", rate=4000, labels="none", blocks=1, **options)
    assert (run.config["facts"]["rate"], run.config["facts"]["labels"]) == (4000, [])
    assert chainrule.fit(tmp_path / "images", labels=False, layers=1, **options).config["facts"]["classes"] is None
    for data, unfit in ((LINES, {"labels": [1] * 120}), (LINES, {"rate": 8000}), (tmp_path / "images", {"labels": 3})):
        with pytest.raises(ValueError, match=f"^{next(iter(unfit))}: "):
            chainrule.fit(data, steps=1, **unfit)


def test_labels_are_one_for_each_image():
    """The error advised --no-labels."""
    images = np.zeros((30, 6, 6), np.uint8)
    with pytest.raises(ValueError, match=r"^labels: expected one for each of 30 images, got 2$"):
        chainrule.fit(images, labels=["cat", "dog"], steps=1)
    with pytest.raises(ValueError, match=r"^labels: expected .* got an array of shape \(30, 1\)$"):
        chainrule.fit(images, labels=np.zeros((30, 1)), steps=1)


def test_errors_name_keyword_arguments(tmp_path):
    with pytest.raises(ValueError, match=r"^watch_every: requires watch_gradients$"):
        chainrule.fit(["a b"] * 20, watch_every=3, steps=1)
    for name in ("cat/a.png", "dog/b.png", "c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(png(np.zeros((6, 6), np.uint8)))
    with pytest.raises(ValueError, match=r"c\.png is not in a sub-folder .* or pass labels=False$"):
        chainrule.fit(tmp_path, steps=1)


def test_one_colour_image_is_no_batch():
    """Its rows were images of three columns."""
    image = np.random.default_rng(0).integers(0, 256, (32, 48, 3), dtype=np.uint8)
    with pytest.raises(
        ValueError, match=r"got one colour image of shape \(32, 48, 3\): reshape it to \(1, 32, 48, 3\)"
    ):
        chainrule.fit(image, steps=1)


def test_texts_without_labels_are_not_evaluated():
    """The error named columns of the file that they were written to."""
    run = chainrule.fit([("good film", "pos"), ("bad film", "neg")] * 20, steps=1)
    for texts in (["good film", "bad film"], ["good film"]):
        with pytest.raises(ValueError, match=r"^data: expected pairs of a text and its label, got strings alone$"):
            run.evaluate(texts)
        assert len(run.classify(texts)) == len(run.embed(texts)) == len(texts)


def test_every_task_is_compared():
    assert set(TASKS) == set(small_data.WRITERS)


def test_each_door_opens_the_runs_of_the_other(tmp_path, capsys):
    (table,) = small_data.write_table(tmp_path)
    assert main(["train", str(table), "--out", str(tmp_path / "line"), "--steps", "1"]) == 0
    run = chainrule.load(tmp_path / "line")
    assert run.sample(2, seed=1).names == ["first", "second", "third"]
    chainrule.fit(table, out=tmp_path / "python", steps=1)
    capsys.readouterr()
    assert main(["sample", str(tmp_path / "python"), "-n", "2", "--seed", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def interrupt_at(monkeypatch, validation):
    """Press Ctrl-C during a validation."""
    seen = []

    def on_validation(self):
        def shown(*_):
            seen.append(None)
            if len(seen) == validation:
                signal.raise_signal(signal.SIGINT)

        return shown

    monkeypatch.setattr(task_class("text"), "on_validation", on_validation)


def test_an_interrupted_run_is_returned_and_resumes_to_the_same_weights(tmp_path, monkeypatch, capsys):
    options = {"steps": 6, "batch_size": 2, "chunk_length": 8, **SMALL, **SAME}
    text = "\n".join(LINES)
    whole = chainrule.fit(text=text, out=tmp_path / "whole", **options)
    interrupt_at(monkeypatch, 1)
    run = chainrule.fit(text=text, out=tmp_path / "stopped", **options)
    assert "is saved; run.resume() continues" in capsys.readouterr().err
    assert max(run.history["step"]) < 6
    monkeypatch.undo()
    assert run.resume(steps=6) is run
    assert weights(run.path) == weights(whole.path)


def test_a_temporary_run_moves_and_another_is_copied(tmp_path):
    run = chainrule.fit(LINES, steps=1, **SMALL)
    before = run.path
    run.save(tmp_path / "first")
    assert not before.exists()
    assert run.path == tmp_path / "first"
    run.save(tmp_path / "second")
    assert weights(tmp_path / "first") == weights(tmp_path / "second")
    assert chainrule.load(tmp_path / "first").config == chainrule.load(tmp_path / "second").config
    with pytest.raises(FileExistsError, match="replace it with overwrite=True"):
        run.save(tmp_path / "first")
    with pytest.raises(ValueError, match="the run is there already"):
        run.save(tmp_path / "second", overwrite=True)
    run.save(tmp_path / "first", overwrite=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="is not empty and not a run"):
        run.save(tmp_path / "other", overwrite=True)
    assert (tmp_path / "other" / "thesis.txt").read_text() == "years of work"


def test_a_copy_that_fails_leaves_the_old_run(tmp_path, monkeypatch):
    old = chainrule.fit(LINES, out=tmp_path / "old", steps=1, **SMALL)
    new = chainrule.fit(LINES, steps=1, seed=1, **SMALL)
    kept = weights(old.path)

    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr("shutil.copytree", full)
    with pytest.raises(OSError, match="no space left"):
        new.save(old.path, overwrite=True)
    assert weights(old.path) == kept
    assert new.path.exists()


def test_a_temporary_run_disappears_with_its_object():
    run = chainrule.fit(LINES, steps=1, **SMALL)
    path = run.path
    assert path.exists()
    del run
    assert not path.exists()


def test_what_a_forgotten_temporary_run_computed_stays():
    rows = [{"a": number % 3, "b": "xy"[number % 2]} for number in range(40)]
    assert len(chainrule.fit(rows, steps=1).sample(3, seed=0)) == 3


def test_a_frame_with_dates_is_sampled_with_its_dtypes_and_given_values():
    pandas = pytest.importorskip("pandas")
    days = pandas.Timestamp("2024-01-01") + pandas.to_timedelta(np.arange(200) * 17 % 199, unit="D")
    hours = days.tz_localize("Europe/Berlin") + pandas.to_timedelta(np.arange(200) % 24, unit="h")
    columns = {"day": days, "hour": hours, "size": np.arange(200) % 7, "a, b": ["x", "y"] * 100, "id": range(200)}
    frame = pandas.DataFrame(columns)
    run = chainrule.fit(frame, types={"a, b": "categorical", "id": "skip"}, steps=1, hidden_size=8)
    drawn = run.sample(3, where={"day": days[5], "a, b": "y"})
    assert drawn.dtypes.to_dict() == frame.dtypes.drop("id").to_dict()
    assert (drawn["day"] == days[5]).all()
    assert (drawn["a, b"] == "y").all()
    many = run.sample(50)
    assert many["day"].between(days.min(), days.max()).all()
    assert many["hour"].between(hours.min(), hours.max()).all()
    assert (many["hour"] == many["hour"].dt.floor("h")).all()


def test_an_existing_run_is_not_overwritten_unasked(tmp_path):
    chainrule.fit(LINES, out=tmp_path / "run", steps=1, **SMALL)
    with pytest.raises(FileExistsError, match="replace it with overwrite=True"):
        chainrule.fit(LINES, out=tmp_path / "run", steps=1, **SMALL)
    chainrule.fit(LINES, out=tmp_path / "run", steps=1, overwrite=True, **SMALL)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hiden_size": 3}, "hiden_size: unknown option: did you mean hidden_size"),
        ({"buget": "3m"}, "buget: unknown option: did you mean budget"),
        ({"model": "lstmm"}, "model: expected one of lstm"),
        ({"task": "txt"}, "task: expected one of text"),
        ({"hidden_size": 0}, "hidden_size: expected"),
        ({"steps": 0}, "steps"),
        ({"text": "abc"}, "text: given together with data"),
    ],
)
def test_invalid_arguments_raise(options, message):
    with pytest.raises(ValueError, match=message):
        chainrule.fit(LINES, **options)


def test_resume_refuses_data_and_changed_options(tmp_path):
    run = chainrule.fit(LINES, steps=1, **SMALL)
    with pytest.raises(ValueError, match="validation: unknown option"):
        run.resume(steps=2, validation=LINES)
    with pytest.raises(ValueError, match="was started with other options"):
        run.resume(steps=2, hidden_size=16)


def test_a_run_shows_what_it_can_do(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (30, 6, 6), dtype=np.uint8)
    plain = chainrule.fit(images, bits=1, layers=1, channels=4, steps=1)
    coded = chainrule.fit(images, model="vae", steps=1)
    code = {"embed", "reconstruct", "interpolate"}
    assert not code & set(dir(plain))
    assert code <= set(dir(coded))
    assert {"sample", "score", "inspect", "check", "compress", "resume", "save"} <= set(dir(plain))
    assert not {"tag", "forecast", "classify", "predict", "evaluate", "stream"} & set(dir(plain))
    assert "it can check, compress, decompress, embed" in repr(coded)
    assert "nats per dimension, bound" in repr(coded)
    with pytest.raises(ValueError, match="forecast: a run of the task image cannot do this; it can check"):
        plain.forecast(images)
    with pytest.raises(ValueError, match="embed: a run of gated-pixelcnn has no latent code"):
        plain.embed(images)


def test_abilities_that_a_task_lacks_are_a_tuple():
    assert Task.lacking is not task_class("image").lacking


def test_a_batch_too_small_for_the_processes_leaves_no_run(tmp_path, monkeypatch):
    for name, number in (("RANK", "0"), ("WORLD_SIZE", "3")):
        monkeypatch.setenv(name, number)
    (tmp_path / "text.txt").write_text("one fish two fish\n" * 20)
    files, length = {"source": str(tmp_path / "text.txt")}, {"budget": None, "steps": 1, "epochs": None}
    request = config_of(TextRun, dict.fromkeys(TextRun.SOURCES) | files, "gru", {"batch_size": 2}, **length)
    with pytest.raises(ValueError, match="batch_size: expected at least 3, one for each process, got 2"):
        create_run(TextRun, request, tmp_path / "run", overwrite=False)
    assert not (tmp_path / "run").exists()
