"""Models on another device: their tests run in a process of their own, as they change torch for good."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent / "pretend"


@pytest.mark.parametrize(
    "kind",
    ["cuda", pytest.param("mps", marks=pytest.mark.slow)],  # the former has the few models that Apple's card refuses
)
def test_every_use_of_every_model_works_on_another_device(kind):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS)]
    run = subprocess.run(
        command, env={**os.environ, "PRETEND_DEVICE": kind}, capture_output=True, text=True, check=False, timeout=600
    )
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
