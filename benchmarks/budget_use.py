"""How much of a short budget each task spends on training steps, on this machine and on one three times slower.

    python benchmarks/budget_use.py --budget 30
    python benchmarks/budget_use.py --tasks translate caption --full-speed
    python benchmarks/budget_use.py --budget 15 --full-speed --cold

Each task trains with its defaults in a child process that is stopped for 20 of every 30 milliseconds, so that its wall
clock sees a machine three times slower. Where the time went is read from the `timings.jsonl` of the run. A child that
something else delayed (a slice that took a second or more) is tried again. On a machine that is never quiet, with
`--processor-time` the clock of the child is its processor time instead, three times over: delays do not count then, nor
does waiting for the disk.

A run that needs fewer passes over its data than its budget allows ("enough passes") ends before it.
The figure "planned ÷ reached" compares the speed that a run was planned with to the speed of its training steps. With
`--cold`, kernels are compiled anew in each child, as on a machine that never trained.
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
from random import Random
from typing import Any

from processor_clock import launched, processor_seconds
from safetensors import safe_open
from side_by_side import claim, publish

from chainrule_app.tasks.size_schedule import TRAINING_SHARE

RUNNING, STOPPED = 0.01, 0.02  # seconds, by turns: a third of the time
DISTURBED = 1.0  # seconds that no slice should take
TRIES = 3
SLOWER = 3
SHARE, OVERRUN = 0.6, 0.1  # of the budget: training steps at least, and time beyond it at most
MISJUDGED = 1.5  # factor between the planned and the reached speed, at most

NAMES = "names.txt"  # made here
TASKS: dict[str, list[str]] = {
    "text": ["tinyshakespeare/input.txt"],
    "names": [NAMES, "--reading", "lines"],
    "table": ["tables/adult-train.csv.gz"],
    "image": ["mnist/train-images-idx3-ubyte.gz"],
    "sound": ["fsdd/train_5-19.tar.gz"],
    "tag": ["ud_english_ewt/en_ewt-ud-train.conllu.gz", "--validation", "ud_english_ewt/en_ewt-ud-dev.conllu.gz"],
    "classify": ["sst2/train.tsv", "--validation", "sst2/dev.tsv"],
    "translate": [
        *("--source", "multi30k/tok/train.lc.norm.tok.de.gz", "--target", "multi30k/tok/train.lc.norm.tok.en.gz"),
        *(
            "--validation",
            "multi30k/tok/val.lc.norm.tok.de.gz",
            "--validation-target",
            "multi30k/tok/val.lc.norm.tok.en.gz",
        ),
    ],
    "caption": [
        *("flickr8k_64px/train_images_64px.zip", "--captions", "flickr8k_64px/train_captions.txt.gz"),
        *("--validation", "flickr8k_64px/dev_images_64px.zip"),
        *("--validation-captions", "flickr8k_64px/dev_captions.txt.gz"),
    ],
    "forecast": ["time_series/exchange_rate.txt.gz", "--target", "all", "--horizon", "30"],
    "monthly": ["time_series/airline-passengers.csv"],
}
KINDS = {"names": "text", "monthly": "forecast"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--budget", type=float, default=30.0, help="seconds, at least 20")
    parser.add_argument("--full-speed", action="store_true", help="do not slow the child down")
    parser.add_argument("--cold", action="store_true", help="compile kernels in each child")
    parser.add_argument("--processor-time", action="store_true", help="by the child's processor time, one thread")
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
        if asked.processor_time:
            rows.append(
                by_processor_time(task, asked.data, asked.budget, 1 if asked.full_speed else SLOWER, cold=asked.cold)
            )
        else:
            rows.append(measured(task, asked.data, asked.budget, slowed=not asked.full_speed, cold=asked.cold))
        print(json.dumps(rows[-1]), flush=True)
    if rows:
        worst = min((row["share"] for row in rows if not row["enough passes"]), default=1.0)
        longest = max(row["beyond"] for row in rows)
        speed = "at full speed" if asked.full_speed else "slowed to a third"
        claims = [
            claim(f"least share of {asked.budget:g} s in training steps, {speed}", worst, ">=", SHARE),
            claim(f"longest wall time beyond {asked.budget:g} s and excess start-up, {speed}", longest, "<=", OVERRUN),
        ]
        ratios = [row["planned ÷ reached"] for row in rows if "planned ÷ reached" in row]
        if ratios:
            misjudged = max(max(ratio, 1 / ratio) for ratio in ratios)
            claims.append(claim("largest factor between planned and reached speed", misjudged, "<=", MISJUDGED))
        name = "budget_use" + "_full_speed" * asked.full_speed + f"_cold_{asked.budget:g}s" * asked.cold
        publish(name, rows, claims)


def measured(task: str, data: Path, budget: float, *, slowed: bool, cold: bool) -> dict[str, Any]:
    """Where the time of one run went; that of the last try, if something delayed all of them."""
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory() as folder:
            seconds, delayed = trained(task, data, budget, Path(folder) / "run", slowed=slowed, cold=cold)
            row = where_it_went(Path(folder) / "run", budget, seconds)
        if not delayed:
            break
    return {"task": task} | row | {"delayed": delayed}


def by_processor_time(task: str, data: Path, budget: float, factor: int, *, cold: bool) -> dict[str, Any]:
    """Where the time of one run went, whose clock is its processor time multiplied by a factor."""
    with tempfile.TemporaryDirectory() as folder:
        out, before = Path(folder) / "run", processor_seconds()
        subprocess.run(
            launched(["-m", "chainrule", *arguments(task, data, budget, out)], factor),
            env=os.environ | {"OMP_NUM_THREADS": "1"} | environment(out, cold=cold),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        return {"task": task} | where_it_went(out, budget, factor * (processor_seconds() - before))


def arguments(task: str, data: Path, budget: float, out: Path) -> list[str]:
    """What `chainrule` is called with."""
    (out.parent / NAMES).write_text(names())
    given = [str(data / part) if "/" in part else part for part in TASKS[task]]
    given = [str(out.parent / NAMES) if part == NAMES else part for part in given]
    return ["train", *given, "--task", KINDS.get(task, task), "--budget", f"{budget:g}s", "--out", str(out), "--json"]


def environment(out: Path, *, cold: bool) -> dict[str, str]:
    """Variables of a child, which finds no compiled kernels if it is cold."""
    return {"NUMBA_CACHE_DIR": str(out.parent / "kernels")} if cold else {}


def names(number: int = 2400) -> str:
    """Lines of made-up names, about 20 kB."""
    random = Random(0)
    syllables = [
        start + vowel
        for start in ("b", "d", "f", "g", "h", "j", "k", "l", "m", "n", "r", "s", "t")
        for vowel in "aeiou"
    ]

    def name() -> str:
        return "".join(random.choices(syllables, k=random.choice((2, 3, 3, 4)))) + random.choice(["", "n", "r", "s"])

    return "".join(f"{name()}\n" for _ in range(number))


def trained(task: str, data: Path, budget: float, out: Path, *, slowed: bool, cold: bool) -> tuple[float, bool]:
    """Train in a child process; its wall time, and whether something else than this script delayed it.

    Raises:
        RuntimeError: the training failed.
    """
    command = [sys.executable, "-m", "chainrule", *arguments(task, data, budget, out)]
    began = time.monotonic()
    with (out.parent / "log").open("w+") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | environment(out, cold=cold))
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
        "enough passes": json.loads((out / "config.json").read_text())["training"]["budget"] is None,
        **planned_speed(out, last["step"] / last["training_seconds"]),
    }


def planned_speed(out: Path, steps_per_second: float) -> dict[str, float]:
    """The speed that the run was planned with ÷ the one that it reached; nothing where it was not measured."""
    config = json.loads((out / "config.json").read_text())
    settled, duration = config["settled"], config["training"]
    if settled is None or settled["passes"] is None:
        return {}
    budget = duration["budget"] or duration["most_seconds"]
    with safe_open(out / "checkpoint.safetensors", "pt") as file:
        steps_per_epoch = json.loads(file.metadata()["chainrule"].partition(" ")[2])["steps_per_epoch"]
    planned = settled["passes"] * steps_per_epoch / (TRAINING_SHARE * budget)
    return {"planned ÷ reached": round(planned / steps_per_second, 3)}


if __name__ == "__main__":
    main()
