"""Seconds and memory to prepare a table of a million rows and ten columns: CSV, JSON Lines, Parquet and a frame.

    POLARS_MAX_THREADS=1 python benchmarks/prepare_frames.py

Each is measured in a process of its own, by its processor time, beside that of polars, which reads the same CSV file
with types and writes it as Parquet (of a frame and a Parquet file: reads and writes the Parquet file). The goal is 3
times as much for CSV, JSON Lines as fast as CSV, and for a frame 1.5 times the time of CSV without its parsing and
twice the frame's own memory.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas
import polars

from chainrule_app import frames
from chainrule_app.readers.origin import Origin
from chainrule_app.readers.tables.prepare import prepare_table
from chainrule_app.readers.tables.table_file import TableFile
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


def write(folder: Path, rows: int) -> None:
    frame = made(rows)
    frame.to_csv(folder / "rows.csv", index=False)
    polars.from_pandas(frame).write_parquet(folder / "rows.parquet")
    polars.read_csv(folder / "rows.csv").write_ndjson(folder / "rows.jsonl")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(call: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of processor time, and mebibytes above the peak before."""
    clock, before = process_time(), peak()
    call()
    return process_time() - clock, peak() - before


class Parsing:
    """Processor time in which a file becomes columns."""

    def __init__(self) -> None:
        self.seconds = 0.0
        blocks = TableFile.blocks

        def timed(file: TableFile, **options: Any) -> Iterator[Any]:
            clock = process_time()
            for block in blocks(file, **options):
                self.seconds += process_time() - clock
                yield block
                clock = process_time()
            self.seconds += process_time() - clock

        TableFile.blocks = timed  # type: ignore[method-assign, assignment]  # for this process


def of_file(path: Path, folder: Path) -> None:
    parsing = Parsing()
    seconds, grown = measured(lambda: prepare_table(path, folder / "table"))
    rest = f"{seconds - parsing.seconds:.2f} without parsing"
    if path.suffix == ".parquet":
        plain, more = measured(lambda: polars.read_parquet(path).write_parquet(folder / "copy.parquet"))
    else:
        csv = path.with_suffix(".csv")
        plain, more = measured(
            lambda: polars.read_csv(csv, try_parse_dates=True).write_parquet(folder / "copy.parquet")
        )
    print(
        f"{path.suffix[1:]:8} {seconds:6.2f} s ({rest}), {seconds / plain:.1f} times polars' {plain:.2f} s; "
        f"{grown:.0f} MiB more, then {more:.0f} more for polars",
        flush=True,
    )


def of_frame(rows: int, folder: Path) -> None:
    frame = made(rows)
    size = frame.memory_usage(deep=True).sum() / MIB

    def prepare() -> None:
        native = frames.as_frame(frame)
        table = frame_table(native, Origin("data", "index"))
        frames.check_restorable(native, table, frames.describe(native, table))
        prepare_table(table, folder / "table")

    seconds, grown = measured(prepare)
    print(f"frame    {seconds:6.2f} s, {grown:.0f} MiB above the {size:.0f} MiB of the frame", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=1, help="by turns")
    parser.add_argument("--one", help="measure one of them, in this process")
    parser.add_argument("--folder", type=Path, help="where the files lie; made by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        if options.one is not None:
            if options.one == "files":
                write(folder, options.rows)
            elif options.one == "frame":
                of_frame(options.rows, Path(scratch))
            else:
                of_file(folder / f"rows.{options.one}", Path(scratch))
            return
        for one in ("files", *("csv", "jsonl", "parquet", "frame") * options.repeats):
            command = [sys.executable, __file__, "--rows", str(options.rows), "--one", one]
            subprocess.run([*command, "--folder", str(folder)], check=True)


if __name__ == "__main__":
    main()
