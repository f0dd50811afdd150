"""PixelCNN++ on a part of CIFAR-10, scored once on pictures that decided nothing; and 10,000 steps without a NaN.

    python benchmarks/quality_cifar.py [--data FOLDER] [--seed 0] [--core-minutes 20]
    python benchmarks/quality_cifar.py --stability float32
    python benchmarks/quality_cifar.py --stability bfloat16

FOLDER holds `cifar10_subset/cifar10_subset.npz`, the first 4,000 training and the first 1,000 test pictures (default:
../shared/data, or the environment variable CHAINRULE_DATA). The last 400 of the 4,000 validate; each of the others is
mirrored in half of its turns. Figures are bits per dimension, with which those of models that saw all 50,000 pictures
cannot be compared. Time is counted in minutes of processor cores, by which a busy machine gives the same run as an idle
one. Training is in bfloat16, scoring in float32. The weights of the best validation score the test pictures once.

With --stability a small model takes 10,000 steps of two pictures each, and every loss and every gradient is looked at.
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

from chainrule.models import PixelCNNPP
from chainrule.training import learning_rate, make_optimiser

FILE = "cifar10_subset/cifar10_subset.npz"
SHAPE, VALID = (3, 32, 32), 400
BITS = math.log(2) * math.prod(SHAPE)  # nats of a picture in a bit per dimension
WEIGHT_DECAY, WARMUP, CLIP = 0.01, 0.05, 1.0
STABILITY_STEPS = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--peak", type=float, default=3e-3, help="learning rate")
    parser.add_argument("--core-minutes", type=float, default=20.0)
    parser.add_argument("--pilot", action="store_true", help="leave the test pictures alone, and write nothing")
    parser.add_argument("--stability", choices=["float32", "bfloat16"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = options.data / FILE
    if not path.exists():
        print(f"CIFAR-10 subset: skipped, there is no {path}: name the folder with --data")
        return
    with np.load(path) as pictures:
        train, test = (torch.from_numpy(pictures[part]).movedim(3, 1).contiguous() for part in ("x_train", "x_test"))
    if options.stability:
        row = stability(train, options)
        claims = [claim(f"PixelCNN++, {row['numbers']}, steps without NaN", row["finite steps"], ">=", STABILITY_STEPS)]
        publish(f"quality_cifar_stability_{options.stability}", [row], claims)
        return
    row = measure(train, test, options)
    if options.pilot:
        print(row)
    else:
        claims = [claim("PixelCNN++, CIFAR-10, first 3,600 pictures: test bits/dim", row["test bits/dim"], "<=", 3.4)]
        publish("quality_cifar", [row], claims)


def measure(train: Tensor, test: Tensor, options: argparse.Namespace) -> dict[str, Any]:
    """Train, score the test pictures once; the row of figures."""
    torch.manual_seed(options.seed)
    model = PixelCNNPP(SHAPE, channels=options.channels, layers=options.layers, dropout=options.dropout)
    train, valid = train[:-VALID], train[-VALID:]
    began = time.process_time()
    epoch = fit(model, train, valid, options)
    row = {
        "set": "CIFAR-10, first 4,000 + 1,000",
        "model": "PixelCNN++",
        "channels": options.channels,
        "layers": options.layers,
        "dropout": options.dropout,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "best epoch": epoch,
        "seed": options.seed,
        "threads": torch.get_num_threads(),
        "core minutes": (time.process_time() - began) / 60,
        "valid bits/dim": float(bits(model, valid).mean()),
    }
    if options.pilot:
        return row
    terms = bits(model, test)
    return {**row, "test bits/dim": float(terms.mean()), "± 95%": 1.96 * float(terms.std()) / len(terms) ** 0.5}


def fit(model: PixelCNNPP, train: Tensor, valid: Tensor, options: argparse.Namespace) -> float:
    """Train in bfloat16 for so many core minutes; ends with the weights of the best validation, its epoch."""
    optimiser = make_optimiser(model, options.peak, WEIGHT_DECAY)
    generator = torch.Generator().manual_seed(options.seed)
    began, best, best_epoch, step, spent = time.process_time(), math.inf, 0.0, 0, 0.0
    kept = copy.deepcopy(model.state_dict())
    steps = len(train) // options.batch
    while spent < 1:
        for rows in torch.randperm(len(train), generator=generator).split(options.batch):
            spent = (time.process_time() - began) / (60 * options.core_minutes)
            rate = learning_rate(min(spent, 1.0), options.peak, WARMUP)
            descend(model, optimiser, mirrored(train[rows], generator), rate, torch.bfloat16)
            step += 1
            if step % steps and spent < 1:
                continue
            # The last validation reads all pictures; those on the way, a part, to spend the time on training.
            mean = float(bits(model, valid if spent >= 1 else valid[:100]).mean())
            if mean < best or spent >= 1:
                best, best_epoch, kept = mean, step / steps, copy.deepcopy(model.state_dict())
            core = (time.process_time() - began) / 60
            print(f"epoch {step / steps:.1f}: valid {mean:.4f} bits/dim, {core:.1f} core minutes", flush=True)
            if spent >= 1:
                break
    model.load_state_dict(kept)
    return best_epoch


def stability(train: Tensor, options: argparse.Namespace) -> dict[str, Any]:
    """So many steps of a small model, and how many of them had finite losses and gradients."""
    torch.manual_seed(options.seed)
    model = PixelCNNPP(SHAPE, channels=24, layers=1)
    optimiser = make_optimiser(model, options.peak, WEIGHT_DECAY)
    generator = torch.Generator().manual_seed(options.seed)
    numbers = getattr(torch, options.stability)
    began, finite, losses, largest = time.process_time(), 0, [], 0.0
    for step in range(STABILITY_STEPS):
        rows = torch.randint(len(train), (2,), generator=generator)
        rate = learning_rate((step + 1) / STABILITY_STEPS, options.peak, WARMUP)
        loss, norm = descend(model, optimiser, mirrored(train[rows], generator), rate, numbers)
        finite += math.isfinite(loss) and math.isfinite(norm)
        losses.append(loss)
        largest = max(largest, norm)
        if step % 500 == 499:
            print(f"step {step + 1}: {sum(losses[-500:]) / 500:.4f} bits/dim, {finite} finite", flush=True)
    return {
        "model": "PixelCNN++",
        "numbers": options.stability,
        "channels": 24,
        "layers": 1,
        "dropout": model.dropout,
        "steps": STABILITY_STEPS,
        "finite steps": finite,
        "largest gradient norm": largest,
        "first 500 steps, bits/dim": sum(losses[:500]) / 500,
        "last 500 steps, bits/dim": sum(losses[-500:]) / 500,
        "seed": options.seed,
        "core minutes": (time.process_time() - began) / 60,
    }


def mirrored(x: Tensor, generator: torch.Generator) -> Tensor:
    """Half of the pictures from right to left."""
    turned = torch.rand(len(x), 1, 1, 1, generator=generator) < 0.5
    return torch.where(turned, x.flip(3), x)


def descend(
    model: PixelCNNPP, optimiser: torch.optim.Optimizer, x: Tensor, rate: float, numbers: torch.dtype
) -> tuple[float, float]:
    """One step; the loss in bits per dimension and the norm of its gradient before it is clipped."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    with torch.autocast("cpu", torch.bfloat16, enabled=numbers == torch.bfloat16):
        loss = -model.log_prob(x).mean() / BITS
    optimiser.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimiser.step()
    return float(loss.detach()), float(norm)


@torch.no_grad()
def bits(model: PixelCNNPP, x: Tensor) -> Tensor:
    """(N,) bits per dimension, in float32."""
    model.eval()
    terms = torch.cat([-model.log_prob(part) / BITS for part in x.split(50)])
    model.train()
    return terms


if __name__ == "__main__":
    main()
