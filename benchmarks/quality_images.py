"""PixelCNN on binarized MNIST, scored once on pictures that decided nothing.

    python benchmarks/quality_images.py [--data FOLDER] [--seed 0] [--core-minutes 75]

FOLDER holds `binarized_mnist/binarized_mnist.npz` with train, valid and test rows (default: ../shared/data, or the
environment variable CHAINRULE_DATA): the fixed binarisation of Larochelle and Murray, the same 0s and 1s in each epoch.
Time is counted in minutes of processor cores, by which a busy machine gives the same run as an idle one. The
weights of the best validation score the test pictures once.
"""

import argparse
import copy
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from side_by_side import claim, publish
from torch import Tensor

from chainrule.models import PixelCNN
from chainrule.training import learning_rate, make_optimiser

FILE = "binarized_mnist/binarized_mnist.npz"
TARGET = 83.0  # test nats; PixelCNN in its paper: 81.30
PEAK, WEIGHT_DECAY, BATCH, WARMUP = 2.5e-3, 0.01, 16, 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--kernel-size", type=int, default=7)
    parser.add_argument("--core-minutes", type=float, default=75.0)
    options = parser.parse_args()
    path = options.data / FILE
    if not path.exists():
        print(f"binarized MNIST: skipped, there is no {path}: name the folder with --data")
        return
    with np.load(path) as rows:
        parts = {part: torch.from_numpy(rows[part]).view(-1, 1, 28, 28) for part in ("train", "valid", "test")}
    row = measure(parts, options)
    publish(
        "quality_images_mnist",
        [row],
        [claim("PixelCNN, binarized MNIST (fixed), test nats", row["test nats"], "<=", TARGET)],
    )


def measure(parts: dict[str, Tensor], options: argparse.Namespace) -> dict[str, Any]:
    """Train, score the test pictures once; the row of figures."""
    torch.manual_seed(options.seed)
    model = PixelCNN((1, 28, 28), 2, options.channels, options.layers, options.kernel_size)
    began = time.process_time()
    epoch = fit(model, parts["train"], parts["valid"], options.seed, 60 * options.core_minutes)
    minutes = (time.process_time() - began) / 60
    test = log_probs(model, parts["test"])
    return {
        "set": "binarized MNIST (fixed)",
        "model": "PixelCNN",
        "channels": options.channels,
        "layers": options.layers,
        "kernel": options.kernel_size,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "best epoch": epoch,
        "seed": options.seed,
        "threads": torch.get_num_threads(),
        "core minutes": minutes,
        "valid nats": -float(log_probs(model, parts["valid"]).mean()),
        "test nats": -float(test.mean()),
        "± 95%": 1.96 * float(test.std()) / len(test) ** 0.5,
    }


def fit(model: PixelCNN, train: Tensor, valid: Tensor, seed: int, seconds: float) -> float:
    """Train in bfloat16 for so many core seconds; ends with the weights of the best validation, its epoch."""
    optimiser = make_optimiser(model, PEAK, WEIGHT_DECAY)
    generator = torch.Generator().manual_seed(seed)
    began, best, best_epoch, step, spent = time.process_time(), math.inf, 0.0, 0, 0.0
    kept = copy.deepcopy(model.state_dict())
    every, steps = len(train) // BATCH // 2, len(train) // BATCH  # two validations an epoch
    while spent < 1:
        for rows in torch.randperm(len(train), generator=generator).split(BATCH):
            spent = (time.process_time() - began) / seconds
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(min(spent, 1.0), PEAK, WARMUP)
            with torch.autocast("cpu", torch.bfloat16):
                loss = -model.log_prob(train[rows]).mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimiser.step()
            step += 1
            if step % every and spent < 1:
                continue
            # The last validation reads all pictures; those on the way, a part, to spend the time on training.
            nats = -float(log_probs(model, valid if spent >= 1 else valid[:2000]).mean())
            if nats < best or spent >= 1:
                best, best_epoch, kept = nats, step / steps, copy.deepcopy(model.state_dict())
            core = (time.process_time() - began) / 60
            print(f"epoch {step / steps:.1f}: valid {nats:.3f} nats, {core:.1f} core minutes", flush=True)
            if spent >= 1:
                break
    model.load_state_dict(kept)
    return best_epoch


@torch.no_grad()
def log_probs(model: PixelCNN, x: Tensor) -> Tensor:
    """(N,) log-likelihoods, nats, in float32."""
    model.eval()
    terms = torch.cat([model.log_prob(part) for part in x.split(250)])
    model.train()
    return terms


if __name__ == "__main__":
    main()
