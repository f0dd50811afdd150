"""Classifiers from scratch: sentiment of sentences, and spoken digits; each test set scored once, at the end.

    python benchmarks/quality_classification.py [--only sst2] [--data FOLDER] [--seeds 0 1 2] [--model transformer]

FOLDER holds `sst2/{train,dev,test}.tsv` and `fsdd/{train_5-19,test_0-4}.tar.gz` (default: ../shared/data, or the
environment variable CHAINRULE_DATA). The figure is the mean over the seeds, each a model of its own. No pretrained
vectors, no phrases: sentences of the training part alone. Options were chosen on SST-2's development part, and on the
repetitions 5 and 6 of the spoken digits, which are not trained on; both also choose the weights that are kept.
`--model transformer` scores an encoder with attention on SST-2, which has no target: it is reported beside the other.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from side_by_side import claim, publish

from chainrule_app.cli.main import main as chainrule

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

TARGETS = {"sst2": 81.0, "fsdd": 95.0}
NAMES = {"sst2": "SST-2 sentences, test accuracy", "fsdd": "FSDD spoken digits, official test accuracy"}
SST2 = {"epochs": 2, "hidden-size": 100, "pooling": "attention+mean+max", "symbol-dropout": 0.4}
SST2_TRANSFORMER = {"model": "transformer", "epochs": 3, "dropout": 0.3, "symbol-dropout": 0.4}
DIGIT_STEPS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TARGETS)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--model", choices=["transformer"])
    options = parser.parse_args()
    if options.model:
        options.only = "sst2"
    for task in [options.only] if options.only else TARGETS:
        if not (options.data / task).is_dir():
            print(f"{task}: skipped, there is no {options.data / task}: name the folder with --data")
            continue
        rows = []
        for seed in options.seeds:
            began = time.process_time()
            settings = SST2_TRANSFORMER if options.model else SST2
            folder = options.data / task
            figures = sentiment(folder, seed, settings) if task == "sst2" else digits(folder, seed)
            minutes = (time.process_time() - began) / 60
            rows.append({"set": task, "seed": seed, **figures, "core minutes": minutes})
            print(rows[-1], flush=True)
        mean = statistics.mean(row["test %"] for row in rows)
        if options.model:
            publish(f"quality_classification_{task}_{options.model}", rows, [])
            continue
        publish(
            f"quality_classification_{task}", rows,
            [claim(f"{NAMES[task]}, mean of {len(rows)} seeds", mean, ">=", TARGETS[task], "%")],
        )  # fmt: skip


def sentiment(data: Path, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train and score by the command line, as a user does."""
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        given = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
        arguments = ["train", data / "train.tsv", "--task", "classify", "--validation", data / "dev.tsv", "--out", run]
        summary = said([*arguments, *given, "--seed", seed, "--json"])
        test = said(["evaluate", run, data / "test.tsv", "--json"])
    return {
        "dev %": 100 * summary["accuracy"],
        "test %": 100 * test["accuracy"],
        "test nats": test["nats_per_text"],
        "calibration error %": 100 * test["calibration_error"],
    }


def said(arguments: list[Any]) -> dict[str, Any]:
    """The JSON object that a command prints."""
    import contextlib
    import io

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = chainrule([str(argument) for argument in arguments])
    if status:
        raise SystemExit(status)
    return json.loads(printed.getvalue())


def digits(data: Path, seed: int) -> dict[str, Any]:
    """Train by the functions of the example, on the repetitions from 7 on."""
    import spoken_digits

    learnt, test = (spoken_digits.read(data / f"{part}.tar.gz") for part in ("train_5-19", "test_0-4"))
    valid = [recording for recording in learnt if recording.index in (5, 6)]
    learnt = [recording for recording in learnt if recording.index not in (5, 6)]
    model, frames = spoken_digits.fit(learnt, valid, DIGIT_STEPS, seed)

    def accuracy(recordings: list[spoken_digits.Recording]) -> float:
        answers = torch.tensor(spoken_digits.classify(model, frames, recordings))
        return 100 * float((answers == torch.tensor([recording.digit for recording in recordings])).double().mean())

    return {"steps": DIGIT_STEPS, "valid %": accuracy(valid), "test %": accuracy(test)}


if __name__ == "__main__":
    main()
