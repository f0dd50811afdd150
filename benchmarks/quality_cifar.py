"""PixelCNN++ on a part of CIFAR-10, scored once on pictures that decided nothing; and 10,000 steps without a NaN.

    python benchmarks/quality_cifar.py [--data FOLDER] [--seed 0] [--minutes 100] [--threads 2]
    python benchmarks/quality_cifar.py --stability float32
    python benchmarks/quality_cifar.py --stability bfloat16

FOLDER holds `cifar10_subset/cifar10_subset.npz`, the first 4,000 training and the first 1,000 test pictures (default:
../shared/data, or the environment variable CHAINRULE_DATA). The last 400 of the 4,000 validate; the others train, each
as it is and mirrored. Figures are in bits per dimension; published models saw all 50,000 training pictures, so theirs
are not comparable. The weights of the best validation score the test pictures once. An interrupted training is resumed.

With --stability a small model takes 10,000 steps of two pictures each, and every loss and every gradient is looked at.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peer_tasks import chainrule
from side_by_side import claim, publish
from torch import Tensor

from chainrule.models import PixelCNNPP
from chainrule.training import learning_rate, make_optimiser

FILE = "cifar10_subset/cifar10_subset.npz"
SHAPE, VALID = (3, 32, 32), 400
BITS = math.log(2) * math.prod(SHAPE)  # nats of a picture in a bit per dimension
RUN = Path("runs/benchmarks/cifar")
SETTING = "--model pixelcnn++ --channels 32 --layers 2 --dropout 0.05 --batch-size 8"
WEIGHT_DECAY, WARMUP, CLIP = 0.01, 0.05, 1.0
STABILITY_STEPS, STABILITY_RATE = 10_000, 3e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--stability", choices=["float32", "bfloat16"])
    options = parser.parse_args()
    torch.set_num_threads(1 if options.stability else options.threads)
    if not (options.data / FILE).exists():
        print(f"CIFAR-10 subset: skipped, there is no {options.data / FILE}: name the folder with --data")
        return
    if options.stability:
        row = stability(options)
        claims = [claim(f"PixelCNN++, {row['numbers']}, steps without NaN", row["finite steps"], ">=", STABILITY_STEPS)]
        publish(f"quality_cifar_stability_{options.stability}", [row], claims)
        return
    with tempfile.TemporaryDirectory() as folder:
        row = measure(*write_pictures(options.data, Path(folder)), options)
    claims = [claim("PixelCNN++, CIFAR-10, first 3,600 pictures: test bits/dim", row["test bits/dim"], "<=", 3.4)]
    publish("quality_cifar", [row], claims)


def write_pictures(data: Path, folder: Path) -> tuple[Path, Path]:
    """Write one file with the 3,600 pictures, their mirror images and the 400 that validate, and one for the test."""
    with np.load(data / FILE) as arrays:
        train, valid, test = arrays["x_train"][:-VALID], arrays["x_train"][-VALID:], arrays["x_test"]
    np.savez(folder / "cifar.npz", train=np.concatenate([train, train[:, :, ::-1]]), valid=valid)
    np.save(folder / "cifar-test.npy", test)
    return folder / "cifar.npz", folder / "cifar-test.npy"


def measure(pictures: Path, test: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train, score the test pictures once; the row of figures."""
    arguments = ["train", "--resume"] if RUN.exists() else ["train", str(pictures), *SETTING.split()]
    if not RUN.exists():
        arguments += ["--threads", str(options.threads), "--seed", str(options.seed)]
    arguments += ["--budget", f"{options.minutes}m", "--out", str(RUN)]
    print("$ chainrule", *arguments, flush=True)
    subprocess.run([sys.executable, "-m", "chainrule", *arguments], check=True)
    (info,) = chainrule("info", RUN)
    config = json.loads((RUN / "config.json").read_text())  # a resumed run keeps its own seed and threads
    terms = bits(RUN, test)
    return {
        "options": SETTING,
        "parameters": info["parameters"],
        "steps": info["step"],
        "minutes": options.minutes,
        "threads": config["computation"]["threads"],
        "seed": config["training"]["seed"],
        "valid bits/dim": info["likelihood"]["nats_per_element"] / math.log(2),
        "test bits/dim": float(terms.mean()),
        "± 95%": 1.96 * float(terms.std()) / len(terms) ** 0.5,
    }


def bits(run: Path, test: Path) -> Tensor:
    """Bits per dimension of each picture."""
    return torch.tensor([picture["nats"] for picture in chainrule("score", run, test)], dtype=torch.float64) / BITS


def stability(options: argparse.Namespace) -> dict[str, Any]:
    """So many steps of a small model, and how many of them had finite losses and gradients."""
    with np.load(options.data / FILE) as pictures:
        train = torch.from_numpy(pictures["x_train"]).movedim(3, 1).contiguous()
    torch.manual_seed(options.seed)
    model = PixelCNNPP(SHAPE, channels=24, layers=1)
    optimiser = make_optimiser(model, STABILITY_RATE, WEIGHT_DECAY)
    generator = torch.Generator().manual_seed(options.seed)
    numbers = getattr(torch, options.stability)
    began, finite, losses, largest = time.process_time(), 0, [], 0.0
    for step in range(STABILITY_STEPS):
        rows = torch.randint(len(train), (2,), generator=generator)
        rate = learning_rate((step + 1) / STABILITY_STEPS, STABILITY_RATE, WARMUP)
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


if __name__ == "__main__":
    main()
