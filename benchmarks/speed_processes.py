"""Steps of training in several processes, compared with one process and with a cost model.

    python benchmarks/speed_processes.py [--rounds 2] [--only text table images] [--data FOLDER]

Each process has one thread, and the batch is divided among the processes. FOLDER (default: ../shared/data, or
CHAINRULE_DATA) has tiny Shakespeare; the table is that of `speed_workers.py`, the images are scikit-learn's digits. The
time of a step is taken between two validations, by the clock, so that nothing else may run. The goal is 1.8 for two
processes with a core each.

The cost model: a step of W processes takes as long as a step of one process with a W-th of the batch, times W ÷ cores
if there are more processes than cores, and as the sum of the gradient over W processes (`--sums`, gloo). The goal is an
error of at most 20%.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from side_by_side import claim, publish
from sklearn.datasets import load_digits
from speed_workers import rows

KINDS: dict[str, list[str]] = {
    "text": ["text.txt", "--level", "char", "--hidden-size", "512", "--num-members", "1", "--batch-size", "64"],
    "table": ["rows.csv", "--hidden-size", "512", "--num-members", "1", "--batch-size", "1024"],
    "images": ["digits.npz", "--batch-size", "64"],
}
WORKERS = (2, 4)
STEPS = (10, 40)  # between which steps are timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument(
        "--sums", type=int, metavar="WEIGHTS", help="print the seconds of a sum, as one of the processes"
    )
    options = parser.parse_args()
    if options.sums:
        print_seconds_of_sums(options.sums)
        return
    text = options.data / "tinyshakespeare" / "input.txt"
    if not text.is_file():
        print(f"skipped, there is no {text}: name the folder with --data")
        return
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "text.txt").write_bytes(text.read_bytes()[:1_000_000])
        (folder / "rows.csv").write_text("".join(rows(20_000)))
        np.savez(folder / "digits.npz", images=(load_digits().images * 15).astype(np.uint8))
        figures = [row for kind in options.only for row in measured(folder, kind, options.rounds)]
    claims = []
    for row in figures:
        if row["processes"] == 2:
            claims.append(claim(f"training, {row['data']}: two processes ÷ one", row["÷ one"], ">=", 1.8, "×"))
        error = abs(row["predicted ms"] / row["ms a step"] - 1)
        claims.append(
            claim(f"training, {row['data']}, {row['processes']} processes: error of the cost model", error, "<=", 0.2)
        )
    publish("speed_processes", figures, claims)


def measured(folder: Path, kind: str, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each number of processes."""
    batch = int(KINDS[kind][-1])
    ways = [(1, batch), *((workers, batch) for workers in WORKERS), *((1, batch // workers) for workers in WORKERS)]
    found: dict[tuple[int, int], list[float]] = {way: [] for way in ways}
    weights = 0
    for number in range(rounds):
        for way in ways:
            seconds, weights = step_seconds(folder, kind, *way, f"{kind}-{way[0]}-{way[1]}-{number}")
            found[way].append(seconds)
    middle = {way: statistics.median(times) for way, times in found.items()}
    result = []
    cores = os.cpu_count() or 1
    for workers in WORKERS:
        summed = seconds_of_sums(workers, weights)
        predicted = middle[1, batch // workers] * max(workers / cores, 1) + summed
        result.append(
            {
                "data": kind, "weights": weights, "batch": batch, "processes": workers,
                "ms a step": 1000 * middle[workers, batch], "÷ one": middle[1, batch] / middle[workers, batch],
                "ms of the sum": 1000 * summed, "predicted ms": 1000 * predicted,
            }
        )  # fmt: skip
        print(result[-1], file=sys.stderr, flush=True)
    return result


def step_seconds(folder: Path, kind: str, workers: int, batch: int, name: str) -> tuple[float, int]:
    """Train for a few steps; return the seconds of one, and the number of weights."""
    data, *flags = KINDS[kind][:-1]
    command = ["train", str(folder / data), *flags, str(batch), "--out", str(folder / name)]
    command += ["--steps", str(STEPS[1]), "--validate-every", str(STEPS[0]), "--threads", "1", "--no-samples"]
    launcher = ["-m", "chainrule"]
    if workers > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", *launcher]
    subprocess.run(
        [sys.executable, *launcher, *command],
        check=True,
        capture_output=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    timings = {row["step"]: row for row in map(json.loads, (folder / name / "timings.jsonl").read_text().splitlines())}
    first, last = (timings[step]["training_seconds"] for step in STEPS)
    info = subprocess.run(
        [sys.executable, "-m", "chainrule", "info", str(folder / name), "--json"], check=True, capture_output=True
    )
    return (last - first) / (STEPS[1] - STEPS[0]), json.loads(info.stdout)["parameters"]


def seconds_of_sums(workers: int, weights: int) -> float:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", __file__]
    done = subprocess.run([*command, "--sums", str(weights)], check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def print_seconds_of_sums(weights: int) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    gradient, times = torch.zeros(weights), []
    for _ in range(20):
        torch.distributed.barrier()
        began = time.perf_counter()
        torch.distributed.all_reduce(gradient)
        times.append(time.perf_counter() - began)
    if torch.distributed.get_rank() == 0:
        print(statistics.median(times))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
