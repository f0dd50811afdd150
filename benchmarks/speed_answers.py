"""Lines tagged, classified, translated and embedded a second of processor time, and the memory of many of them.

    python benchmarks/speed_answers.py [tag classify translate embed] [--lines 20000] [--data FOLDER]

A run is trained with its defaults for twenty seconds on real data: words of UD English EWT with their tags, sentences
of SST-2 with their labels, pairs of Multi30k (de-en), and the English sentences of Multi30k as a text. Its answers to
real lines, in order and again from the first after the last, are written with `--out --workers 1` by a process of its
own with one thread: to a quarter of the lines, and to all of them. The difference gives the lines a second, without the
start; the ratio of the peaks of memory tells whether it grows. A network that has learnt for so short a time translates
into long sentences, which takes longer than it will later. FOLDER holds the data (default: ../shared/data, or the
environment variable CHAINRULE_DATA).
"""

import argparse
import csv
import gzip
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from score_memory import COMMAND
from side_by_side import claim, publish

BUDGET = "20s"
Job = tuple[list[str], list[str]]
"""Options of `train`, and the lines to answer."""


def tagging(data: Path, folder: Path) -> Job:
    train, dev, test = (data / "ud_english_ewt" / f"en_ewt-ud-{part}.conllu.gz" for part in ("train", "dev", "test"))
    with gzip.open(test, "rt", encoding="utf-8") as file:
        sentences = [line.removeprefix("# text = ").strip() for line in file if line.startswith("# text = ")]
    return [str(train), "--task", "tag", "--validation", str(dev)], sentences


def classifying(data: Path, folder: Path) -> Job:
    train, dev, test = (data / "sst2" / f"{part}.tsv" for part in ("train", "dev", "test"))
    with test.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return [str(train), "--task", "classify", "--validation", str(dev)], [max(row, key=len) for row in rows]


def translating(data: Path, folder: Path) -> Job:
    source, target = (data / "multi30k" / "tok" / f"train.lc.norm.tok.{side}.gz" for side in ("de", "en"))
    lines = read_lines(data / "multi30k" / "tok" / "test_2016_flickr.lc.norm.tok.de.gz")
    return ["--task", "translate", "--source", str(source), "--target", str(target)], lines


def embedding(data: Path, folder: Path) -> Job:
    text = folder / "text.txt"
    sentences = read_lines(data / "multi30k" / "tok" / "train.lc.norm.tok.en.gz")
    text.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    return [str(text), "--task", "text"], read_lines(data / "multi30k" / "tok" / "test_2016_flickr.lc.norm.tok.en.gz")


JOBS: dict[str, tuple[Callable[[Path, Path], Job], list[str], str]] = {
    "tag": (tagging, ["--text"], "answers.conllu"),
    "classify": (classifying, [], "answers.csv"),
    "translate": (translating, ["--beam", "1"], "answers.txt"),
    "embed": (embedding, [], "answers.npy"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", nargs="*", help=f"of {', '.join(JOBS)}; by default all")
    parser.add_argument("--lines", type=int, default=20_000, help="a twentieth of them to translate")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    options = parser.parse_args()
    torch.set_num_threads(1)  # as in each measurement, for the page
    if not options.data.is_dir():
        print(f"skipped, there is no {options.data}: name the folder with --data")
        return
    figures = [
        measured(name, options.data, options.lines // 20 if name == "translate" else options.lines)
        for name in options.answers or JOBS
    ]
    flat = [
        claim(f"{row['answer']}: memory of all lines ÷ of a quarter", row["÷ quarter"], "<=", 1.1) for row in figures
    ]
    publish("speed_answers", figures, flat)


def measured(name: str, data: Path, count: int) -> dict[str, Any]:
    """Train a run, and return the figures of its answers."""
    prepare, more, out = JOBS[name]
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        train, lines = prepare(data, folder)
        run = folder / "run"
        command(["train", *train, "--budget", BUDGET, "--threads", "1", "--no-samples", "--out", str(run)])
        found = []
        for asked in (count // 4, count):
            (folder / "lines.txt").write_text("".join(numbered(lines, asked)), encoding="utf-8")
            answer = [name, str(run), str(folder / "lines.txt"), *more, "--out", str(folder / out), "--workers", "1"]
            found.append(command(answer))
    (few, less), (many, most) = found
    return {
        "answer": name,
        "lines": count,
        "lines/s": 0.75 * count / (many - few),
        "MB": most,
        "÷ quarter": most / less,
    }


def numbered(lines: list[str], count: int) -> Iterator[str]:
    return (f"{line}\n" for line in islice(cycle(lines), count))


def command(arguments: list[str]) -> tuple[float, float]:
    """Run a command of chainrule; return its seconds of processor time and its peak of memory in MB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"chainrule {' '.join(arguments)}: {done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, float(done.stdout.split()[-1])


def read_lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


if __name__ == "__main__":
    main()
