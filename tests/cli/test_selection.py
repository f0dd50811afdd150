import re
import sys
from dataclasses import fields, is_dataclass
from typing import get_args, get_type_hints

import pytest

from chainrule_app.cli.main import VERBS, described_verbs, select, verbs_of
from chainrule_app.tasks import TASK_VERBS, TASKS, task_class
from chainrule_app.tasks.config import range_of


@pytest.mark.parametrize(
    ("arguments", "task"),
    [
        ([], "text"),
        (["log.txt"], "text"),
        (["rows.csv"], "table"),
        (["rows.csv", "--level", "char"], "text"),
        (["rows.csv", "--reading=lines"], "text"),
        (["--steps", "5", "rows.csv"], "table"),
        (["--steps=5", "rows.csv"], "table"),
        (["--overwrite", "rows.csv", "--out", "log"], "table"),
        (["log.txt", "--validation", "rows.csv"], "text"),
        (["log.txt", "--task", "table"], "table"),
        (["--track", "tensorboard", "rows.csv"], "table"),
        (["--watch-gradients", "rows.csv"], "table"),
        (["--no-reset-after", "rows.csv"], "table"),
        (["--learning-rate", "0.1", "rows.csv"], "table"),
        (["rows.csv", "--task=text"], "text"),
    ],
)
def test_the_data_or_the_task_tell_what_is_trained(arguments, task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").touch()
    assert select("train", arguments)[0].name == task


def test_a_task_that_is_none_is_refused(refused):
    assert "--task: expected one of text, table" in refused("train", "log.txt", "--task", "poetry")


def test_a_folder_without_images_or_sounds_is_refused(refused, tmp_path):
    (tmp_path / "notes.txt").write_text("text")
    said = refused("train", tmp_path)
    assert f"{tmp_path}: expected a file, or a directory mostly of images, sounds or MIDI files" in said
    assert said.endswith(f", or a file in it: chainrule train {tmp_path / 'notes.txt'}")


def test_a_folder_of_files_that_stand_for_themselves_names_one(refused, tmp_path):
    """Nothing was said of the images that were found."""
    for name in ("t10k-images-idx3-ubyte", "train-labels-idx1-ubyte", "train-images-idx3-ubyte", "a.txt"):
        (tmp_path / name).write_bytes(b"")
    assert refused("train", tmp_path).endswith(f"chainrule train {tmp_path / 'train-images-idx3-ubyte'}")


@pytest.mark.parametrize("name", ["rows.csv", "log.txt", "faces.png", "bells.wav", "images.zip"])
def test_a_url_is_named_as_one(refused, name, monkeypatch):
    """It lost a slash and was no file."""
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    url = f"https://example.com/{name}"
    assert f"{url}: https:// needs the package aiohttp: pip install aiohttp" in refused("train", url)


def test_words_after_switches_name_the_data_or_the_run_if_they_are_there(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").touch()
    (tmp_path / "muon").mkdir()  # a folder that is no data
    assert select("train", ["--direct", "rows.csv"])[0].name == "table"
    assert select("train", ["--optimiser", "muon"])[0].name == "text"
    assert select("train", ["--types", "x" * 5000, "rows.csv"])[0].name == "table"
    for words in (["--sort", "RUN", "rows.csv"], ["RUN", "-"], ["--json", "RUN", "none"], ["--prompt", "\0", "RUN"]):
        assert select("score", [word.replace("RUN", str(runs / "stream")) for word in words])[0].name == "text"
    task, verb = select("tag", [str(runs / "stream"), "x"])
    assert (task.name, verb) == ("text", None)


def test_the_run_tells_which_options_a_verb_has(command, runs):
    assert "--prompt" in command("sample", "--help").out
    assert "--prompt" in command("sample", runs / "stream", "--help").out
    assert select("sample", [str(runs / "stream"), "-n", "3"])[0].name == "text"
    assert select("train", ["--resume", "--out", str(runs / "stream")])[0].name == "text"
    assert "--types" in command("train", "rows.csv", "--help").out
    assert "--chunk-length" not in command("train", "--task", "table", "--help").out


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_class_that_names_it_and_verbs(name):
    assert name == task_class(name).name
    assert {"train", "info", "check", "inspect"} <= set(verbs_of(task_class(name)))


@pytest.mark.parametrize("name", TASKS)
def test_a_task_that_predicts_has_the_line_of_its_verb(name):
    """The list of all verbs imports no task."""
    task = task_class(name)
    own = task.Prediction.__doc__.partition("\n")[0] if hasattr(task, "predict") and not task.verb else None
    assert TASK_VERBS.get(name) == own


def test_images_to_classify_are_told_from_the_data_else_from_the_model():
    def task(*words: str) -> str:
        return select("train", [*words, "--task", "classify"])[0].name

    assert task("--model", "vit") == task("train-images-idx3-ubyte.gz", "--model", "vit") == "classify-images"
    assert task() == task("--model", "transformer") == task("texts.tsv", "--model", "vit") == "classify"


def test_a_verb_without_options_of_its_own_has_no_parameter_for_them(command):
    assert re.findall(r"│ \*?  ([A-Z]+)  ", command("embed", "--help").out) == ["RUN", "DATA"]


@pytest.mark.parametrize(
    ("flag", "name", "part"),
    [
        ("--task", "translate", "--label-smoothing FLOAT ε of the training objective."),  # no capital
        (
            "--task",
            "table",
            "--batch-size INT Batch size. [default: 128]",
        ),  # a default of its own, words that all share
        ("--task", "table", "--learning-rate FLOAT Peak learning rate. [default: 0.003]"),
        ("--model", "gru", "Architecture; lstm by default."),
    ],
)
def test_the_help_of_a_task_or_model_has_its_words_and_defaults(command, flag, name, part):
    shown = " ".join(command("train", flag, name, "--help").out.replace("│", "").split())
    assert part in shown
    assert "[default: gru]" not in shown


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["score", "--adapt-rate", -1], "--adapt-rate: expected a finite number from 0.0 to 1000000.0, got -1.0"),
        (["sample", "--length", 0], "--length: expected a whole number from 1 to 1073741824, got 0"),
        (["inspect", "--steps", 1], "--steps: expected a whole number from 2 to 10000, got 1"),
    ],
)
def test_a_value_out_of_the_range_of_an_option_is_refused_with_its_flag(refused, runs, arguments, line):
    verb, *flags = arguments
    assert line in refused(verb, runs / "stream", *(["-"] if verb == "score" else []), *flags)


