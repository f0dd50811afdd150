"""`torchrun` on two processes: a job that is stopped or a process that is killed ends with the run finished."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

import chainrule

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TRAIN = [
    "-m", "chainrule", "train", "text.txt", "--plain", "--hidden-size", "8", "--steps", "200", "--validate-every", "20",
    "--batch-size", "5", "--precision", "float32", "--threads", "1", "--continue", "--out",
]  # fmt: skip


def launched(folder, run, *more):
    command = [*TORCHRUN, "--max-restarts", "3", *TRAIN, run, *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for_step(folder, launcher):
    """Wait until the run has a checkpoint to go on with."""
    end = monotonic() + 300
    while not list(folder.glob("checkpoint*")) and monotonic() < end and launcher.poll() is None:
        sleep(0.02)
    assert launcher.poll() is None, "it ended before it could be stopped"


def second_process(launcher):
    """Return the process of rank 1."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == launcher.pid and b"\0RANK=1\0" in (folder / "environ").read_bytes():
                return int(folder.name)
        except OSError:
            continue
    raise AssertionError("there is no second process")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
def test_stopped_and_killed_processes_end_with_the_weights_of_one_that_ran_through(tmp_path):
    (tmp_path / "text.txt").write_text("one fish two fish red fish blue fish\n" * 100)
    weights = {}

    def finished(name, launcher):
        assert launcher.wait(600) == 0
        weights[name] = (tmp_path / name / "model.safetensors").read_bytes()

    finished("whole", launched(tmp_path, "whole"))

    launcher = launched(tmp_path, "stopped")
    wait_for_step(tmp_path / "stopped", launcher)
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(300) != 0
    finished("stopped", launched(tmp_path, "stopped"))  # the queue starts the same command again

    launcher = launched(tmp_path, "killed")
    wait_for_step(tmp_path / "killed", launcher)
    os.kill(second_process(launcher), signal.SIGKILL)
    finished("killed", launcher)

    assert weights["stopped"] == weights["killed"] == weights["whole"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
def test_a_divided_training_survives_a_kill_and_is_a_run_like_any_other(tmp_path):
    (tmp_path / "text.txt").write_text("one fish two fish red fish blue fish\n" * 100)
    for name, more in (("ordinary", []), ("divided", ["--shard"]), ("killed", ["--shard"])):
        launcher = launched(tmp_path, name, *more)
        if name == "killed":
            wait_for_step(tmp_path / name, launcher)
            os.kill(second_process(launcher), signal.SIGKILL)
        assert launcher.wait(600) == 0
    divided, killed = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("divided", "killed")]
    assert divided == killed
    ordinary, divided = [chainrule.load(tmp_path / name) for name in ("ordinary", "divided")]
    scores = [run.score(tmp_path / "text.txt").summary["nats"] for run in (ordinary, divided)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-3)
    divided.resume(steps=201)
