"""Speed of `chainrule score --out --workers 2` beside one process, for a table of ten columns.

    python benchmarks/speed_workers.py [--rows 400000] [--repeats 3] [--workers 2]

A table is drawn (seed 0), a run of twenty steps is trained on its first 5,000 rows, and the table is scored with one
process and with several by turns, one thread each. A table of 2,000 rows gives the seconds of the start, which are
subtracted. The goal is 1.8 for two processes with a core each.
"""

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

CITIES = ("Berlin", "Paris", "Rome", "Madrid", "Oslo", "Wien")


def rows(number: int) -> Iterator[str]:
    """Yield the lines of a table."""
    draw = random.Random(0)
    yield "shop,load,count,kind,heat,age,city,price,open,day\n"
    for _ in range(number):
        load, count = draw.gauss(50, 10), draw.randrange(20)
        cells = (
            draw.randrange(1000), f"{load:.2f}", count, draw.choice("abc"), f"{0.3 * load + count:.2f}",
            draw.randrange(18, 90), draw.choice(CITIES), f"{draw.lognormvariate(3, 1):.2f}",
            draw.choice(("yes", "no")), draw.randrange(1, 29),
        )  # fmt: skip
        yield ",".join(map(str, cells)) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with TemporaryDirectory() as folder:
        run, files = Path(folder) / "run", {}
        for number in (5000, 2000, options.rows):
            files[number] = Path(folder) / f"{number}.csv"
            with files[number].open("w") as file:
                file.writelines(rows(number))
        train = ["train", str(files[5000]), "--steps", "20", "--threads", "1", "--out", str(run)]
        subprocess.run([sys.executable, "-m", "chainrule", *train], check=True, capture_output=True, env=environment)

        def seconds(number: int, workers: int) -> float:
            begin, out = monotonic(), Path(folder) / f"{workers}.csv"
            score = ["score", str(run), str(files[number]), "--out", str(out), "--workers", str(workers)]
            command = [sys.executable, "-m", "chainrule", *score]
            subprocess.run(command, check=True, capture_output=True, env=environment)
            return monotonic() - begin

        ratios = []
        for _ in range(options.repeats):
            spent = {}
            for workers in (1, options.workers):
                begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
                start, whole = seconds(2000, workers), seconds(options.rows, workers)
                used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin
                spent[workers] = whole - start
                processor = f", {used:.0f} s of processor time with its start twice" if workers == 1 else ""
                print(
                    f"{workers} workers: start {start:.1f} s, {spent[workers]:.1f} s for the rows{processor}",
                    flush=True,
                )
            ratios.append(spent[1] / spent[options.workers])
            same = (Path(folder) / "1.csv").read_bytes() == (Path(folder) / f"{options.workers}.csv").read_bytes()
            print(f"ratio {ratios[-1]:.2f}, files {'equal' if same else 'DIFFERENT'}", flush=True)
        print(f"median {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
