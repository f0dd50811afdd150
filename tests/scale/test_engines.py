"""The examples of engines run, where the engine is installed."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from sklearn.datasets import load_wine

import chainrule

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


START = """
import os, ray
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
ray.init(num_cpus=3, include_dashboard=False, object_store_memory=100 << 20)
"""


@pytest.mark.slow
@pytest.mark.scale
def test_replicas_of_ray_serve_answer_as_the_run_does(tmp_path):
    pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install .[scale]")
    source = (EXAMPLES / "serve_ray.py").read_text(encoding="utf-8")
    quick = source.replace('budget="30s"', "steps=1, threads=1")
    (tmp_path / "serve_ray.py").write_text(START + quick)
    script = [sys.executable, tmp_path / "serve_ray.py"]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    rows = load_wine(as_frame=True).frame.head(2)
    expected = chainrule.load(tmp_path / "wine").score(rows)["nats"]
    assert [row["nats"] for row in found] == pytest.approx(expected, rel=1e-5)
