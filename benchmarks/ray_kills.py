"""Kills at random moments: rows that are lost or doubled, outputs and weights that end otherwise.

    python benchmarks/ray_kills.py [--kills 100] [--rows 1000000] [--seconds 12] [--seed 0]

Three kinds of work take turns on one cluster of this machine: `score --engine ray`, a training under torchrun and
`train --engine ray`, with two processes each. One of them is chosen at random and killed with SIGKILL, whatever it
does: import, compute or write. Half of these kills come up to some seconds after a new shard or checkpoint, the others
up to some seconds after the processes have started, or after the last kill. A fourth of all meet the driver, some of
them before there are processes. It is started again with `--resume` or `--continue`; torchrun is killed with its
processes, as when a machine fails. After eight kills a piece of work is left alone until it ends. Then the rows of its
shards are compared with those that one process writes, and its weights with those of a training that nothing
disturbed, bit for bit.

Only what was compared counts. The counts are kept in build/ray_kills.json after each piece of work, and the same
command goes on from there. Exit status 1 if anything was lost, doubled or different.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

import polars
import ray
from side_by_side import claim, publish
from speed_workers import rows

MARK = token_hex(8)  # in the environment of all processes of this benchmark
STATE = Path(__file__).parent.parent / "build" / "ray_kills.json"
KILLS = 8  # of a piece of work
DRIVERS = 0.25  # share of the kills that meet the driver
AT_ONCE, STARTED = 0.15, 0.35  # shares of those that wait for nothing, and for processes; the others wait for progress
WRONG = ("rows lost", "rows doubled", "outputs that differ")
CHAINRULE = [sys.executable, "-m", "chainrule"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TRAINING = [
    "--continue", "--steps", "1500", "--validate-every", "50", "--hidden-size", "8", "--batch-size", "5",
    "--precision", "float32", "--threads", "1", "--plain",
]  # fmt: skip


@dataclass(frozen=True)
class Work:
    """A command whose processes are killed.

    Args:
        name: of the work.
        out: what it writes, in a folder of its own.
        command: that starts it, or goes on with it.
        progress: the file, below what it writes, that a new shard or checkpoint changes.
        process: how the command of its processes begins.
        variable: that they have in their environment.
        orphans: whether its processes outlive it.
        compared: counts what is wrong with what it wrote.
    """

    name: str
    out: str
    command: Callable[[Path], list[str]]
    progress: str
    process: str
    compared: Callable[[Path], dict[str, int]]
    variable: str = ""
    orphans: bool = False

    def processes(self) -> list[int]:
        return marked(self.process, self.variable)

    def reached(self, folder: Path) -> int:
        with suppress(OSError):
            return (folder / self.out / self.progress).stat().st_mtime_ns
        return 0


def marked(name: str, variable: str) -> list[int]:
    """Return the processes of this benchmark whose command begins with a name, and that have a variable."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = ((folder / file).read_bytes() for file in ("cmdline", "environ"))
        except OSError:
            continue
        has = MARK.encode() in environment and f"\0{variable}".encode() in b"\0" + environment
        if command.startswith(name.encode()) and has:
            found.append(int(folder.name))
    return found


