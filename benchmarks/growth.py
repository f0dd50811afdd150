"""Measure how the time and memory of commands grow with the data: rows, megabytes, columns, words and categories.

    nice python benchmarks/growth.py [--only rows ...] [--work train ...] [--limit 60] [--again] [--largest 1000000]

One size changes at a time. Training takes STEPS steps of a narrow network, so that what grows is the reading and
preparing of the data, its counts and the work for each step; answers are computed on one thread. Texts and tables are
drawn at random (seed 0): words follow Zipf's law with 1.3 for its exponent and are drawn independently, so that a text
has more different stretches than one that was written, and its counts are at their worst.

Each measurement has a process of its own, which does the same with tiny data before, and takes the processor time of
all its processes and the memory beyond what it had. A measurement that needs more than --limit seconds of processor
time, with the drawing of its data and the training of its run, is dropped, and all larger sizes with it. The results
are written after each, and what they have is not measured again unless --again is given: an interrupted run goes on.
Then docs/cost.md gets its tables.
"""

import argparse
import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cost
import numpy as np
import polars
import torch
from side_by_side import publish, result_path

import chainrule

STEPS = 10
SIZES: dict[str, list[int]] = {
    "rows": [10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000],
    "megabytes": [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000],
    "columns": [10, 100, 300, 1000, 3000, 10_000],
    "words": [100, 1000, 10_000, 100_000, 1_000_000],
    "categories": [10, 100, 1000, 10_000, 100_000],
}
WORK: dict[str, list[str]] = {
    "rows": ["train", "score", "predict", "sample"],
    "megabytes": ["train", "train words", "train pieces", "score"],
    "columns": ["train", "score", "predict", "fill", "sample"],
    "words": ["train", "score", "sample"],
    "categories": ["train", "score", "predict", "sample"],
}
NEW_BYTES = 100_000_000  # of a text, after which its lines are repeated
ROWS, COLUMNS, MEGABYTES = 1000, 10, 3  # where these are not what changes
TINY = {"rows": 100, "megabytes": 0, "columns": 4, "words": 20, "categories": 4}
OPTIONS: dict[str, Any] = {"steps": STEPS, "validate_every": STEPS, "threads": 1, "samples": False}
LEVELS = {"train words": "word", "train pieces": "bpe"}
KEYS = ("size", "work", "n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SIZES, default=list(SIZES), help="by default every size")
    parser.add_argument("--work", nargs="+", help="by default every kind of work")
    parser.add_argument("--limit", type=int, default=60, help="seconds of processor time of a measurement")
    parser.add_argument("--largest", type=int, help="skip larger sizes")
    parser.add_argument("--again", action="store_true", help="measure what the results have already")
    parser.add_argument("--one", nargs=3, metavar=KEYS, help="measure one of them, in this process")
    options = parser.parse_args()
    if options.one:
        size, work, n = options.one
        print(json.dumps(measured(size, work, int(n))))
        return
    torch.set_num_threads(1)  # as in each measurement, for the page
    sys.argv[1:] = []  # one file holds the results of several calls, so that the recorded command has no options
    path = result_path("growth")
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    if options.again:
        rows = [row for row in rows if row["size"] not in options.only]
    for size in options.only:
        for work in (work for work in WORK[size] if work in (options.work or WORK[size])):
            for n in SIZES[size]:
                if n > (options.largest or n):
                    break
                if any(
                    all(row[key] == value for key, value in zip(KEYS, (size, work, n), strict=True)) for row in rows
                ):
                    continue
                if (costs := apart(size, work, n, options.limit)) is None:
                    break
                rows.append({"size": size, "work": work, "n": n, **costs})
                rows.sort(
                    key=lambda row: (list(SIZES).index(row["size"]), WORK[row["size"]].index(row["work"]), row["n"])
                )
                with redirect_stdout(io.StringIO()):
                    publish("growth", rows, [])
    if "BENCHMARK_RESULTS" not in os.environ:
        path, text = cost.page()
        path.write_text(text, encoding="utf-8")


def apart(size: str, work: str, n: int, limit: int) -> dict[str, float] | None:
    """Return the costs of a measurement in a process of its own; None if it failed or took too long."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    command = [sys.executable, __file__, "--one", size, work, str(n)]
    command = ["/bin/sh", "-c", f'ulimit -t {limit}; exec "$@"', "sh", *command]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        reason = f"more than {limit} s" if done.returncode < 0 else done.stderr[-2000:]
        print(f"{work}, {size} {n:,}: {reason}", file=sys.stderr)
        return None
    costs: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"{work}, {size} {n:,}: {costs}", file=sys.stderr, flush=True)
    return costs


def measured(size: str, work: str, n: int) -> dict[str, float]:
    """Return the seconds and megabytes of one piece of work, after the same with tiny data."""
    with TemporaryDirectory() as folder:
        (warm := Path(folder, "warm")).mkdir()
        prepared(warm, size, work, TINY[size])()
        call = prepared(Path(folder), size, work, n)
        before, memory = processor_seconds(), peak()
        call()
        return {"s": processor_seconds() - before, "MB": peak() - memory}


def processor_seconds() -> float:
    """Return the seconds of this process and of its children that ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def prepared(folder: Path, size: str, work: str, n: int) -> Callable[[], object]:
    """Write the data of a measurement, train what it needs, and return what is to be measured."""
    if size in ("megabytes", "words"):
        return of_text(folder, size, work, n)
    rows, columns = (n if size == name else usual for name, usual in (("rows", ROWS), ("columns", COLUMNS)))
    categories = n if size == "categories" else 5
    if size == "categories":
        rows = max(ROWS, 3 * categories)
    data = folder / "data.csv"
    made = table(rows, columns, categories)
    made.write_csv(data)
    if work == "train":
        return lambda: chainrule.fit(data, out=folder / "run", hidden_size=64, **OPTIONS)
    first = folder / "first.csv"
    made.head(10_000 if size == "rows" else rows).write_csv(first)
    run = chainrule.fit(first, out=folder / "run", hidden_size=64, **OPTIONS)
    if size == "categories":
        made.head(ROWS).write_csv(data)
    if work == "sample":
        return lambda: len(run.sample(n if size == "rows" else 100, seed=0))
    if work == "score":
        return lambda: len(run.score(data))
    if work == "predict":
        return lambda: len(run.predict(data, columns=made.columns[-1:]))
    made.with_columns(
        polars.when(np.arange(rows) % 2 == 0).then(made[made.columns[0]]).alias(made.columns[0])
    ).write_csv(data)
    return lambda: len(run.fill(data))


def table(rows: int, columns: int, categories: int) -> polars.DataFrame:
    """Draw a table: every second column is categorical, the others are numbers that depend on the one before."""
    random = np.random.default_rng(0)
    made: dict[str, np.ndarray[Any, Any]] = {}
    for column in range(0, columns, 2):
        symbols = random.integers(0, categories, rows)
        symbols[: min(2 * categories, rows)] = np.arange(min(2 * categories, rows)) % categories
        made[f"c{column}"] = np.char.add("k", symbols.astype(str))
        made[f"c{column + 1}"] = (symbols % 7 + random.normal(size=rows)).round(3)
    return polars.DataFrame(made)


def of_text(folder: Path, size: str, work: str, n: int) -> Callable[[], object]:
    data = folder / "text.txt"
    if size == "megabytes":
        write_words(data, max(int(n * 1e6), 20_000), 1 << 40)
    else:
        write_words(data, MEGABYTES * 1_000_000 if n > TINY["words"] else 20_000, n)
    level = "word" if size == "words" else LEVELS.get(work, "char")
    options: dict[str, Any] = OPTIONS | {"level": level, "hidden_size": 64, "embedding_size": 64, "num_members": 1}
    if work.startswith("train"):
        return lambda: chainrule.fit(data, out=folder / "run", **options)
    if size == "megabytes":
        write_words(folder / "first.txt", 1_000_000, 1 << 40)
        run = chainrule.fit(folder / "first.txt", out=folder / "run", **options)
        return lambda: len(run.score(data, per="file"))
    run = chainrule.fit(data, out=folder / "run", **options)
    if work == "sample":
        return lambda: run.sample(8, length=200, seed=0)
    write_words(data, 20_000, n, every=False)
    return lambda: len(run.score(data, per="file"))


def write_words(path: Path, size: int, most: int, *, every: bool = True) -> None:
    """Write a text of so many bytes: words of Zipf's law in lines of ten, at most so many different ones.

    With `every`, each of the first million words comes at least once, and the text is as long as that takes. After
    100 MB its lines come again, every 4 MB in another order: to draw 10 GB takes a quarter of an hour.
    """
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        first = np.arange(min(most, 1_000_000) if every and most < 1 << 40 else 0)
        random.shuffle(first)
        written = 0
        while written < min(size, NEW_BYTES):
            ranks = random.zipf(1.3, 100_000)
            ranks = np.concatenate([first, ranks[ranks < most]])
            first = first[:0]
            words = list(map(spelt, ranks.tolist()))
            lines = "\n".join(" ".join(words[begin : begin + 10]) for begin in range(0, len(words), 10)) + "\n"
            written += file.write(lines.encode())
    with path.open("rb") as first_lines, path.open("ab") as file:
        while written < size:
            first_lines.seek(0)
            while written < size and first_lines.tell() < NEW_BYTES:
                some = first_lines.readlines(4_000_000)
                random.shuffle(some)
                written += file.write(b"".join(some))


@lru_cache(200_000)
def spelt(rank: int) -> str:
    """Return the word of a rank: syllables, the commoner the shorter."""
    word = ""
    while True:
        rank, syllable = divmod(rank, 75)
        word += "bcdfghklmnprstz"[syllable % 15] + "aeiou"[syllable // 15]
        if not rank:
            return word
        rank -= 1


if __name__ == "__main__":
    main()
