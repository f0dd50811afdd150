"""Kills of Ray's workers and of drivers at random moments: rows that `chainrule score --engine ray` loses or doubles.

    python benchmarks/ray_kills.py [--kills 20] [--rows 400000] [--seed 0]

A table is scored again and again on a cluster of this machine. Once a worker computes, a worker or the driver is killed
with SIGKILL after up to ten seconds; a killed driver is started again with `--resume`. The rows of the shards are then
compared with those that one process writes, one by one. Exit status 1 if a row is lost, doubled or different.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import polars
import ray
from speed_workers import rows

MARK = token_hex(8)  # in the environment of all processes of this cluster


def workers(name: str = "ray::_Actor") -> list[int]:
    """Return the processes of this cluster that compute shards, or those that do what their name says."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            own, environment = ((folder / file).read_bytes() for file in ("cmdline", "environ"))
            if own.startswith(name.encode()) and MARK.encode() in environment:
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
                try:
                    os.kill(draw.choice(found), signal.SIGKILL)
                    note(kills, "worker")
                except ProcessLookupError:
                    pass
        said = driver.communicate()[1]
        if driver.returncode == 0:
            return
        if driver.returncode != -signal.SIGKILL:
            raise SystemExit(f"status {driver.returncode}: {said}")
        # it may have been killed between the manifest, which is written last, and its end
        if not Path(command[-1], "_progress.jsonl").exists():
            return
        resume = ["--resume"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw, kills, wrong, rounds = random.Random(options.seed), Counter[str](), 0, 0
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "BENCHMARK": MARK}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    address = ray.get_runtime_context().gcs_address
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_ADDRESS": address}
    with TemporaryDirectory() as folder:
        table, part, run, one = (Path(folder) / name for name in ("rows.csv", "part.csv", "run", "one.parquet"))
        for file, number in ((table, options.rows), (part, 5000)):
            with file.open("w") as content:
                content.writelines(rows(number))
        chainrule = [sys.executable, "-m", "chainrule"]
        train = ["train", str(part), "--steps", "20", "--threads", "1", "--plain", "--hidden-size", "8"]
        subprocess.run([*chainrule, *train, "--out", str(run)], check=True, capture_output=True, env=environment)
        score = [*chainrule, "score", str(run), str(table)]
        subprocess.run([*score, "--out", str(one), "--workers", "1"], check=True, capture_output=True, env=environment)
        expected = polars.read_parquet(one)
        while kills.total() < options.kills:
            out = Path(folder) / f"{rounds}.parquet"
            command = [*score, "--engine", "ray", "--workers", "2", "--out", str(out)]
            scored(command, environment, draw, kills)
            rounds += 1
            found = polars.concat(map(polars.read_parquet, sorted(out.glob("part-*"))))
            lost = len(expected.join(found, on="line", how="anti"))
            doubled = len(found) - found["line"].n_unique()
            different = int(not found.equals(expected))
            wrong += lost + doubled + different
            print(
                f"round {rounds}: {kills['worker']} workers and {kills['driver']} drivers killed so far; "
                f"{lost} rows lost, {doubled} doubled, {'a' if different else 'no'} difference",
                flush=True,
            )
    ray.shutdown()
    print(f"{kills.total()} kills ({dict(kills)}) in {rounds} rounds: {wrong} lost, doubled or different")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
