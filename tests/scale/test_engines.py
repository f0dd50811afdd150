"""The examples of engines run, where the engine is installed."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ENGINES = [
    "polars",
    pytest.param("dask", marks=pytest.mark.slow),
    pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.scale]),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_example_of_an_engine_runs(engine, tmp_path):
    if find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed: pip install .[scale]")
    source = (EXAMPLES / f"map_{engine}.py").read_text(encoding="utf-8")
    quick = source.replace('budget="30s"', "steps=1, threads=1")
    assert quick != source
    script = tmp_path / f"map_{engine}.py"
    script.write_text(quick)
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "shape: (5, 4)" in done.stdout or float(done.stdout) > 0
