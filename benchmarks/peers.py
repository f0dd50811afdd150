"""`chainrule train` with its defaults beside a plain script of the same field, in the same minutes, on the same data.

    python benchmarks/peers.py [--task text --task tag ...] [--minutes 3] [--seeds 1] [--avx2] [--data FOLDER]
    python benchmarks/peers.py --task names --minutes 0.5 --seeds 3 --processor-time
    python benchmarks/peers.py --task text --keep-peers [--minutes 3] ...
    python benchmarks/peers.py --same-shape [--minutes 3] [--seeds 1] [--avx2]

The peers are the scripts of `benchmarks/peers/`, torch.nn only, each tuned as its field's tutorials are; `--peers
FOLDER` takes those of the same names from there. Peer and chainrule run by turns, one process at a time, with the same
threads; chainrule is told nothing of the model. FOLDER is described in `peer_tasks.py` (default: ../shared/data, or the
environment variable CHAINRULE_DATA); what is absent is skipped.

The clock: a peer trains for the whole of its minutes, after Python, torch and the data are loaded; the test comes after
them. Of chainrule's minutes reading the data is a part, and so are validations and checkpoints; only loading Python
and torch comes before them. The columns show the seconds of training and of the whole process. plain_lstm.py runs
with 256, 384 and 512 units; the size that is best on the test part counts, which favours the peer.

On a machine that is never quiet, `--processor-time` makes the processor time of each process its clock, on one thread.

`--keep-peers`: the rows of the peers are those of the results published before, if they are of the same machine and
seeds: for a change of chainrule alone.

`--same-shape`: the text model of both has 256 units, an embedding of 64, float32, AdamW, 32 rows of 64 characters; only
the speed counts, characters over seconds of training with all that belongs to it. `--avx2` runs both as a machine
without AVX-512 would.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peer_tasks import TASKS, Task, chainrule
from processor_clock import launched, processor_seconds
from side_by_side import claim, machine, median_ratio, publish, result_path

AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
SHAPE = [
    "--hidden-size", "256", "--num-layers", "1", "--embedding-size", "64", "--dropout", "0.2", "--batch-size", "32",
    "--chunk-length", "64", "--precision", "float32", "--ngram-order", "1", "--embedding-dropout", "0",
    "--optimiser", "adamw",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, action="append")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--seeds", type=int, default=1, help="so many runs of each, seeds 0, 1, ...")
    parser.add_argument("--keep-peers", action="store_true")
    parser.add_argument("--same-shape", action="store_true")
    parser.add_argument("--avx2", action="store_true")
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--peers", type=Path, default=PEERS)
    options = parser.parse_args()
    if options.avx2:  # before torch looks
        os.environ.update(AVX2)
    if options.processor_time:
        os.environ["OMP_NUM_THREADS"] = "1"
    for name in ["text"] if options.same_shape else options.task or list(TASKS):
        with tempfile.TemporaryDirectory() as folder:
            try:
                task = TASKS[name](options.data, Path(folder))
            except FileNotFoundError as error:
                print(f"{name}: skipped, there is no {error.filename}: name the folder with --data")
                continue
            if options.same_shape:
                publish(results_name("same_shape", options), *same_shape(task, options, Path(folder)))
            else:
                publish(results_name(name, options), *compare(name, task, options, Path(folder)))


PEERS = Path(__file__).parent / "peers"
Rows = list[dict[str, Any]]


def compare(name: str, task: Task, options: argparse.Namespace, folder: Path) -> tuple[Rows, Rows]:
    """Run both by turns; rows of figures, the comparison last, and the claim."""
    rows: Rows = []
    kept = kept_peers(name, options) if options.keep_peers else []
    for seed in range(options.seeds):
        first, *others = task.peer if not kept else [[]]
        if not kept:
            rows.append(peer(task, first, seed, options))
        rows.append(ours(task, [], seed, options, folder / "run"))
        rows[-1][task.figure] = task.test(folder / "run")
        rows += [peer(task, arguments, seed, options) for arguments in others]
    rows += kept
    figures = {who: [row[task.figure] for row in rows if row["run"] == who] for who in {row["run"] for row in rows}}
    found = figures.pop(OURS)
    best = (min if task.lower else max)(figures, key=lambda who: statistics.mean(figures[who]))
    peers_mean, ours_mean = statistics.mean(figures[best]), statistics.mean(found)
    gain = (peers_mean - ours_mean) * (1 if task.lower else -1)
    spread = max(max(part) - min(part) for part in (found, figures[best]))
    rows.append(
        {"run": f"{OURS} against {best}", task.figure: ours_mean, f"{task.figure} of the peer": peers_mean,
         "better by": gain, "spread over seeds": spread}
    )  # fmt: skip
    ratio = speed_ratio(rows, best)
    if ratio is not None:
        rows[-1]["speed ÷ peer's"] = ratio
    what = f"{task.title}, {options.minutes:g} min, {OURS} with its defaults"
    if name == "text":
        target = 0.04 if "AVX-512" in machine()["cpu"] else 0.03
        claims = [claim(f"{what}: nats/char below {best}", gain, ">=", target)]
        if 3 <= options.minutes <= 60:
            claims.append(claim("tiny Shakespeare, at most 60 minutes, test nats/char", ours_mean, "<=", 1.44))
        return rows, claims
    if name == "transformer":
        return rows, [claim(f"{what}, --model transformer: nats/char below {best}", gain, ">=", 0.06)]
    if name == "tag":
        errors = (100 - ours_mean) / (100 - peers_mean)
        return rows, [claim(f"{what}: error ÷ {best}", errors, "<=", 0.9)]
    return rows, [claim(f"{what}: {task.figure}, gain over {best}, target: the spread over seeds", gain, ">=", spread)]


def kept_peers(name: str, options: argparse.Namespace) -> Rows:
    """The rows of the peers in the results published before, of this machine and these seeds."""
    path = result_path(results_name(name, options))
    if not path.exists():
        raise SystemExit(f"--keep-peers: there is no {path.name} with peers to keep: run without it")
    before = json.loads(path.read_text())
    rows = [row for row in before["rows"] if row["run"] != OURS and "seed" in row]
    if before["machine"] != machine() or {row["seed"] for row in rows} != set(range(options.seeds)):
        raise SystemExit(f"--keep-peers: {path.name} is of another machine or other seeds: run without it")
    return rows


def results_name(name: str, options: argparse.Namespace) -> str:
    """The name of the file of results of a task."""
    return f"peers_{name.replace('-', '_')}_{options.minutes:g}m" + ("_avx2" if options.avx2 else "")


def same_shape(task: Task, options: argparse.Namespace, folder: Path) -> tuple[Rows, Rows]:
    """Train both at one shape, by turns; rows of speeds, and the claim."""
    rows: Rows = []
    for seed in range(options.seeds):
        rows.append(peer(task, task.peer[0], seed, options))
        rows.append(ours(task, SHAPE, seed, options, folder / "run"))
        del rows[-2][task.figure]  # of the shape, not of the script
    ratio = speed_ratio(rows, rows[0]["run"])
    if ratio is None:
        raise SystemExit(f"--peers: {task.script} there does not say how many characters it read, in which time")
    rows.append({"run": f"{OURS} ÷ {rows[0]['run']}", "speed ÷ peer's": ratio})
    target = 1.0 if "AVX-512" in machine()["cpu"] else 0.97
    return rows, [claim(f"{OURS} ÷ {task.script}, same shape, float32: characters/s", ratio, ">=", target, "×")]


OURS = "chainrule train"
VARIANTS = ("plain_lstm.py", "plain_transformer.py")  # named by their arguments


def ours(task: Task, shape: list[str], seed: int, options: argparse.Namespace, run: Path) -> dict[str, Any]:
    """Train by the command line into the directory `run`; the row of figures."""
    factor, clock = clock_of(options)
    began = clock()
    given = ["--budget", f"{60 * options.minutes:g}s", "--seed", str(seed), "--out", str(run), "--overwrite"]
    (summary,) = chainrule("train", *task.train, *shape, *given, factor=factor)
    whole = clock() - began
    return figures_of(task, OURS, seed, summary["steps"], summary["elements"], summary["seconds"], whole)


def peer(task: Task, arguments: list[str], seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Run the plain script; the row of figures, read off the line that it prints last."""
    factor, clock = clock_of(options)
    script = options.peers / task.script if (options.peers / task.script).exists() else PEERS / task.script
    seconds_given = f"{60 * options.minutes:g}"
    given = [str(script), *arguments, "--seconds", seconds_given, "--seed", str(seed)]
    name = " ".join([task.script, *(part for part in arguments[1:] if task.script in VARIANTS)])
    print("$", name, f"--seconds {seconds_given} --seed {seed}", flush=True)
    began = clock()
    output = subprocess.run(launched(given, factor), check=True, stdout=subprocess.PIPE, text=True).stdout
    whole, line = clock() - began, output.splitlines()[-1]
    print(line, flush=True)
    figure, steps = re.match(r"([-\d.]+)", line), re.search(r"([\d,]+) steps", line)
    if figure is None or steps is None:
        raise SystemExit(f"{script}: expected a line such as '1.5 nats/char, 100 steps', got {line!r}")
    read = re.search(r"([\d,]+) [a-z]+ in ([\d.]+) s", line)
    elements, seconds = (int(read[1].replace(",", "")), float(read[2])) if read else (None, None)
    row = figures_of(task, name, seed, int(steps[1].replace(",", "")), elements, seconds, whole)
    return row | {task.figure: float(figure[1])}


def clock_of(options: argparse.Namespace) -> tuple[float | None, Callable[[], float]]:
    """The factor of the clock of a process, None for the wall's, and this clock from outside."""
    return (1, processor_seconds) if options.processor_time else (None, time.monotonic)


def figures_of(
    task: Task, who: str, seed: int, steps: int, elements: int | None, seconds: float | None, whole: float
) -> dict[str, Any]:
    """The row of one run; without a count of elements, as another's scripts may have none, the speed is missing."""
    row: dict[str, Any] = {"run": who, "seed": seed, "steps": steps}
    if elements is not None and seconds is not None:
        row |= {f"{task.element}/s": elements / seconds, "seconds of training": seconds}
    return row | {"seconds of the process": whole}


def speed_ratio(rows: Rows, best: str) -> float | None:
    """The median, over the seeds, of chainrule's elements a second over the peer's; None where it did not say."""
    speeds = {
        who: [value for row in rows if row["run"] == who for name, value in row.items() if name.endswith("/s")]
        for who in (OURS, best)
    }
    return median_ratio(speeds[OURS], speeds[best]) if speeds[best] else None


if __name__ == "__main__":
    main()
