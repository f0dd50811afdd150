"""Peak memory of `chainrule score --out` for tables of growing length.

    python benchmarks/score_memory.py [--rows 1000000 2000000 4000000] [--out scores.csv]

A table of four columns is drawn (seed 0), a run of one step is trained on its first rows, and each length is scored in
a process of its own, one thread. The last line is the peak of the longest table divided by that of the shortest, which
should be at most 1.1. Tables are read 8 MiB at a time: shorter ones than a million rows take less memory because they
are one block. Four million rows: about five minutes on one core.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

COMMAND = """
import resource, sys
from chainrule_app.cli.main import main
status = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
sys.exit(status)
"""


def rows(number: int) -> Iterator[str]:
    """Yield the lines of a table."""
    draw = random.Random(0)
    yield "load,count,kind,heat\n"
    for _ in range(number):
        load, count = draw.gauss(50, 10), draw.randrange(20)
        yield f"{load:.2f},{count},{draw.choice('abc')},{0.3 * load + count:.2f}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 2_000_000, 4_000_000])
    parser.add_argument("--out", default="scores.csv")
    parser.add_argument("--workers", default="1", help="of several, only the memory of the first process is measured")
    options = parser.parse_args()
    environment, peaks = os.environ | {"OMP_NUM_THREADS": "1"}, []
    with TemporaryDirectory() as folder:
        data, run = Path(folder) / "data.csv", Path(folder) / "run"
        data.write_text("".join(rows(5000)))
        train = ["-m", "chainrule", "train", str(data), "--steps", "1", "--threads", "1", "--out", str(run)]
        subprocess.run([sys.executable, *train], check=True, capture_output=True, env=environment)
        for number in options.rows:
            with data.open("w") as file:
                file.writelines(rows(number))
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            score = ["score", str(run), str(data), "--out", str(Path(folder) / options.out)]
            score += ["--workers", options.workers]
            done = subprocess.run(
                [sys.executable, "-c", COMMAND, *score], check=True, capture_output=True, text=True, env=environment
            )
            peaks.append(float(done.stdout.split()[-1]))
            seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            print(f"{number:>9,} rows  {peaks[-1]:6.0f} MiB  {seconds:6.0f} s of processor time", flush=True)
    print(f"{options.rows[-1]:,} rows / {options.rows[0]:,} rows: {peaks[-1] / peaks[0]:.3f}")


if __name__ == "__main__":
    main()
