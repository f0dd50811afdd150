"""Speed of `score` of a text with a default run: an LSTM of 128 units and counts of n-grams.

    python benchmarks/speed_scoring.py [--data FOLDER] [--steps 300] [--rounds 3] [--publish]

Trains on tiny Shakespeare (1.1 MB) and scores all of it: the figures of the file, and the rows of lines with their
most surprising stretch. Prints megabytes a second and processor time; the first call, which loads or compiles the
loops, counts for nothing. Two free cores are needed for the published figure; `--publish` writes it.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from side_by_side import claim, publish, report

import chainrule

GOAL = 0.3  # MB/s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--publish", action="store_true")
    options = parser.parse_args()
    text = options.data / "tinyshakespeare" / "input.txt"
    if not text.is_file():
        print(f"skipped, there is no {text}: name the folder with --data")
        return
    megabytes = text.stat().st_size / 1e6
    with tempfile.TemporaryDirectory() as folder:
        run = chainrule.fit(text, steps=options.steps, hidden_size=128, samples=False, out=Path(folder) / "run")
        ways: dict[str, Callable[[], object]] = {
            "figures of the file": lambda: (
                run.score(str(text), per="file").summary
            ),  # rows are computed when they are read
            "lines and their spots": lambda: len(run.score(str(text), per="line")["spot"]),
        }
        rows, claims = [], []
        for name, way in ways.items():
            way()
            walls, processor = [], []
            for _ in range(options.rounds):
                start, busy = time.perf_counter(), time.process_time()
                way()
                walls.append(time.perf_counter() - start)
                processor.append(time.process_time() - busy)
            speed = megabytes / statistics.median(walls)
            rows.append(
                {
                    "score": name,
                    "MB/s": round(speed, 3),
                    "processor µs a byte": round(statistics.median(processor) / megabytes, 2),
                    "threads": torch.get_num_threads(),
                }
            )
            claims.append(claim(f"score of a text, {name}", speed, ">=", GOAL, " MB/s"))
    (publish if options.publish else lambda _, *found: report(*found))("speed_scoring", rows, claims)


if __name__ == "__main__":
    main()
