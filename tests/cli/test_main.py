import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chainrule_app.cli.main import VERBS, main
from chainrule_app.cli.signature import verb

QUIET = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_help_lists_every_option_with_its_default(command):
    shown = " ".join(command("train", "--help").out.replace("│", "").split())
    for part in (
        "--hidden-size",
        "--learning-rate",
        "--chunk-length",
        "[default: 64]",
        "depends on the task: 3m for a text",
        "lstm, gru, rnn",
    ):
        assert part in shown


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "chainrule", "trian"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("chainrule: Unknown command")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["train", "--model", "perceptron"], ["perceptron", "lstm", "gru", "rnn"]),
        (["train", "--level", "letter"], ["letter", "char", "byte", "word", "bpe"]),
        (["train", "--reading", "pages"], ["pages", "stream", "lines"]),
        (["train", "--hidden-size", "many"], ["--hidden-size", "many"]),
        (["train", "--hidden-size", "0"], ["--hidden-size", "from 1", "0"]),
        (["train", "--hidden-size", "10000000000000"], ["--hidden-size", "65536"]),
        (["train", "--learning-rate", "nan"], ["--learning-rate", "nan"]),
        (["train", "--dropout", "1.5"], ["--dropout", "1.5"]),
        (["train", "--seed", "-1"], ["--seed", "-1"]),
        (["sample", "one", "two.txt"], ["two.txt"]),
        (["train", "--budget", "soon"], ["--budget", "soon", "1h30m"]),
        (["train", "--budget", "0s"], ["--budget", "0s"]),
        (["train", "--budget", "1m", "--steps", "3"], ["--budget", "--steps"]),
        (["train", "--steps", "3", "--epochs", "2"], ["--steps", "--epochs"]),
        (["train", "--steps", "0"], ["steps", "0"]),
        (["train", "--resume", "--overwrite"], ["--resume", "--overwrite"]),
        (["sample"], ["chainrule: sample: expected RUN: `chainrule sample --help` describes it"]),
        (["sample", "somewhere", "-n"], ["sample: expected -n VALUE: `chainrule sample --help`"]),
        (["export", "somewhere"], ["export: expected --to VALUE: `chainrule export --help`"]),
        (["score", "somewhere"], ["DATA"]),
        (["train", ""], ["got an empty one", "variable"]),
        (["train", "--validation", ""], ["--validation", "got an empty one"]),
        (["train", "--from="], ["--from", "got an empty one"]),
        (["train", "--out", "", "--steps", "1"], ["--out", "got an empty one"]),
        (["compress", "", "--json"], ["got an empty one"]),
    ],
)
def test_a_mistake_on_the_command_line_gets_one_line(refused, arguments, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused(*arguments)
    for part in parts:
        assert part in line
    assert not list(tmp_path.iterdir())


def test_an_error_of_ours_shows_its_traceback_on_request(monkeypatch):
    monkeypatch.setenv("CHAINRULE_DEBUG", "1")
    with pytest.raises(FileNotFoundError):
        main(["info", "nowhere"])


def test_a_defect_is_not_passed_off_as_a_mistake_of_the_user(monkeypatch):
    def broken(run: str, /) -> None:
        raise KeyError("a defect")

    monkeypatch.setitem(VERBS, "info", verb(broken))
    with pytest.raises(KeyError):
        main(["info", "x"])


def test_a_full_disk_gets_one_line(refused, monkeypatch):
    def full(run: str, /) -> None:
        raise OSError(28, "No space left on device", "runs/x/model.safetensors")

    monkeypatch.setitem(VERBS, "info", verb(full))
    assert refused("info", "x") == "chainrule: runs/x/model.safetensors: No space left on device"


def test_ctrl_c_gives_130(command, monkeypatch):
    def stopped(run: str, /) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(VERBS, "info", verb(stopped))
    outcome = command("info", "x")
    assert (outcome.status, outcome.err) == (130, "chainrule: interrupted\n")


def test_a_reader_that_leaves_early_is_no_error(runs: Path, text_file: Path):
    script = f'"{sys.executable}" -m chainrule score {runs / "stream"} {text_file} --per element --json | head -n 1'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=QUIET)
    assert json.loads(done.stdout)["elements"] == 1
    assert done.stderr == ""


def test_a_name_of_a_run_after_the_data_is_told_its_flag(refused, tmp_path):
    data = tmp_path / "log.txt"
    data.write_text("words")
    assert (
        refused("train", data, "runs/log")
        == "chainrule: runs/log: no such file or folder; to name the run: --out runs/log"
    )
