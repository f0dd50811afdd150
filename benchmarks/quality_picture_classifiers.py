"""Classifiers of pictures from scratch: MNIST in ten minutes, and CIFAR-10 when pictures are few.

    python benchmarks/quality_picture_classifiers.py [--only mnist|few] [--data FOLDER] [--minutes 10] [--seeds 0 1 2]

FOLDER holds `mnist/*-ubyte.gz` and `cifar10_subset/cifar10_subset.npz` (default: ../shared/data, or the environment
variable CHAINRULE_DATA). Models are trained and scored by the command line, as a user does. A tenth of the training
pictures is held out and chooses the weights that are kept; the test pictures are scored once, at the end.

MNIST is one run of each model, with the defaults. The part of CIFAR-10 is 250, 1,000 or all 4,000 of its training
pictures, drawn from the seed, for four models of about 0.2 million parameters; all have the same pictures and minutes,
the defaults of training, and `--flip`.

`--minutes` are those of a run: 10 for MNIST and 1 for the part of CIFAR-10 where nothing is said. A row is written as
soon as it is measured, and is not measured again when the script is started again; other minutes are other rows, which
take the place of all that were there. Remove the file of results where models or defaults have changed.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from quality_classification import said
from side_by_side import claim, machine, publish, result_path

MNIST = {"cnn": 99.4, "vit": 98.5}  # test accuracy in %, with the defaults
# Options that give each model about 0.2 million parameters for 32×32 pixels of three channels. Swin has the patches of
# ViT, 4×4 pixels: of its usual ones, 2×2, there are four times as many, and a step takes four times as long.
EQUAL = {
    "cnn": {"channels": 26},
    "swin": {"model-size": 40, "num-heads": 2, "patch-size": 4},
    "vit": {"model-size": 64, "num-layers": 4},
}
PICTURES = (250, 1000, 4000)
MINUTES = {"mnist": 10.0, "few": 1.0}
COLOURS = {"cnn": "#1b1d21", "swin": "#0072b2", "vit": "#d55e00"}
FIGURE = Path(__file__).parent.parent / "docs" / "_static" / "few_pictures.png"

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MINUTES)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--minutes", type=float, help="of each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the part of CIFAR-10")
    options = parser.parse_args()
    for part in [options.only] if options.only else MINUTES:
        {"mnist": mnist, "few": few}[part](options.data, options.minutes or MINUTES[part], options.seeds)


def mnist(data: Path, minutes: float, seeds: list[int]) -> None:
    """Each model once, with the defaults and the first seed."""
    home = data / "mnist"
    train, test = (home / f"{part}-images-idx3-ubyte.gz" for part in ("train", "t10k"))
    if not train.exists():
        print(f"MNIST: skipped, there is no {train}: name the folder with --data")
        return
    name = "quality_picture_classifiers_mnist"
    rows = measured(name, minutes)
    for model in MNIST:
        wanted: Row = {"model": model, "seed": seeds[0], "minutes": minutes}
        if not holds(rows, wanted):
            rows.append(wanted | figures(train, test, model, minutes, seeds[0], {}))
            publish(name, rows, mnist_claims(rows))
    publish(name, rows, mnist_claims(rows))


def mnist_claims(rows: list[Row]) -> list[Row]:
    """The test accuracy of each model, of its first row."""
    found = {row["model"]: row for row in reversed(rows)}
    return [
        claim(f"MNIST in {row['minutes']:g} minutes, {model}: test accuracy", row["test %"], ">=", MNIST[model], "%")
        for model, row in found.items()
    ]


def few(data: Path, minutes: float, seeds: list[int]) -> None:
    """Each model on few pictures, fewer and more, once for each seed."""
    path = data / "cifar10_subset" / "cifar10_subset.npz"
    if not path.exists():
        print(f"CIFAR-10 subset: skipped, there is no {path}: name the folder with --data")
        return
    name = "quality_picture_classifiers_few"
    rows = measured(name, minutes)
    with np.load(path) as found, tempfile.TemporaryDirectory() as directory:
        test = Path(directory) / "test.npz"
        np.savez(test, images=found["x_test"], labels=found["y_test"])
        for seed in seeds:
            order = np.random.default_rng(seed).permutation(len(found["x_train"]))
            for pictures in PICTURES:
                train, chosen = Path(directory) / f"train{pictures}-{seed}.npz", order[:pictures]
                np.savez(train, images=found["x_train"][chosen], labels=found["y_train"][chosen])
                for model, sizes in EQUAL.items():
                    wanted: Row = {"pictures": pictures, "model": model, "seed": seed, "minutes": minutes}
                    if not holds(rows, wanted):
                        rows.append(wanted | figures(train, test, model, minutes, seed, sizes | {"flip": None}))
                        publish(name, rows, few_claims(rows))
    publish(name, rows, few_claims(rows))
    draw(rows)


def few_claims(rows: list[Row]) -> list[Row]:
    """By how much Swin, which looks at neighbours first, is above ViT, which does not."""
    return [
        claim(
            f"CIFAR-10, {pictures:,} training pictures: test accuracy of Swin minus ViT, mean over seeds",
            statistics.mean(swin) - statistics.mean(vit), ">=", 0, " points",
        )
        for pictures in PICTURES
        if (swin := accuracies(rows, "swin", pictures)) and (vit := accuracies(rows, "vit", pictures))
    ]  # fmt: skip


def accuracies(rows: list[Row], model: str, pictures: int) -> list[float]:
    """Test accuracies in % of a model trained on so many pictures, one for each seed."""
    return [row["test %"] for row in rows if row["model"] == model and row["pictures"] == pictures]


def measured(name: str, minutes: float) -> list[Row]:
    """The rows that are there: of runs of so many minutes on such a processor."""
    path = result_path(name)
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    same = found["machine"]["cpu"] == machine()["cpu"]
    return [row for row in found["rows"] if same and row["minutes"] == minutes]


def holds(rows: list[Row], wanted: Row) -> bool:
    """Whether one of the rows is the one that is wanted."""
    return any(wanted.items() <= row.items() for row in rows)


def figures(train: Path, test: Path, model: str, minutes: float, seed: int, options: dict[str, Any]) -> Row:
    """Train and score by the command line; options without a value are switches."""
    with tempfile.TemporaryDirectory() as directory:
        run, began = Path(directory) / "run", time.process_time()
        asked = [part for name, value in options.items() for part in (f"--{name}", value) if part is not None]
        arguments = ["train", train, "--task", "classify", "--model", model, "--budget", f"{60 * minutes:g}s", *asked]
        summary = said([*arguments, "--seed", seed, "--out", run, "--json"])
        seconds = time.process_time() - began
        found = said(["evaluate", run, test, "--json"])
        info = said(["info", run, "--json"])
    row = {
        "parameters": info["parameters"],
        "steps": summary["steps"],
        "held-out %": 100 * summary["accuracy"],
        "test %": 100 * found["accuracy"],
        "test nats": found["nats_per_image"],
        "core minutes": seconds / 60,
    }
    print(f"{model}, {train.name}, seed {seed}: {row}", flush=True)
    return row


def draw(rows: list[Row]) -> None:
    """Test accuracy by number of training pictures: a line through the means of each model, a dot for each seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    ends: dict[str, float] = {}
    for model, colour in COLOURS.items():
        found = {pictures: accuracies(rows, model, pictures) for pictures in PICTURES}
        known = [pictures for pictures in PICTURES if found[pictures]]
        means = [statistics.mean(found[pictures]) for pictures in known]
        axes.plot(known, means, color=colour, linewidth=1.6, label=model)
        for pictures in known:
            axes.plot([pictures] * len(found[pictures]), found[pictures], "o", color=colour, markersize=3)
        ends[model] = means[-1]
    low, high = axes.get_ylim()
    height = -high
    for model, end in sorted(ends.items(), key=lambda item: item[1]):  # names one above the other where lines end close
        height = max(end, height + 0.05 * (high - low))
        place = (max(PICTURES), height)
        axes.annotate(model, place, (8, -3), textcoords="offset points", color=COLOURS[model])
    axes.set_xticks(PICTURES, [f"{pictures:,}" for pictures in PICTURES])
    axes.minorticks_off()
    axes.set_xlabel("training pictures")
    axes.set_ylabel("test accuracy, %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#d8dade", linewidth=0.6)
    figure.savefig(FIGURE)


if __name__ == "__main__":
    main()
