"""Rows of a table scored a second, and megabytes of a CSV file and of a text prepared a second, on one thread.

    python benchmarks/speed_data.py [--rounds 5]

A table of ten columns (`speed_workers.py`, seed 0) is scored by a run of twenty steps with default sizes; the goal is
100,000 rows a second on two cores. A CSV file of ten columns (`prepare_frames.py`, seed 0) is prepared by turns with
polars, which reads it with types and writes it as Parquet: the goal is 3 times its time, which fixed costs of looking
at the first thousand rows exceed in a small file. A text of characters (`growth.py`) is prepared. Processor time.
"""

import argparse
import io
import statistics
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import polars
import torch
from growth import write_words
from prepare_frames import made
from side_by_side import claim, interleaved, median_ratio, publish
from speed_workers import rows

import chainrule
from chainrule_app.readers.corpus import prepare_corpus
from chainrule_app.readers.tables.prepare import prepare_table

SCORED, PREPARED, TEXT = 50_000, (200_000, 1_000_000), 20_000_000  # rows, rows, bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        lines = list(rows(SCORED))
        (folder / "first.csv").write_text("".join(lines[:5001]))
        (folder / "scored.csv").write_text("".join(lines))
        for count in PREPARED:
            made(count).to_csv(folder / f"{count}.csv", index=False)
        write_words(folder / "text.txt", TEXT, 1 << 40)
        with redirect_stderr(io.StringIO()):
            run = chainrule.fit(folder / "first.csv", out=folder / "run", steps=20, threads=1, samples=False)

        def prepare(count: int) -> None:
            prepare_table(folder / f"{count}.csv", folder / "table")

        def read_and_write(count: int) -> None:
            polars.read_csv(folder / f"{count}.csv", try_parse_dates=True).write_parquet(folder / "copy.parquet")

        seconds = interleaved(
            {
                "score": lambda: sum(1 for _ in run.score(folder / "scored.csv").stream()),
                **{f"table {count}": partial(prepare, count) for count in PREPARED},
                **{f"polars {count}": partial(read_and_write, count) for count in PREPARED},
                "text": lambda: prepare_corpus(folder / "text.txt", folder / "text", level="char", reading="stream"),
            },
            options.rounds,
            warmup=1,
            clock=process_time,
        )
        megabytes = {data: (folder / data).stat().st_size / 1e6 for data in (f"{PREPARED[-1]}.csv", "text.txt")}
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    ratios = {count: median_ratio(seconds[f"table {count}"], seconds[f"polars {count}"]) for count in PREPARED}
    table_speed = megabytes[f"{PREPARED[-1]}.csv"] / middle[f"table {PREPARED[-1]}"]
    text_speed = megabytes["text.txt"] / middle["text"]
    figures = [
        {"work": "score a table of 10 columns", "s": middle["score"], "rows/s": SCORED / middle["score"]},
        *(
            {"work": f"prepare CSV of 10 columns, {count:,} rows", "s": middle[f"table {count}"], "÷ polars": ratio}
            for count, ratio in ratios.items()
        ),
        {"work": "prepare a text of characters", "s": middle["text"], "MB/s": text_speed},
    ]
    publish(
        "speed_data",
        figures,
        [
            claim("table of 10 columns: rows scored a second", SCORED / middle["score"], ">=", 50_000),
            claim("CSV of 10 columns: MB prepared a second", table_speed, ">=", 40),
            *(
                claim(f"CSV of {count:,} rows: time of preparing ÷ polars' reading and writing", ratio, "<=", 3, "×")
                for count, ratio in ratios.items()
            ),
            claim("text of characters: MB prepared a second", text_speed, ">=", 40),
        ],
    )


if __name__ == "__main__":
    main()
