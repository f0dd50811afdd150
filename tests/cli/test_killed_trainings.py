"""A training of any task that was killed at any moment and resumed has the bits of one that was not."""

import subprocess
import sys
from pathlib import Path

import pytest
from small_data import WRITERS

KILLS = 6  # of each task, 66 together


@pytest.mark.slow
@pytest.mark.parametrize("task", WRITERS)
def test_a_killed_training_with_dropout_is_resumed_with_the_same_bits(task: str, tmp_path: Path) -> None:
    script = Path(__file__).with_name("killed_trainings.py")
    command = [sys.executable, script, tmp_path, str(KILLS), task]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(": killed, resumed with the same bits\n") >= KILLS // 2, result.stdout
