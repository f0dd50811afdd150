"""What `peers.py` compares: for each task the data, the plain script, the job of `chainrule train`, and its test."""

import csv
import gzip
import json
import math
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from processor_clock import launched


@dataclass(frozen=True)
class Task:
    """One comparison.

    Attributes:
        title: the data, in words.
        figure: the test figure's name and unit.
        lower: whether a lower figure is better.
        script: of the peer.
        peer: its arguments, for each variant; the best variant counts.
        train: arguments of `chainrule train`: the data, nothing of the model.
        test: from a run directory to the test figure of its model.
        element: the unit in which training speed is counted.
    """

    title: str
    figure: str
    lower: bool
    script: str
    peer: list[list[str]]
    train: list[str]
    test: Callable[[Path], float]
    element: str


def chainrule(*arguments: str | Path, factor: float | None = None) -> list[dict[str, Any]]:
    """Run one verb; progress goes to the screen, its JSON lines come back."""
    command = launched(["-m", "chainrule", *map(str, arguments), "--json"], factor)
    print("$ chainrule", *map(str, arguments), flush=True)
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def text(data: Path, folder: Path) -> Task:
    """Tiny Shakespeare: the last 10% is the test part; of the rest, chainrule holds out its own tail."""
    source = data / "tinyshakespeare" / "input.txt"
    sizes = [["--hidden", size] for size in ("256", "384", "512")]
    return characters("tiny Shakespeare", source, 0.1, sizes, folder)


def names(data: Path, folder: Path) -> Task:
    """The different capitalised names of UD English EWT, one a line, in random order: the last 25% is the test part.

    A plain script overfits so short a text, so the peer holds out as much as chainrule, to choose its weights.
    """
    with gzip.open(data / "ud_english_ewt" / "en_ewt-ud-train.conllu.gz", "rt", encoding="utf-8") as file:
        cells = [line.split("\t") for line in file if line[:1].isdigit()]
    found = sorted({word for _, word, _, tag, *_ in cells if tag == "PROPN" and word.isalpha() and word.istitle()})
    Random(0).shuffle(found)
    source = folder / "names.txt"
    source.write_bytes("".join(f"{name}\n" for name in found).encode())
    held_out = ["--test-fraction", "0.25", "--validation-fraction", "0.05"]
    settings = [["--hidden", size, "--dropout", dropout, *held_out] for size, dropout in NAMES_SETTINGS]
    return characters(f"{len(found):,} names", source, 0.25, settings, folder)


NAMES_SETTINGS = (("64", "0.2"), ("128", "0.5"), ("256", "0.5"))  # units and dropout of the peer


def characters(title: str, source: Path, test_fraction: float, settings: list[list[str]], folder: Path) -> Task:
    """A text by characters, whose end is the test part; the best of the peer's settings counts."""
    content = source.read_text(encoding="utf-8")
    cut = int((1 - test_fraction) * len(content))
    for part, passage in (("train", content[:cut]), ("test", content[cut:])):
        (folder / f"{part}.txt").write_bytes(passage.encode())

    def test(run: Path) -> float:
        (scored,) = chainrule("score", run, folder / "test.txt", "--per", "file")
        return scored["nats"] / scored["elements"]

    peer = [[str(source), *setting] for setting in settings]
    return Task(title, "nats/char", True, "plain_lstm.py", peer, [str(folder / "train.txt")], test, "characters")


def transformer(data: Path, folder: Path) -> Task:
    """Tiny Shakespeare again, both with attention."""
    lstm = text(data, folder)
    source = lstm.peer[0][0]
    settings = ([], ["--context", "128", "--batch", "16"], ["--size", "192"])
    peer = [[source, *setting] for setting in settings]
    train = [*lstm.train, "--model", "transformer"]
    return Task(lstm.title, lstm.figure, True, "plain_transformer.py", peer, train, lstm.test, lstm.element)


def tag(data: Path, folder: Path) -> Task:
    """Universal tags of UD English EWT; the dev sentences choose chainrule's weights."""
    files = [str(data / "ud_english_ewt" / f"en_ewt-ud-{part}.conllu.gz") for part in ("train", "dev", "test")]
    train = [files[0], "--task", "tag", "--validation", files[1]]

    def test(run: Path) -> float:
        return 100 * chainrule("evaluate", run, files[2])[0]["accuracy"]

    return Task("UD English EWT", "accuracy %", False, "plain_tagger.py", [files], train, test, "words")


def image(data: Path, folder: Path) -> Task:
    """Binarized MNIST, all 10,000 test pictures."""
    source = data / "binarized_mnist" / "binarized_mnist.npz"
    with np.load(source) as rows:
        np.save(folder / "test.npy", rows["test"].reshape(-1, 28, 28))

    def test(run: Path) -> float:
        pictures = chainrule("score", run, folder / "test.npy")
        return math.fsum(picture["nats"] for picture in pictures) / len(pictures)

    peer = [[str(source)]]
    return Task("binarized MNIST", "nats/picture", True, "plain_pixelcnn.py", peer, [str(source)], test, "pixels")


