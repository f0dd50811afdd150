"""The command line answers before it imports what training needs."""

import subprocess
import sys
from time import monotonic

import pytest

from chainrule._app.cli import main as module

TRAIN = """
import sys
from chainrule._app.cli.main import main
status = main(["train", "--steps", "2", "--hidden-size", "8", "--out", sys.argv[1]])
print(status, sorted({"sympy", "torch._dynamo"} & sys.modules.keys()))
"""
ANSWER = """
import sys
from chainrule._app.cli.main import main
status = main(sys.argv[1:])
ours = sum(name.partition(".")[0] == "chainrule" for name in sys.modules)
print(status, "torch" in sys.modules, ours)
"""


def test_a_budget_counts_from_the_start_of_the_command(command, monkeypatch):
    times = []

    def select(*arguments):
        times.append(monotonic())
        return original(*arguments)

    original = module.select
    monkeypatch.setattr(module, "select", select)
    monkeypatch.setattr("chainrule._app.cli.train.train_run", lambda *_, began, **__: (times.append(began), None))
    before = monotonic()
    assert command("train", "--steps", 1).status == 0
    selected, began = times
    assert before <= began <= selected


def test_training_imports_neither_a_compiler_nor_algebra(tmp_path):
    answer = subprocess.run([sys.executable, "-c", TRAIN, tmp_path / "run"], capture_output=True, text=True)
    assert answer.stdout.splitlines()[-1:] == ["0 []"], answer.stderr


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--help"], 0),
        (["train", "--help"], 0),
        (["train", "rows.csv", "--help"], 0),
        (["train", "--task", "classify-images", "--model", "vit", "--help"], 0),
        (["sample", "--help"], 0),
        (["serve", "--help"], 0),
        (["serve"], 2),
        (["serve", "missing"], 2),
        (["trian"], 2),
        (["train", "--hlep", "x"], 2),
        (["train", "--no-reset-after"], 2),
        (["train", "--hidden-size", "0"], 2),
        (["train", "missing.txt"], 2),
        (["train", "missing.csv"], 2),
        (["train", "missing"], 2),
        (["train", "missing.npz:train"], 2),
        (["train", "--resume", "--out", "missing"], 2),
        (["sample", "missing"], 2),
        (["score", "missing", "log.txt"], 2),
        (["compress", "missing"], 2),
        (["decompress", "missing"], 2),
    ],
)
def test_help_and_mistakes_are_answered_without_torch(arguments, status, tmp_path):
    answer = subprocess.run([sys.executable, "-c", ANSWER, *arguments], capture_output=True, text=True, cwd=tmp_path)
    found, torch, ours = answer.stdout.split()[-3:]
    assert (int(found), torch) == (status, "False"), answer.stderr
    assert int(ours) <= 110
    assert not status or answer.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_missing_input_of_a_run_is_named_without_torch(runs, tmp_path):
    for verb in ("score", "inspect", "embed"):
        answer = subprocess.run(
            [sys.executable, "-c", ANSWER, verb, runs / "stream", "none.txt"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert answer.stdout.split()[:2] == ["2", "False"]
        assert answer.stderr == "chainrule: none.txt: no such file or folder\n"


def test_training_says_what_it_reads_before_it_imports_torch(tmp_path):
    code = (
        "import sys; sys.modules['torch'] = None; from chainrule._app.cli.main import main; main(['train', 'log.txt'])"
    )
    (tmp_path / "log.txt").write_text("a\nb\n")
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert answer.stderr.splitlines()[0] == "reading log.txt …"
