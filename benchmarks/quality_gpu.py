"""Train models of characters, words and images on one GPU for a few minutes, through the command line.

    python benchmarks/quality_gpu.py [--minutes 7] [--only mnist ...] [--data FOLDER] [--seed 0] [--device cuda]

FOLDER (default: ../shared/data, or the environment variable CHAINRULE_DATA) holds the data sets that its README names.
All trainings share the GPU and run at the same time, each for the given minutes of wall-clock time. If a data set has
several settings, the validation part selects one, and that run scores the test part once.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peer_tasks import chainrule, image, text
from quality_cifar import bits, write_pictures
from quality_language_models import penn_treebank
from side_by_side import claim, publish

RUNS = Path("runs/benchmarks")


@dataclass(frozen=True)
class Job:
    """A data set.

    Attributes:
        figure: the test figure's name and unit.
        target: the most that it may be.
        settings: options of `chainrule train`, one for each training.
        data: its arguments that name the data.
        test: from a run directory to the test figure.
    """

    figure: str
    target: float
    settings: list[str]
    data: list[str]
    test: Callable[[Path], float]


def shakespeare(data: Path, folder: Path) -> Job:
    task = text(data, folder)
    settings = ["", "--num-members 4"]
    return Job("tiny Shakespeare, test nats/char", 1.355, settings, task.train, task.test)


def ptb(data: Path, folder: Path) -> Job:
    parts = {part: folder / f"ptb.{part}.txt" for part in ("train", "valid", "test")}
    for part, lines in penn_treebank(data).items():
        parts[part].write_bytes("".join(f"{line}\n" for line in lines).encode())

    def test(run: Path) -> float:
        return chainrule("score", run, parts["test"], "--per", "file")[0]["perplexity"]

    options = "--level word --weight-decay 0.1 --num-layers 2 --hidden-size 1024 --dropout 0.6"
    settings = [f"{options} --num-members 2"]
    given = [str(parts["train"]), "--validation", str(parts["valid"])]
    return Job("Penn Treebank, words, test perplexity", 68, settings, given, test)


def mnist(data: Path, folder: Path) -> Job:
    task = image(data, folder)
    settings = [
        "--model image-transformer --num-layers 8 --model-size 256 --num-heads 4 --window 784 --radius 5 "
        "--batch-size 64 --dropout 0.1",
        "--model gated-pixelcnn --layers 9 --channels 64 --batch-size 64 --dropout 0.3",
    ]
    return Job("binarized MNIST (fixed), test nats", 79.3, settings, task.train, task.test)


def cifar(data: Path, folder: Path) -> Job:
    pictures, test = write_pictures(data, folder)
    options = "--model pixelcnn++ --layers 3 --components 8 --dropout 0.5 --batch-size 32"
    settings = [f"{options} --channels {channels}" for channels in (64, 80)]
    figure = "CIFAR-10, first 3,600 pictures, test bits/dim"
    return Job(figure, 3.40, settings, [str(pictures)], lambda run: float(bits(run, test).mean()))


JOBS = {"shakespeare": shakespeare, "ptb": ptb, "mnist": mnist, "cifar": cifar}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("skipped: no CUDA device is available")
        return
    RUNS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            jobs = {name: JOBS[name](options.data, Path(folder)) for name in options.only}
        except FileNotFoundError as error:
            print(f"skipped, there is no {error.filename}: name the folder with --data")
            return
        trainings = {
            RUNS / f"gpu-{name}-{number}": start(job, setting, RUNS / f"gpu-{name}-{number}", options)
            for name, job in jobs.items()
            for number, setting in enumerate(job.settings)
        }
        for run, training in trainings.items():
            if training.wait():
                print(f"{run} failed; see {run}.log", flush=True)
        for name, job in jobs.items():
            measure(name, job, options.minutes, [run for run in trainings if (run / "timings.jsonl").exists()])


def start(job: Job, setting: str, run: Path, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Start a training that logs to a file next to the run."""
    length = ["--budget", f"{60 * options.minutes:g}s", "--seed", str(options.seed), "--device", options.device]
    arguments = ["train", *job.data, *setting.split(), *length, "--out", str(run), "--overwrite"]
    print("$ chainrule", *arguments, flush=True)
    with run.with_suffix(".log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-m", "chainrule", *arguments], stdout=log, stderr=log)


def measure(name: str, job: Job, minutes: float, runs: list[Path]) -> None:
    """Score the test part by the run that validates best; publish all of them."""
    rows = [facts(run, job.settings[int(run.name[-1])]) for run in runs if run.name.startswith(f"gpu-{name}-")]
    if rows:
        best = min(rows, key=lambda row: row["validation nats"])
        best[job.figure] = job.test(RUNS / best["run"])
        what = f"{minutes:g} minutes of a GPU: {job.figure}"
        publish(f"quality_gpu_{name}", rows, [claim(what, best[job.figure], "<=", job.target)])


def facts(run: Path, setting: str) -> dict[str, Any]:
    (info,) = chainrule("info", run)
    timed = json.loads((run / "timings.jsonl").read_text().splitlines()[-1])
    return {
        "run": run.name,
        "options": setting or "defaults",
        "parameters": info["parameters"],
        "minutes": timed["elapsed"] / 60,
        "elements/s": timed["training_elements_per_second"],
        "steps": info["step"],
        "validation nats": info["likelihood"]["nats_per_element"],
    }


if __name__ == "__main__":
    main()