def kill(process: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
        return True
    return False


def ended(driver: subprocess.Popen[bytes], work: Work) -> None:
    """Kill a driver, with its processes if they would outlive it."""
    driver.kill()
    driver.wait()
    for process in work.processes() if work.orphans else ():
        kill(process)


def disturbed(work: Work, folder: Path, draw: random.Random, seconds: float, most: int = KILLS) -> Counter[str]:
    """Run a piece of work to its end and kill its processes meanwhile; return the kills."""
    kills, errors = Counter[str](), folder / "errors"
    while True:
        with errors.open("w") as said:
            driver = subprocess.Popen(work.command(folder / work.out), cwd=folder, stdout=said, stderr=said)
        try:
            while kills.total() < most and at_random(work, driver, folder, draw, seconds):
                found = work.processes()
                if draw.random() < DRIVERS:
                    ended(driver, work)
                    if driver.returncode != -signal.SIGKILL:  # it had just come to its end
                        break
                    what = "driver"
                elif found and kill(draw.choice(found)):
                    what = "process"
                else:
                    continue
                kills[what] += 1
                print(f"  {work.name}: killed a {what}", flush=True)
            driver.wait()
        except BaseException:
            ended(driver, work)
            raise
        if driver.returncode == 0:
            return kills
        unlucky = "5 workers" in errors.read_text()  # which died one after the other
        if driver.returncode != -signal.SIGKILL and not unlucky:
            raise SystemExit(f"{work.name}: status {driver.returncode}: {errors.read_text()}")


def at_random(work: Work, driver: subprocess.Popen[bytes], folder: Path, draw: random.Random, seconds: float) -> bool:
    """Wait for a moment to kill; return whether the driver still runs."""
    wait, before = draw.random(), work.reached(folder)
    while driver.poll() is None and wait > AT_ONCE:
        if work.processes() and (wait < AT_ONCE + STARTED or work.reached(folder) != before):
            break
        sleep(0.2)
    with suppress(subprocess.TimeoutExpired):
        driver.wait(draw.uniform(0, seconds))
    return driver.poll() is None


@contextmanager
def local_cluster() -> Iterator[None]:
    """Hold a cluster of this machine during the block."""
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1", "BENCHMARK": MARK}
    os.environ |= settings
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    try:
        yield
    finally:
        ray.shutdown()


def pieces(folder: Path, number: int) -> tuple[Work, ...]:
    """Return the kinds of work, after writing what they read and what they have to come to."""
    table, part, run, one, text = (folder / name for name in ("rows.csv", "part.csv", "run", "one.parquet", "text.txt"))
    lines = [",".join(line.split(",")[:4]) + "\n" for line in rows(number)]
    table.write_text("".join(lines))
    part.write_text("".join(islice(lines, 5000)))
    text.write_text("one fish two fish red fish blue fish\n" * 1000)
    train = [*CHAINRULE, "train", str(part), "--steps", "20", "--threads", "1", "--plain", "--hidden-size", "8"]
    score = [*CHAINRULE, "score", str(run), str(table)]
    subprocess.run([*train, "--out", str(run)], check=True, capture_output=True)
    subprocess.run([*score, "--workers", "1", "--out", str(one)], check=True, capture_output=True)
    expected = polars.read_parquet(one)

    def scoring(out: Path) -> list[str]:
        begun = any((out / name).exists() for name in ("_progress.jsonl", "_manifest.json"))
        return [*score, "--engine", "ray", "--workers", "2", "--out", str(out), *(["--resume"] if begun else [])]

    def same_rows(out: Path) -> dict[str, int]:
        found = polars.concat(map(polars.read_parquet, sorted(out.glob("part-*"))))
        lost = len(expected.join(found, on="line", how="anti"))
        doubled, differ = len(found) - found["line"].n_unique(), int(not found.equals(expected))
        return dict(zip(WRONG, (lost, doubled, differ), strict=True))

    def training(*launcher: str, options: tuple[str, ...] = ()) -> Callable[[Path], list[str]]:
        return lambda out: [*launcher, "train", str(text), *TRAINING, *options, "--out", str(out)]

    def weights(out: Path) -> bytes:
        return (out / "model.safetensors").read_bytes()

    def same_weights(out: Path) -> dict[str, int]:
        return {"weights that differ": int(weights(out) != whole)}

    torchrun = training(*TORCHRUN, "--max-restarts", "1000", *CHAINRULE[1:])
    saved = "checkpoint.safetensors"
    on_ray = training(*CHAINRULE, options=("--engine", "ray", "--workers", "2"))
    ranks = Work("torchrun", "run", torchrun, saved, sys.executable, same_weights, variable="RANK=", orphans=True)
    (folder / "whole").mkdir()
    disturbed(ranks, folder / "whole", random.Random(0), 0, most=0)
    whole = weights(folder / "whole" / "run")
    return (
        Work("score --engine ray", "x.parquet", scoring, "_progress.jsonl", "ray::_Actor", same_rows),
        ranks,
        Work("train --engine ray", "run", on_ray, saved, "ray::RayTrainWorker", same_weights),
    )


def kills_of(counts: dict[str, dict[str, int]]) -> int:
    return sum(own.get(f"{what} kills", 0) for own in counts.values() for what in ("process", "driver"))


def publish_counts(counts: dict[str, dict[str, int]]) -> bool:
    """Publish the counts of each kind of work; return whether nothing is wrong."""
    table: list[dict[str, Any]] = [{"work": name} | own for name, own in counts.items()]
    wrong = Counter[str]()
    for own in counts.values():
        wrong.update({name: own.get(name, 0) for name in (*WRONG, "weights that differ")})
    ended = sum(own["ended"] for own in counts.values())
    publish(
        "ray_kills",
        table,
        [
            claim("kills of ranks, Ray workers and drivers at random moments", kills_of(counts), ">=", 100),
            claim("rows lost or doubled by these kills", wrong["rows lost"] + wrong["rows doubled"], "<=", 0),
            claim(
                f"outputs and weights that differ from those of undisturbed processes, of {ended}",
                wrong["outputs that differ"] + wrong["weights that differ"],
                "<=",
                0,
            ),
        ],
    )
    return not wrong.total()


def work_on(counts: dict[str, dict[str, int]], options: argparse.Namespace, asked: dict[str, Any]) -> None:
    """Kill and compare until there are enough kills; keeps the counts after each piece of work."""
    with local_cluster(), TemporaryDirectory() as name:
        works = pieces(Path(name), options.rows)
        while kills_of(counts) < options.kills:
            turn = sum(own["ended"] for own in counts.values())
            work, folder = works[turn % len(works)], Path(name, str(turn))
            folder.mkdir()
            begin, draw = monotonic(), random.Random(f"{options.seed} {turn}")
            kills = disturbed(work, folder, draw, options.seconds)
            result = {"ended": 1, "process kills": kills["process"], "driver kills": kills["driver"]}
            result |= work.compared(folder / work.out)
            own = counts.setdefault(work.name, dict.fromkeys(result, 0))
            for key, value in result.items():
                own[key] += value
            STATE.parent.mkdir(exist_ok=True)
            STATE.write_text(json.dumps({"asked": asked, "counts": counts}, indent=1) + "\n")
            taken = f"{monotonic() - begin:.0f} s, load {os.getloadavg()[0]:.1f}"
            print(f"turn {turn}, {work.name}, seed '{options.seed} {turn}', {taken}: {result}", flush=True)
            print(f"{kills_of(counts)} kills so far", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    asked = {"rows": options.rows, "seconds": options.seconds, "seed": options.seed}
    state = json.loads(STATE.read_text()) if STATE.exists() else {}
    counts: dict[str, dict[str, int]] = state["counts"] if state.get("asked") == asked else {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes are ended too
    if kills_of(counts) < options.kills:
        work_on(counts, options, asked)
    good = publish_counts(counts)
    STATE.unlink()
    sys.exit(not good)


if __name__ == "__main__":
    main()