def test_help_of_a_verb_comes_from_a_task_that_has_it():
    listed = dict(described_verbs())
    assert listed.keys() == {*VERBS, "predict", "tag", "classify", "translate", "caption", "forecast"}
    for verb, line in listed.items():
        task, made = select(verb, [])
        assert line
        assert made is not None
        assert verb in verbs_of(task)


def test_the_model_says_which_options_there_are(command, refused):
    assert "--reset-after" in command("train", "--model", "gru", "--help").out
    assert "--reset-after" not in command("train", "--help").out
    line = refused("train", "--model", "lstm", "--no-reset-after")
    assert "an option of gru, not of this model" in line


@pytest.mark.parametrize("name", TASKS)
def test_every_whole_number_that_a_verb_takes_has_bounds(name):
    """Numbers of 64 bits and more came as far as torch, which answered with a traceback."""
    task = task_class(name)
    parts = [getattr(task, part) for part in dir(task) if part != "Facts"]
    options = [part for part in parts if isinstance(part, type) and is_dataclass(part)]
    assert options
    options += [model.options for model in task.MODELS.values()]
    for found in options:
        plain, hints = get_type_hints(found), get_type_hints(found, include_extras=True)
        for item in fields(found):
            if int in (plain[item.name], *get_args(plain[item.name])):
                bounds = range_of(hints[item.name])
                assert 0 <= bounds.low < bounds.high < 1 << 63, item.name


def test_defaults_are_taken_where_a_program_has_loaded_pydantic(refused):
    pytest.importorskip("pydantic")  # then the parser lets it check every value, defaults too
    assert "no such file" in refused("train", "none.csv")
