"""Kills at random moments: rows that `chainrule score --engine ray` loses or doubles, weights that end otherwise.

    python benchmarks/ray_kills.py [--kills 20] [--rows 400000] [--seed 0]

A table is scored again and again on a cluster of this machine. Once a worker computes, a worker or the driver is killed
with SIGKILL after up to ten seconds; a killed driver is started again with `--resume`. The rows of the shards are then
compared with those that one process writes, one by one. After every such round a text is trained on by two processes of
torchrun. One of them, or all with torchrun, are killed up to ten seconds after a checkpoint, and `--continue` goes on;
the weights are compared with those of an undisturbed training. Exit status 1 if a row or a weight is lost or different.

The counts are written after each round, and a benchmark that was stopped goes on from there.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import polars
import ray
from side_by_side import result_path
from speed_workers import rows

MARK = token_hex(8)  # in the environment of all processes of this cluster
WRONG = dict.fromkeys(("rows lost", "rows doubled", "outputs that differ", "weights that differ"), 0)
TRAINING = [
    "--steps", "600", "--validate-every", "20", "--hidden-size", "8", "--batch-size", "5", "--precision", "float32",
    "--threads", "1", "--plain", "--out", "run",
]  # fmt: skip


class NoKill(random.Random):
    """Moments that never come."""

    def uniform(self, a: float, b: float) -> float:
        return float("inf")


def workers(name: str = "ray::_Actor", variable: str = "") -> list[int]:
    """Return the processes of this benchmark whose command begins with a name, and that have a variable."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            own, environment = ((folder / file).read_bytes() for file in ("cmdline", "environ"))
            marked = MARK.encode() in environment and f"\0{variable}".encode() in b"\0" + environment
            if own.startswith(name.encode()) and marked:
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def note(kills: Counter[str], what: str) -> None:
    kills[what] += 1
    print(f"kill {kills.total()}: a {what}", flush=True)


def scored(command: list[str], environment: dict[str, str], draw: random.Random, kills: Counter[str]) -> None:
    """Run a command to its end, and kill its workers and itself meanwhile."""
    resume = list[str]()
    while True:
        driver = subprocess.Popen([*command, *resume], env=environment, stderr=subprocess.PIPE, text=True)
        while driver.poll() is None:
            while driver.poll() is None and not workers("ray::_Actor.compute"):
                sleep(0.05)
            moment = monotonic() + draw.uniform(0, 10)
            while monotonic() < moment and driver.poll() is None:
                sleep(0.05)
            if draw.random() < 0.4:
                # before its first line it has nothing to go on with
                if driver.poll() is None and Path(command[-1], "_progress.jsonl").exists():
                    driver.kill()
                    note(kills, "driver")
                    break
            elif found := workers():
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(found), signal.SIGKILL)
                    note(kills, "worker")
        said = driver.communicate()[1]
        if driver.returncode == 0:
            return
        unlucky = driver.returncode == 2 and "workers ended while they computed shard" in said  # five of them
        if driver.returncode != -signal.SIGKILL and not unlucky:
            raise SystemExit(f"status {driver.returncode}: {said}")
        # it may have been killed between the manifest, which is written last, and its end
        if not Path(command[-1], "_progress.jsonl").exists():
            return
        resume = ["--resume"]


def trained(
    command: list[str], folder: Path, environment: dict[str, str], draw: random.Random, kills: Counter[str]
) -> None:
    """Train to the end, and kill a process, or torchrun with all of them, after each checkpoint."""
    checkpoint, saved = folder / "run" / "checkpoint.safetensors", 0

    def last() -> int:
        return checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0

    while True:
        with (folder / "errors").open("w") as errors:
            launcher = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=errors, text=True
            )
        moment = None
        while launcher.poll() is None:
            sleep(0.05)
            if moment is None and last() != saved:  # without progress in between a run would never end
                moment = monotonic() + draw.uniform(0, 10)
            if moment is None or monotonic() < moment:
                continue
            moment, saved = None, last()
            if draw.random() < 0.4:
                launcher.kill()
                for rank in workers(sys.executable, "RANK="):  # which are in sessions of their own
                    with suppress(ProcessLookupError):
                        os.kill(rank, signal.SIGKILL)
                note(kills, "launcher with its ranks")
                break
            if ranks := workers(sys.executable, "RANK="):
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(ranks), signal.SIGKILL)
                    note(kills, "rank")
        launcher.wait()
        if launcher.returncode == 0:
            return
        if launcher.returncode != -signal.SIGKILL:
            raise SystemExit(f"status {launcher.returncode}: {(folder / 'errors').read_text()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    path = result_path("ray_kills")
    done = json.loads(path.read_text()) if path.exists() else {"rounds": 0, "kills": {}, "wrong": WRONG}
    kills, wrong = Counter[str](done["kills"]), Counter[str](done["wrong"])
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "BENCHMARK": MARK}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    address = ray.get_runtime_context().gcs_address
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_ADDRESS": address}
    with TemporaryDirectory() as name:
        folder = Path(name)
        table, part, run, one = (folder / file for file in ("rows.csv", "part.csv", "run", "one.parquet"))
        for file, number in ((table, options.rows), (part, 5000)):
            with file.open("w") as content:
                content.writelines(rows(number))
        chainrule = [sys.executable, "-m", "chainrule"]
        train = ["train", str(part), "--steps", "20", "--threads", "1", "--plain", "--hidden-size", "8"]
        subprocess.run([*chainrule, *train, "--out", str(run)], check=True, capture_output=True, env=environment)
        score = [*chainrule, "score", str(run), str(table)]
        subprocess.run([*score, "--out", str(one), "--workers", "1"], check=True, capture_output=True, env=environment)
        expected = polars.read_parquet(one)
        text = folder / "text.txt"
        text.write_text("one fish two fish red fish blue fish\n" * 1000)
        train = ["-m", "chainrule", "train", str(text), "--continue", *TRAINING]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        torchrun += ["--max-restarts", "1000", *train]
        (folder / "undisturbed").mkdir()
        trained(torchrun, folder / "undisturbed", environment, NoKill(), Counter())
        weights = (folder / "undisturbed" / "run" / "model.safetensors").read_bytes()
        while kills.total() < options.kills:
            draw = random.Random(f"{options.seed} {done['rounds']}")
            out = folder / f"{done['rounds']}.parquet"
            scored([*score, "--engine", "ray", "--workers", "2", "--out", str(out)], environment, draw, kills)
            found = polars.concat(map(polars.read_parquet, sorted(out.glob("part-*"))))
            wrong["rows lost"] += len(expected.join(found, on="line", how="anti"))
            wrong["rows doubled"] += len(found) - found["line"].n_unique()
            wrong["outputs that differ"] += int(not found.equals(expected))
            training = folder / f"training {done['rounds']}"
            training.mkdir()
            trained(torchrun, training, environment, draw, kills)
            wrong["weights that differ"] += int((training / "run" / "model.safetensors").read_bytes() != weights)
            done = {"rounds": done["rounds"] + 1, "kills": dict(kills), "wrong": dict(wrong), "rows": options.rows}
            path.write_text(json.dumps(done, indent=1) + "\n")
            print(f"round {done['rounds']}: {kills.total()} kills so far; {dict(wrong)}", flush=True)
    ray.shutdown()
    print(f"{kills.total()} kills ({dict(kills)}) in {done['rounds']} rounds: {dict(wrong)}")
    sys.exit(bool(wrong.total()))


if __name__ == "__main__":
    main()