def table(name: str, dropout: float) -> Callable[[Path, Path], Task]:
    """A binary table of MADE's paper, as comma-separated values for chainrule.

    The dropout is the peer's, chosen for it on the validation rows; chainrule keeps its default.
    """

    def task(data: Path, folder: Path) -> Task:
        source = data / "uci_binary" / f"{name}.npz"
        with np.load(source) as rows:
            for part in ("train", "valid", "test"):
                header = ",".join(f"x{column}" for column in range(rows[part].shape[1]))
                np.savetxt(folder / f"{part}.csv", rows[part], "%d", delimiter=",", header=header, comments="")

        def test(run: Path) -> float:
            scored = chainrule("score", run, folder / "test.csv")
            return math.fsum(row["nats"] for row in scored) / len(scored)

        train = [str(folder / "train.csv"), "--validation", str(folder / "valid.csv")]
        peer = [[str(source), "--dropout", str(dropout)]]
        return Task(f"binary table {name}", "nats/row", True, "plain_made.py", peer, train, test, "cells")

    return task


def sound(data: Path, folder: Path) -> Task:
    """Spoken digits as 256 μ-law levels, the digit not told."""
    train, held_out = (str(data / "fsdd" / f"{name}.tar.gz") for name in ("train_5-19", "test_0-4"))

    def test(run: Path) -> float:
        scored = chainrule("score", run, held_out)
        nats, samples = (math.fsum(file[name] for file in scored) for name in ("nats", "samples"))
        return nats / samples / math.log(2)

    peer = [[train, held_out]]
    return Task("spoken digits", "bits/sample", True, "plain_wavenet.py", peer, [train], test, "samples")


def classify(data: Path, folder: Path) -> Task:
    """Sentences of SST-2, no phrases and no pretrained vectors; the dev sentences choose the weights of both."""
    files = [str(data / "sst2" / f"{part}.tsv") for part in ("train", "dev", "test")]
    train = [files[0], "--task", "classify", "--validation", files[1]]

    def test(run: Path) -> float:
        return 100 * chainrule("evaluate", run, files[2])[0]["accuracy"]

    return Task("SST-2", "accuracy %", False, "plain_classifier.py", [files], train, test, "sentences")


def translate(data: Path, folder: Path) -> Task:
    """Multi30k, German to English, lower-cased and tokenised; BLEU with tok:none, greedy search for both."""
    parts = [
        [str(data / "multi30k" / "tok" / f"{part}.lc.norm.tok.{side}.gz") for side in ("de", "en")]
        for part in ("train", "val", "test_2016_flickr")
    ]
    (train, target), (valid, valid_target), (source, reference) = parts
    job = ["--task", "translate", "--source", train, "--target", target]
    job += ["--validation", valid, "--validation-target", valid_target]

    def test(run: Path) -> float:
        search = ("--beam", "1", "--tokenize", "none")
        (scores,) = chainrule("evaluate", run, "--source", source, "--target", reference, *search)
        return scores["bleu"]

    peer = [[",".join(files) for files in parts]]
    return Task("Multi30k de-en", "BLEU, greedy", False, "plain_translator.py", peer, job, test, "words")


def forecast(
    name: str, horizon: int, season: int, parts: tuple[int, int, int], anchor: str = "last"
) -> Callable[[Path, Path], Task]:
    """Rolling origins of `quality_forecasting.py`: rows to train on, to choose on and to test on follow each other.

    The anchor is the peer's, chosen for it on the rows to choose on; chainrule keeps its default.
    """

    def task(data: Path, folder: Path) -> Task:
        source = data / "time_series" / name
        with gzip.open(source, "rt", newline="") as file:
            rows = list(csv.reader(file))
        header = [rows.pop(0)] if any(cell[:1].isalpha() for cell in rows[0]) else []
        known, every = sum(parts[:2]), sum(parts)
        for part, count in (("known", known), ("all", every)):
            with open(folder / f"{part}.csv", "w", newline="") as file:
                csv.writer(file).writerows([*header, *rows[:count]])
        columns = np.array([row[len(rows[0]) - SERIES[name] :] for row in rows[: parts[0]]], dtype=np.float64)
        units = columns.std(0)

        def test(run: Path) -> float:
            (found,) = chainrule("evaluate", run, folder / "all.csv", "--start", str(known + 1), "--paths", "100")
            scores = [row["crps"] for row in found["scores"] if row["forecast"] == "model"]
            return float((np.array(scores) / units).mean())

        train = [str(folder / "known.csv"), "--task", "forecast", "--target", "all", "--horizon", str(horizon)]
        train += ["--season", str(season), "--validation-fraction", str(parts[1] / known)]
        peer = [str(source), "--horizon", str(horizon), "--season", str(season), "--parts", ",".join(map(str, parts))]
        peer += ["--anchor", anchor]
        return Task(name.split(".")[0], "CRPS", True, "plain_forecaster.py", [peer], train, test, "values")

    return task


SERIES = {"exchange_rate.txt.gz": 8, "ETTh1.csv.gz": 7}
TASKS: dict[str, Callable[[Path, Path], Task]] = {
    "text": text,
    "names": names,
    "transformer": transformer,
    "tag": tag,
    "image": image,
    "table": table("dna", 0.5),
    "table-connect4": table("connect4", 0.1),
    "sound": sound,
    "classify": classify,
    "translate": translate,
    "forecast": forecast("exchange_rate.txt.gz", 30, 5, (5312, 759, 1517)),
    "forecast-loads": forecast("ETTh1.csv.gz", 24, 24, (8640, 2880, 2880), "season"),
}
