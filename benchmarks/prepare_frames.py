"""Seconds and memory to prepare a table of a million rows and ten columns: a frame in memory, and the same rows as CSV.

    python benchmarks/prepare_frames.py

Each is measured in a process of its own. Of the CSV file the time that its lines take to become cells is printed apart:
a frame must be prepared in 1.5 times the remaining time, and in twice its own memory. The processor time of the file is
compared with that of polars, which reads the same file with types and writes Parquet; the goal is 3 times as much.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pandas
import polars

from chainrule_app import frames
from chainrule_app.readers.origin import Origin
from chainrule_app.readers.tables import csv_blocks
from chainrule_app.readers.tables.prepare import prepare_table
from chainrule_app.typed_columns import frame_table

MIB = 1 << 20


def made(rows: int) -> pandas.DataFrame:
    random = np.random.default_rng(0)
    return pandas.DataFrame(
        {
            "normal": random.normal(size=rows),
            "rounded": random.normal(size=rows).round(2),
            "integer": random.integers(0, 1000, rows),
            "small": random.integers(0, 10, rows),
            "text": random.choice(["x", "y", "z"], rows),
            "category": pandas.Categorical(random.choice(["p", "q"], rows)),
            "single": random.normal(size=rows).astype("float32"),
            "truth": random.random(rows) < 0.5,
            "day": random.choice(pandas.date_range("2020-01-01", periods=1000), rows),
            "exponential": random.exponential(size=rows),
        }
    )


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def of_file(path: Path, folder: Path) -> None:
    parsing, blocks = 0.0, csv_blocks.CsvBlocks.read

    def timed(*arguments: Any) -> Generator[Any, None, Any]:
        nonlocal parsing
        parser = blocks(*arguments)
        while True:
            began = perf_counter()
            try:
                block = next(parser)
            except StopIteration as stop:
                parsing += perf_counter() - began
                return stop.value
            parsing += perf_counter() - began
            yield block

    csv_blocks.CsvBlocks.read = timed
    began, clock, before = perf_counter(), process_time(), peak()
    prepare_table(path, folder)
    seconds, own, grown = perf_counter() - began, process_time() - clock, peak() - before
    clock = process_time()
    polars.read_csv(path, try_parse_dates=True).write_parquet(folder / "rows.parquet")
    plain = process_time() - clock
    print(f"CSV    {seconds:6.2f} s: parsing {parsing:.2f} s, the rest {seconds - parsing:.2f} s")
    print(f"CSV    {own:6.2f} s of processor time, {own / plain:.1f} times polars' {plain:.2f} s; {grown:.0f} MiB more")


def of_frame(rows: int, folder: Path) -> None:
    frame = made(rows)
    size, before, began = frame.memory_usage(deep=True).sum() / MIB, peak(), perf_counter()
    native = frames.as_frame(frame)
    table = frame_table(native, Origin("data", "index"))
    frames.check_restorable(native, table, frames.describe(native, table))
    prepare_table(table, folder)
    seconds, grown = perf_counter() - began, peak() - before
    print(f"frame  {seconds:6.2f} s, {grown:.0f} MiB above the {size:.0f} MiB of the frame")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--one", choices=["frame", "csv"], help="measure one of them, in this process")
    parser.add_argument("--file", type=Path, help="the CSV file of --one csv")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.one == "frame":
            of_frame(options.rows, Path(folder))
        elif options.one == "csv":
            of_file(options.file, Path(folder))
        else:
            file = Path(folder) / "rows.csv"
            made(options.rows).to_csv(file, index=False)
            rows = ["--rows", str(options.rows)]
            for one in (["--one", "csv", "--file", str(file)], ["--one", "frame"]):
                subprocess.run([sys.executable, __file__, *rows, *one], check=True)


if __name__ == "__main__":
    main()
