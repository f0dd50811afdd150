"""Rows of a table scored a second, and megabytes of a CSV file and of a text prepared a second, on one thread.

    python benchmarks/speed_data.py [--rounds 5]

A table of ten columns (`speed_workers.py`, seed 0) is scored by a run of twenty steps with default sizes; the goal is
100,000 rows a second on two cores. A CSV file of ten columns (`prepare_frames.py`, seed 0) is prepared by turns with
polars, which reads it with types and writes it as Parquet: the goal is 3 times its time. A text of characters
(`growth.py`) is prepared. Processor time.
"""

import argparse
import io
import statistics
from contextlib import redirect_stderr
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

SCORED, PREPARED, TEXT = 50_000, 200_000, 20_000_000  # rows, rows, bytes


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
        made(PREPARED).to_csv(folder / "rows.csv", index=False)
        write_words(folder / "text.txt", TEXT, 1 << 40)
        with redirect_stderr(io.StringIO()):
            run = chainrule.fit(folder / "first.csv", out=folder / "run", steps=20, threads=1, samples=False)

        def read_and_write() -> None:
            polars.read_csv(folder / "rows.csv", try_parse_dates=True).write_parquet(folder / "copy.parquet")

        seconds = interleaved(
            {
                "score": lambda: sum(1 for _ in run.score(folder / "scored.csv").stream()),
                "table": lambda: prepare_table(folder / "rows.csv", folder / "table"),
                "polars": read_and_write,
                "text": lambda: prepare_corpus(folder / "text.txt", folder / "text", level="char", reading="stream"),
            },
            options.rounds,
            warmup=1,
            clock=process_time,
        )
        size = {
            name: (folder / f"{name}.{end}").stat().st_size / 1e6 for name, end in (("rows", "csv"), ("text", "txt"))
        }
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    table_speed, text_speed = (size[data] / middle[work] for data, work in (("rows", "table"), ("text", "text")))
    ratio = median_ratio(seconds["table"], seconds["polars"])
    figures = [
        {"work": "score a table of 10 columns", "s": middle["score"], "rows/s": SCORED / middle["score"]},
        {"work": "prepare CSV of 10 columns", "s": middle["table"], "MB/s": table_speed, "÷ polars": ratio},
        {"work": "prepare a text of characters", "s": middle["text"], "MB/s": text_speed},
    ]
    publish(
        "speed_data",
        figures,
        [
            claim("table of 10 columns: rows scored a second", SCORED / middle["score"], ">=", 50_000),
            claim("CSV of 10 columns: MB prepared a second", table_speed, ">=", 40),
            claim("CSV of 10 columns: time of preparing ÷ polars' reading and writing", ratio, "<=", 3, "×"),
            claim("text of characters: MB prepared a second", text_speed, ">=", 40),
        ],
    )


if __name__ == "__main__":
    main()
