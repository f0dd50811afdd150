"""How much of a short budget each task spends on training steps, on this machine and on one three times slower.

    python benchmarks/budget_use.py --budget 30
    python benchmarks/budget_use.py --tasks translate caption --full-speed

Each task trains with its defaults in a child process that is stopped for 20 of every 30 milliseconds, so that its wall
clock sees a machine three times slower. Where the time went is read from the `timings.jsonl` of the run. A child that
something else delayed (a slice that took a second or more) is tried again.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from side_by_side import claim, publish

RUNNING, STOPPED = 0.01, 0.02  # seconds, by turns: a third of the time
DISTURBED = 1.0  # seconds that no slice should take
TRIES = 3
SHARE, OVERRUN = 0.6, 0.1  # of the budget: training steps at least, and time beyond it at most

TASKS: dict[str, list[str]] = {
    "text": ["tinyshakespeare/input.txt"],
    "table": ["tables/adult-train.csv.gz"],
    "image": ["mnist/train-images-idx3-ubyte.gz"],
    "sound": ["fsdd/train_5-19.tar.gz"],
    "tag": ["ud_english_ewt/en_ewt-ud-train.conllu.gz", "--dev", "ud_english_ewt/en_ewt-ud-dev.conllu.gz"],
    "classify": ["sst2/train.tsv", "--dev", "sst2/dev.tsv"],
    "translate": [
        *("--source", "multi30k/tok/train.lc.norm.tok.de.gz", "--target", "multi30k/tok/train.lc.norm.tok.en.gz"),
        *("--dev-source", "multi30k/tok/val.lc.norm.tok.de.gz", "--dev-target", "multi30k/tok/val.lc.norm.tok.en.gz"),
    ],
    "caption": [
        *("flickr8k_64px/train_images_64px.zip", "--captions", "flickr8k_64px/train_captions.txt.gz"),
        *("--validation", "flickr8k_64px/dev_images_64px.zip"),
        *("--validation-captions", "flickr8k_64px/dev_captions.txt.gz"),
    ],
    "forecast": ["time_series/exchange_rate.txt.gz", "--target", "all", "--horizon", "30"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--budget", type=float, default=30.0, help="seconds, at least 20")
    parser.add_argument("--full-speed", action="store_true", help="do not slow the child down")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    asked = parser.parse_args()
    if not asked.data.is_dir():
        sys.exit(f"--data {asked.data}: there are no such data sets: nothing was measured")
    rows = []
    for task in asked.tasks:
        missing = [part for part in TASKS[task] if "/" in part and not (asked.data / part).exists()]
        if missing:
            print(f"{task}: left out, {asked.data / missing[0]} is missing", flush=True)
            continue
        rows.append(measured(task, asked.data, asked.budget, slowed=not asked.full_speed))
        print(json.dumps(rows[-1]), flush=True)
    if rows:
        worst, longest = min(row["share"] for row in rows), max(row["beyond"] for row in rows)
        speed = "at full speed" if asked.full_speed else "slowed to a third"
        claims = [
            claim(f"least share of {asked.budget:g} s in training steps, {speed}", worst, ">=", SHARE),
            claim(f"longest wall time beyond {asked.budget:g} s and excess start-up, {speed}", longest, "<=", OVERRUN),
        ]
        publish("budget_use_full_speed" if asked.full_speed else "budget_use", rows, claims)


def measured(task: str, data: Path, budget: float, *, slowed: bool) -> dict[str, Any]:
    """Where the time of one run went; that of the last try, if something delayed all of them."""
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory() as folder:
            seconds, delayed = trained(task, data, budget, Path(folder) / "run", slowed=slowed)
            row = where_it_went(Path(folder) / "run", budget, seconds)
        if not delayed:
            break
    return {"task": task} | row | {"delayed": delayed}


def trained(task: str, data: Path, budget: float, out: Path, *, slowed: bool) -> tuple[float, bool]:
    """Train in a child process; its wall time, and whether something else than this script delayed it.

    Raises:
        RuntimeError: the training failed.
    """
    arguments = [str(data / part) if "/" in part else part for part in TASKS[task]]
    command = [sys.executable, "-m", "chainrule", "train", *arguments, "--task", task, "--budget", f"{budget:g}s"]
    began = time.monotonic()
    with (out.parent / "log").open("w+") as log:
        child = subprocess.Popen([*command, "--out", str(out), "--json"], stdout=log, stderr=log)
        delayed = False
        while child.poll() is None:
            mark = time.monotonic()
            if slowed:
                os.kill(child.pid, signal.SIGSTOP)
                time.sleep(STOPPED)
                os.kill(child.pid, signal.SIGCONT)
            time.sleep(RUNNING)
            delayed |= time.monotonic() - mark > DISTURBED
        seconds = time.monotonic() - began
        if child.returncode:
            log.seek(0)
            raise RuntimeError(f"{task}: training failed: {log.read()[-2000:]}")
    return seconds, delayed


def where_it_went(out: Path, budget: float, wall: float) -> dict[str, Any]:
    """Shares and seconds, from the files of a run that lasted `wall` seconds from its command to its end."""
    timings = [json.loads(line) for line in (out / "timings.jsonl").read_text().splitlines()]
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    validations = [record for record in metrics if record["event"] == "validation"]
    last = timings[-1]
    excess = max(last["start_up_seconds"] - budget / 5, 0.0)
    return {
        "share": round(last["training_seconds"] / budget, 3),
        "beyond": round((wall - excess) / budget - 1, 3),
        "steps": last["step"],
        "start-up s": round(last["start_up_seconds"], 1),
        "validations": " ".join(f"{line['step']}:{line['validating_seconds']:.1f}" for line in timings),
        "saves s": round(sum(line["saving_seconds"] for line in timings), 1),
        "read": " ".join(f"{line['elements']}/{line.get('rows', 0)}" for line in validations),
        "wall s": round(wall, 1),
    }


if __name__ == "__main__":
    main()
