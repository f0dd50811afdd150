"""The command line answers before it imports what training needs, and no thread spins for long."""

import json
import subprocess
import sys
from time import monotonic

import pytest

from chainrule_app.cli import main as module
from chainrule_app.cli.main import BOUNDED, bound_spinning

TRAIN = """
import sys
from chainrule_app.cli.main import main
status = main(["train", "--steps", "2", "--hidden-size", "8", "--out", sys.argv[1]])
print(status, sorted({"sympy", "torch._dynamo"} & sys.modules.keys()))
status = main(["sample", sys.argv[1], "--length", "3"])
print(status, sorted({"sympy", "torch._dynamo"} & sys.modules.keys()))
with open("rows.csv", "w") as file:
    file.writelines(["size,kind\\n", *(f"{row}.5,{'ab'[row % 2]}\\n" for row in range(40))])
main(["train", "rows.csv", "--steps", "2", "--hidden-size", "8", "--out", "table"])
status = main(["score", "table", "rows.csv", "--top", "1"])
print(status, sorted({"sympy", "torch._dynamo"} & sys.modules.keys()))
from chainrule import load
from chainrule_app.cli.exchange import DEMO
loaded = [load(path.parent).model for path in DEMO.glob("*/config.json")]
print(status, sorted({"sympy", "torch._dynamo"} & sys.modules.keys()))
"""
ANSWERS = """
import contextlib, io, json, sys
HEAVY, OURS = {"torch", "numpy", "safetensors", "tokenizers"}, {"chainrule", "chainrule_app"}
for arguments in json.loads(sys.argv[1]):
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]  # a fresh start but for other packages, of which none is a heavy one
    from chainrule_app.cli.main import main
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as error:
        status = main(arguments)
    ours = sum(name.partition(".")[0] in OURS for name in sys.modules)
    print(json.dumps([status, sorted(HEAVY & sys.modules.keys()), ours, error.getvalue()]))
"""


def answers(folder, *lines):
    """Status, heavy packages that are imported by then, number of our modules, and standard error of each line."""
    done = subprocess.run(
        [sys.executable, "-c", ANSWERS, json.dumps(lines)], capture_output=True, text=True, cwd=folder, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_budget_counts_from_the_start_of_the_command(ok, monkeypatch):
    times = []

    def select(*arguments):
        times.append(monotonic())
        return original(*arguments)

    original = module.select
    monkeypatch.setattr(module, "select", select)
    monkeypatch.setattr("chainrule_app.cli.train.train_run", lambda *_, began, **__: (times.append(began), None))
    before = monotonic()
    ok("train", "--steps", 1)
    selected, began = times
    assert before <= began <= selected


def test_neither_training_nor_a_run_imports_a_compiler_or_algebra(tmp_path):
    """A model without weights was drawn on the meta device, which imports both: two seconds of every verb on a run."""
    answer = subprocess.run([sys.executable, "-c", TRAIN, "run"], capture_output=True, text=True, cwd=tmp_path)
    assert answer.stdout.splitlines().count("0 []") == 4, answer.stderr


HELP = (
    ["--help"], ["score", "--help"], ["--version"], [], ["train", "--help"], ["train", "rows.csv", "--help"],
    ["train", "--task", "classify-images", "--model", "vit", "--help"], ["sample", "--help"], ["serve", "--help"],
)  # fmt: skip
MISTAKES = (
    ["serve"], ["serve", "missing"], ["trian"], ["train", "--hlep", "x"], ["train", "--no-reset-after"],
    ["train", "--hidden-size", "0"], ["train", "missing.txt"], ["train", "missing.csv"], ["train", "missing"],
    ["train", "missing.npz:train"], ["train", "--resume", "--out", "missing"], ["sample", "missing"],
    ["score", "missing", "log.txt"], ["compress", "missing", "log.txt"], ["decompress", "missing", "log.chain"],
)  # fmt: skip


def test_help_is_given_without_anything_heavy(tmp_path):
    for status, heavy, ours, _ in answers(tmp_path, *HELP):
        assert (status, heavy) == (0, [])
        assert ours <= 110


def test_mistakes_are_answered_without_torch(tmp_path):
    for arguments, (status, heavy, ours, error) in zip(MISTAKES, answers(tmp_path, *MISTAKES), strict=True):
        assert (status, "torch" in heavy) == (2, False), arguments
        assert ours <= 110
        assert error.count("\n") == 1, error
    assert not list(tmp_path.iterdir())


def test_a_missing_input_of_a_run_is_named_without_torch(runs, tmp_path):
    verbs = ("score", "inspect", "embed")
    for status, heavy, _, error in answers(tmp_path, *([verb, str(runs / "stream"), "none.txt"] for verb in verbs)):
        assert (status, "torch" in heavy) == (2, False)
        assert error == "chainrule: none.txt: no such file or folder\n"


def test_training_says_what_it_reads_before_it_imports_torch(tmp_path):
    code = (
        "import sys; sys.modules['torch'] = None; from chainrule_app.cli.main import main; main(['train', 'log.txt'])"
    )
    (tmp_path / "log.txt").write_text("a\nb\n")
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert answer.stderr.splitlines()[0] == "reading log.txt …"


def test_waiting_threads_sleep_soon_where_the_user_says_nothing():
    environment = {"HOME": "/"}
    bound_spinning(environment)
    assert environment == {"HOME": "/", **BOUNDED}


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_the_users_way_of_waiting_is_left_alone(name):
    environment = {name: "7"}
    bound_spinning(environment)
    assert environment == {name: "7"}


def test_the_command_line_bounds_it_before_torch_is_there():
    code = (
        "import os, sys; from chainrule_app.cli.main import main; main(['--version']);"
        "print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env={})
    assert answer.stdout.splitlines()[-1] == f"{BOUNDED['GOMP_SPINCOUNT']} False"
