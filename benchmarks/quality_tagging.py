"""Taggers from scratch on UD English EWT and WNUT17: dev sentences choose the weights, test sentences decide nothing.

    python benchmarks/quality_tagging.py [words|entities] [--data FOLDER] [--seeds 0 1 2] [--pilot] [--set OPTION=VALUE]

words: universal parts of speech of UD English EWT. entities: the emerging entities of WNUT17, with a conditional random
field and with a softmax, all else equal. FOLDER holds `ud_english_ewt/` and `wnut17/` (default: ../shared/data, or the
environment variable CHAINRULE_DATA). Each model is trained and evaluated by the commands that a user would type, in
this process, so that its core minutes can be counted. --pilot stops before the test sentences are read.
"""

import argparse
import contextlib
import io
import json
import os
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from side_by_side import claim, publish

from chainrule_app.cli.main import main as chainrule

FILES = {
    "words": ("ud_english_ewt/en_ewt-ud-train.conllu.gz", "ud_english_ewt/en_ewt-ud-dev.conllu.gz",
              "ud_english_ewt/en_ewt-ud-test.conllu.gz"),
    "entities": ("wnut17/wnut17train.conll", "wnut17/emerging.dev.conll", "wnut17/emerging.test.annotated"),
}  # fmt: skip
# Chosen on the dev sentences.
OPTIONS: dict[str, dict[str, Any]] = {
    "words": {"dropout": 0.4, "learning-rate": 4e-3, "weight-decay": 0.01, "epochs": 5, "validate-every": 392},
    "entities": {
        "dropout": 0.5,
        "learning-rate": 4e-3,
        "weight-decay": 0.01,
        "epochs": 8,
        "character-encoder": "affixes",
        "word-dropout": 0.25,
    },
}
HEADS = {"words": ("softmax",), "entities": ("softmax", "crf")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=FILES, nargs="?", help="both by default")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--heads", nargs="+", default=None)
    parser.add_argument("--pilot", action="store_true", help="train and compare on the dev sentences alone")
    parser.add_argument("--set", nargs="*", default=[], metavar="OPTION=VALUE", help="of `chainrule train`")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for task in [given.task] if given.task else FILES:
        files = [given.data / name for name in FILES[task]]
        if missing := [path for path in files if not path.exists()]:
            print(f"skipped, there is no {missing[0]}: name the folder with --data")
            continue
        options = OPTIONS[task] | dict(item.split("=") for item in given.set)
        figures = []
        for seed in given.seeds:
            for head in given.heads or HEADS[task]:
                figures.append(measure(files, options | {"head": head}, seed, pilot=given.pilot))
            if not given.pilot:  # after every seed: what is measured is not lost if the rest is cut short
                publish(f"quality_tagging_{task}", figures, claims(task, figures))


def claims(task: str, figures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What had to be reached, by the means over the seeds."""
    seeds = {row["seed"] for row in figures}
    over = f"mean of {len(seeds)} seeds" if len(seeds) > 1 else f"seed {min(seeds)}"
    if task == "words":
        accuracy = statistics.mean(row["test accuracy %"] for row in figures)
        return [claim(f"UD English EWT, universal tags, test accuracy, {over}", accuracy, ">=", 93.5, " %")]
    f1 = {
        head: statistics.mean(row["test F1 %"] for row in figures if row["head"] == head)
        for head in {row["head"] for row in figures}
    }
    if len(f1) < 2:
        return []
    what = f"WNUT17, test entity F1, CRF above softmax, {over}"
    return [claim(what, f1["crf"], ">=", round(f1["softmax"], 2), " %")]


def measure(files: list[Path], options: dict[str, Any], seed: int, *, pilot: bool) -> dict[str, Any]:
    """Train and evaluate one tagger; the row of figures."""
    train, dev, test = map(str, files)
    written = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    with TemporaryDirectory() as folder:
        run = f"{folder}/run"
        began = time.process_time()
        command = ["train", train, "--task", "tag", "--validation", dev, "--out", run, "--seed", str(seed), "--json"]
        best = said([*command, *written])
        minutes = (time.process_time() - began) / 60
        row: dict[str, Any] = {
            "head": options["head"],
            "seed": seed,
            "parameters": json.loads(text_of(["info", run, "--json"]))["parameters"],
            "options": ", ".join(f"{name} {value}" for name, value in options.items() if name != "head"),
            "core minutes": minutes,
        }
        name = "F1" if "entity_f1" in best else "accuracy"
        row[f"dev {name} %"] = 100 * best["entity_f1" if name == "F1" else "accuracy"]
        print(json.dumps(row), flush=True)
        if pilot:
            return row
        scores = said(["evaluate", run, test, "--json"])
        row[f"test {name} %"] = 100 * scores["f1" if name == "F1" else "accuracy"]
        if name == "accuracy":
            row["test accuracy of unknown words %"] = 100 * scores["unknown_accuracy"]
        row["test nats a word"] = scores["nats_per_word"]
        print(json.dumps(row), flush=True)
    return row


def said(command: list[str]) -> dict[str, Any]:
    """The JSON object that a command prints."""
    answer: dict[str, Any] = json.loads(text_of(command))
    return answer


def text_of(command: list[str]) -> str:
    """What a command prints on standard output."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        status = chainrule(command)
    if status:
        raise SystemExit(f"chainrule {' '.join(command)}: exit status {status}")
    return text.getvalue()


if __name__ == "__main__":
    main()
