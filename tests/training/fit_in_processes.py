"""Run as a script by each of several processes: goes on with a run, trains one without a directory, and fails in the
first process alone.

Usage: fit_in_processes.py DIRECTORY
"""

import json
import os
import sys
from pathlib import Path

import chainrule
from chainrule.training import Callback
from chainrule_app.cli.main import main

TEXT = "".join(f"{number * number} is the square of {number}\n" for number in range(60))
OPTIONS = {"hidden_size": 8, "batch_size": 5, "chunk_length": 8, "optimiser": "adamw", "plain": True, "dropout": 0.0,
           "threads": 1, "precision": "float32", "level": "char"}  # fmt: skip


class Losses(Callback):
    """Nats of every step."""

    def __init__(self) -> None:
        self.nats: dict[int, float] = {}

    def figures(self, step, figures):
        if "training/nats_per_element" in figures:
            self.nats[step] = figures["training/nats_per_element"]


def losses(path: Path, steps: int) -> dict[int, float]:
    """Train a run from the beginning, or go on with it."""
    seen = Losses()
    if path.exists():
        chainrule.load(path).resume(steps=steps, callbacks=[seen])
    else:
        chainrule.fit(text=TEXT, steps=steps, out=path, callbacks=[seen], **OPTIONS)
    return seen.nats


def in_processes(directory: Path) -> None:
    """Write what this process finds: losses, the path of a run without a directory, the status of a failure."""
    world = int(os.environ["WORLD_SIZE"])
    found = {"nats": losses(directory / "run", 2 * world)}
    if world == 2:
        found["path"] = str(chainrule.fit(text=TEXT, steps=1, **OPTIONS).path)
    short = directory / f"short-{os.environ['RANK']}.txt"  # no process but the first reads it
    short.write_text("short")
    sys.stderr.flush()
    print("now", file=sys.stderr, flush=True)
    found["status"] = main(["train", str(short), "--out", str(directory / "failed"), "--steps", "1"])
    (directory / f"found-{world}-{os.environ['RANK']}").write_text(json.dumps(found))


if __name__ == "__main__":
    in_processes(Path(sys.argv[1]))
