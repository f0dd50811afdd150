"""A Transformer over pixels on binarized MNIST, trained by the command line and scored once.

    python benchmarks/quality_image_transformer.py [--data FOLDER] [--minutes 90] [--seed 0] [--run RUN]

FOLDER holds `binarized_mnist/binarized_mnist.npz` with train, valid and test rows (default: ../shared/data, or the
environment variable CHAINRULE_DATA): the fixed binarisation of Larochelle and Murray. The sizes were chosen on the
valid rows in runs of four minutes (LOG.md). The weights of the best validation score the test rows once. RUN keeps the
run; where it is, it is only scored. Minutes are counted once for each thread.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

from peer_tasks import chainrule, image
from side_by_side import claim, publish

SETTINGS = {
    "model-size": 128, "num-layers": 4, "num-heads": 2, "window": 84, "radius": 5,
    "optimiser": "muon", "learning-rate": 0.004,
}  # fmt: skip
TARGET = 79.3  # test nats; Diagonal BiLSTM in the PixelRNN paper: 79.20
MOST_CORE_MINUTES = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=Path)
    options = parser.parse_args()
    source = options.data / "binarized_mnist" / "binarized_mnist.npz"
    if not source.exists():
        print(f"binarized MNIST: skipped, there is no {source}: name the folder with --data")
        return
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        task, run = image(options.data, folder), options.run or folder / "run"
        if not run.exists():
            settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
            length = ["--budget", f"{60 * options.minutes:g}s", "--seed", str(options.seed)]
            chainrule("train", source, "--model", "image-transformer", *settings, *length, "--out", run)
        (info,) = chainrule("info", run)
        threads = json.loads((run / "config.json").read_text())["computation"]["threads"]
        row = {
            "set": "binarized MNIST (fixed)",
            "model": "image-transformer",
            "parameters": info["parameters"],
            "seed": info["training"]["seed"],
            "steps": info["step"],
            "core minutes": info["training"]["budget"] / 60 * threads,
            "test nats": task.test(run),
        }
    publish(
        "quality_image_transformer",
        [row],
        [
            claim("image-transformer, binarized MNIST (fixed), test nats", row["test nats"], "<=", TARGET),
            claim("the same, core minutes", row["core minutes"], "<=", MOST_CORE_MINUTES),
        ],
    )


if __name__ == "__main__":
    main()
