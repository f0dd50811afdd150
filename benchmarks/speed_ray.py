"""Speed of `chainrule score --engine ray` beside `--workers`, for a table of ten columns.

    python benchmarks/speed_ray.py [--rows 1000000] [--repeats 3] [--workers 2]

The table and the run of `speed_workers.py` are scored by turns. A table of 2,000 rows gives the seconds of the start,
which are subtracted. A cluster on a loaded machine takes now half a minute to start and now five, so that the seconds
with Ray are those after the first shard of each worker. The goal is 1.3. Processor time is that of all
processes, looked up twice a second: on a shared machine it says more than seconds of a clock.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import monotonic

import polars
from speed_workers import rows

TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def processor_time(mark: str) -> Iterator[dict[int, float]]:
    """Yield the seconds of processor time of each process whose environment holds a mark, as far as they were seen."""
    spent, ended = dict[int, float](), Event()

    def look() -> None:
        while True:
            last = ended.wait(0.5)
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    if mark.encode() in (folder / "environ").read_bytes():
                        fields = (folder / "stat").read_text().rpartition(")")[2].split()
                        spent[int(folder.name)] = (int(fields[11]) + int(fields[12])) / TICKS
                except OSError:
                    continue
            if last:
                return

    thread = Thread(target=look)
    thread.start()
    try:
        yield spent
    finally:
        ended.set()
        thread.join()


def after_first(folder: Path, workers: int) -> float:
    """Return the seconds of all shards, at the pace of those that were written after the first ones."""
    times = sorted(part.stat().st_mtime for part in folder.glob("part-*"))
    rest = (folder / "_manifest.json").stat().st_mtime - times[workers - 1]
    return rest * len(times) / (len(times) - workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if find_spec("ray") is None:
        print("Ray is not installed: pip install .[scale]")
        return
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with TemporaryDirectory() as folder:
        run, files = Path(folder) / "run", {}
        for number in (5000, 2000, options.rows):
            files[number] = Path(folder) / f"{number}.csv"
            with files[number].open("w") as file:
                file.writelines(rows(number))
        train = ["train", str(files[5000]), "--steps", "20", "--threads", "1", "--out", str(run)]
        subprocess.run([sys.executable, "-m", "chainrule", *train], check=True, capture_output=True, env=environment)

        def score(number: int, engine: str, out: Path) -> tuple[float, float]:
            begin, mark = monotonic(), token_hex(8)
            arguments = ["score", str(run), str(files[number]), "--out", str(out), "--engine", engine]
            command = [sys.executable, "-m", "chainrule", *arguments, "--workers", str(options.workers)]
            with processor_time(mark) as spent:
                subprocess.run(command, check=True, capture_output=True, env=environment | {"BENCHMARK": mark})
            return monotonic() - begin, sum(spent.values())

        ratios = []
        for repeat in range(options.repeats):
            clock, used, outs = dict[str, float](), dict[str, float](), dict[str, Path]()
            for engine in ("local", "ray"):
                outs[engine] = Path(folder) / f"{engine}-{repeat}.parquet"
                start = score(2000, engine, Path(folder) / f"{engine}-{repeat}-start.parquet")
                whole = score(options.rows, engine, outs[engine])
                clock[engine], used[engine] = whole[0] - start[0], whole[1] - start[1]
                if engine == "ray":
                    clock[engine] = after_first(outs[engine], options.workers)
                print(
                    f"{engine}: start {start[0]:.1f} s ({start[1]:.1f} s of processor time), "
                    f"then {clock[engine]:.1f} s ({used[engine]:.1f} s)",
                    flush=True,
                )
            ratios.append((clock["ray"] / clock["local"], used["ray"] / used["local"]))
            shards = polars.concat(map(polars.read_parquet, sorted(outs["ray"].glob("part-*"))))
            same = shards.equals(polars.read_parquet(outs["local"]))
            print(
                f"ratio {ratios[-1][0]:.2f}, of processor time {ratios[-1][1]:.2f}, load {os.getloadavg()[0]:.1f}, "
                f"rows {'equal' if same else 'DIFFERENT'}",
                flush=True,
            )
        clocks, times = map(statistics.median, zip(*ratios, strict=True))
        print(f"medians {clocks:.2f}, of processor time {times:.2f}")


if __name__ == "__main__":
    main()
