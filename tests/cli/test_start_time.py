import subprocess
import sys
from time import monotonic

from chainrule.cli.train import note_start, take_start

TRAIN = """
import sys
from chainrule.cli.main import main
status = main(["train", "--steps", "2", "--hidden-size", "8", "--out", sys.argv[1]])
print(status, sorted({"sympy", "torch._dynamo"} & sys.modules.keys()))
"""


def test_the_start_of_a_command_is_taken_once_and_later_ones_begin_when_they_ask():
    before = monotonic()
    note_start()
    noted = monotonic()
    while monotonic() == noted:  # until the clock has moved
        pass
    assert before <= take_start() <= noted
    assert take_start() > noted


def test_training_imports_neither_a_compiler_nor_algebra(tmp_path):
    answer = subprocess.run([sys.executable, "-c", TRAIN, tmp_path / "run"], capture_output=True, text=True)
    assert answer.stdout.splitlines()[-1:] == ["0 []"], answer.stderr
