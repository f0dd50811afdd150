"""The examples of engines run, where the engine is installed."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from sklearn.datasets import load_wine

import chainrule

EXAMPLES = Path(__file__).parents[2] / "examples"
ENGINES = [
    "polars",
    pytest.param("dask", marks=pytest.mark.slow),
    pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.scale]),
    pytest.param("pyspark", marks=pytest.mark.slow),  # only make nightly installs it
]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_example_of_an_engine_runs(engine, tmp_path):
    if find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed: pip install .[scale]")
    source = (EXAMPLES / f"map_{engine.removeprefix('py')}.py").read_text(encoding="utf-8")
    quick = source.replace('budget="30s"', "steps=1, threads=1")
    assert quick != source
    script = tmp_path / f"map_{engine}.py"
    script.write_text(quick)
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}  # of the processes that Java starts
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "shape: (5, 4)" in done.stdout or float(done.stdout) > 0


START = """
import os, ray
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
ray.init(num_cpus=3, include_dashboard=False, object_store_memory=100 << 20)

def with_process(app):
    @app.middleware("http")
    async def add(request, answer):
        response = await answer(request)
        response.headers["process"] = str(os.getpid())
        return response
    return app
"""
END = """
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

def answer(_):
    with urlopen(asked) as response:
        return response.headers["process"], json.load(response)["rows"]

answers, end = [], monotonic() + 60  # until either replica has answered
with ThreadPoolExecutor(8) as threads:
    while len({process for process, _ in answers}) < 2 and monotonic() < end:
        answers += threads.map(answer, range(16))
(deployment,) = serve.status().applications["default"].deployments.values()
print(json.dumps([deployment.replica_states, answers]))
"""


@pytest.mark.slow
@pytest.mark.scale
def test_two_replicas_of_ray_serve_answer_as_chainrule_serve_does(tmp_path):
    pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install .[scale]")
    quick = (EXAMPLES / "serve_ray.py").read_text(encoding="utf-8")
    for old, new in (
        ('budget="30s"', "steps=1, threads=1"),
        ('"min_replicas": 1', '"min_replicas": 2'),
        ("create_app({", "with_process(create_app({"),
        ("load(path)})", "load(path)}))"),
    ):
        assert quick.count(old) == 1
        quick = quick.replace(old, new)
    (tmp_path / "serve_ray.py").write_text(START + quick + END)
    script = [sys.executable, tmp_path / "serve_ray.py"]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    states, answers = json.loads(done.stdout.splitlines()[-1])
    assert states == {"RUNNING": 2}
    assert len({process for process, _ in answers}) == 2
    command = [sys.executable, "-m", "chainrule", "serve", str(tmp_path / "wine"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            lines = iter(server.stdout.readline, "")
            address = next(found[0] for line in lines if (found := re.search(r"http://[\w.]+:\d+", line)))
            rows = json.dumps({"data": load_wine(as_frame=True).frame.head(2).to_dict("records")}).encode()
            asked = Request(f"{address}/runs/wine/score", rows, {"Content-Type": "application/json"})
            with urlopen(asked) as response:
                expected = json.load(response)["rows"]
        finally:
            server.kill()
    for _, found in answers:  # those that came together were computed together
        assert [row | {"nats": 0} for row in found] == [row | {"nats": 0} for row in expected]
        assert [row["nats"] for row in found] == pytest.approx([row["nats"] for row in expected], rel=1e-5)
    assert [row["nats"] for row in expected] == pytest.approx(
        chainrule.load(tmp_path / "wine").score(load_wine(as_frame=True).frame.head(2))["nats"], rel=1e-5
    )
