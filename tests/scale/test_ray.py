"""Ray: its processes write what one process writes, one of them killed, and train to the weights of torchrun.

All tests share one cluster on this machine. `make test-scale` runs them.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

import polars
import pytest

import chainrule
from chainrule_app.cli import sharded
from chainrule_app.cli.main import main
from chainrule_app.scale.shards import ShardLog

pytestmark = [
    pytest.mark.scale,
    pytest.mark.filterwarnings("ignore"),  # of Ray's own code
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc"),
]


@pytest.fixture(scope="session")
def cluster():
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install .[scale]")
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    yield
    ray.shutdown()


def processes(name):
    """Return the processes that the cluster of this process gave a name."""
    parents, named = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if (folder / "cmdline").read_bytes().startswith(name.encode()):
                named.append(int(folder.name))
        except OSError:
            continue

    def ours(process):
        while process not in (0, os.getpid()):
            process = parents.get(process, 0)
        return process != 0

    return sorted(filter(ours, named))


@pytest.fixture
def files(tmp_path):
    counts = polars.int_range(60000, eager=True) * 7 % 23
    rows = polars.DataFrame({"count": counts, "kind": ["a", "b", "c"] * 20000})
    rows.write_csv(tmp_path / "rows.csv")
    chainrule.fit(rows.head(200), out=tmp_path / "run", steps=2, threads=1, hidden_size=8, plain=True)
    return tmp_path


def test_a_killed_worker_loses_and_doubles_no_row(cluster, files, monkeypatch, capsys):
    add, killed = ShardLog.add, []

    def killing(self, number, shard):
        add(self, number, shard)
        if not killed:
            killed.append(processes("ray::_Actor")[0])
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(ShardLog, "add", killing)
    monkeypatch.setattr(sharded, "_BATCHES", 4)
    call = ["score", str(files / "run"), str(files / "rows.csv"), "--out"]
    capsys.readouterr()
    assert main([*call, str(files / "x.parquet"), "--engine", "ray", "--workers", "2"]) == 0
    several = capsys.readouterr().err.splitlines()[-2:]
    assert killed
    assert main([*call, str(files / "one.parquet"), "--workers", "1"]) == 0
    assert capsys.readouterr().err.splitlines()[-2:] == several
    parts = sorted((files / "x.parquet").glob("part-*"))
    assert len(parts) == 4
    assert polars.concat(map(polars.read_parquet, parts)).equals(polars.read_parquet(files / "one.parquet"))


def test_errors_of_workers_take_one_line(cluster, files, capsys):
    text = ["count,kind", *["3,a"] * 40000]
    text[30000] = "far,a"
    (files / "bad.csv").write_text("\n".join(text))
    call = ["score", str(files / "run"), str(files / "bad.csv"), "--out", str(files / "x.jsonl")]
    capsys.readouterr()
    assert main([*call, "--engine", "ray", "--workers", "2"]) == 2
    assert f"{files / 'bad.csv'} line 30001, column 'count': " in (err := capsys.readouterr().err)
    assert err.count("\n") == 1
    end = monotonic() + 60
    while processes("ray::_Actor") and monotonic() < end:
        sleep(0.05)
    assert processes("ray::_Actor") == []  # the one that failed ends too, and gives its core back


TRAIN = [
    "train", "text.txt", "--plain", "--hidden-size", "8", "--steps", "200", "--validate-every", "20",
    "--batch-size", "5", "--precision", "float32", "--threads", "1", "--out",
]  # fmt: skip


def test_trainings_end_with_the_weights_of_torchrun_one_process_killed(cluster, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("one fish two fish red fish blue fish\n" * 100)
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "chainrule",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*torchrun, *TRAIN, "torchrun"], env=environment, capture_output=True, check=True)
    killed = []

    def kill():
        end = monotonic() + 300
        while not list(tmp_path.glob("ray/checkpoint*")) and monotonic() < end:
            sleep(0.05)
        killed.extend(processes("ray::RayTrainWorker"))
        os.kill(killed[-1], signal.SIGKILL)

    killer = Thread(target=kill)
    killer.start()
    assert main([*TRAIN, "ray", "--engine", "ray", "--workers", "2"]) == 0
    killer.join()
    assert len(killed) == 2
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("torchrun", "ray")]
    assert weights[0] == weights[1]
    assert "200 steps in " in capsys.readouterr().out
    assert not list(tmp_path.glob(".ray*"))
    assert main([*TRAIN, "ray", "--engine", "ray"]) == 2
    assert capsys.readouterr().err.startswith("chainrule: --out: ray holds a run already: continue it with `chainrule ")
