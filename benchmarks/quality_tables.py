"""MADE on binary tables, scored once on rows that decided nothing.

    python benchmarks/quality_tables.py [--only dna] [--data FOLDER] [--seed 0]

FOLDER holds `uci_binary/{nltcs,adult,connect4,dna}.npz` and `binarized_mnist/binarized_mnist.npz` with train, valid and
test rows (default: ../shared/data, or the environment variable CHAINRULE_DATA). MNIST is the fixed binarisation of
Larochelle and Murray; it takes an hour of a core and is run only where it is named. Sizes, penalties, the orders and
the epoch were chosen on the validation rows; the weights of the best epoch score the test rows once.

Each batch is trained under another of the K masks (for pictures, of the K ways to read one line by line); validation
and test average the K members as probabilities. Half of the pictures trained on are moved by up to a pixel, but in the
last quarter of the training.
"""

import argparse
import copy
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from side_by_side import claim, publish
from torch import Tensor

from chainrule.models import MADE
from chainrule.training import learning_rate, make_optimiser

UCI = "uci_binary/{}.npz"
DEFAULTS: dict[str, Any] = {
    "hidden_sizes": [500],
    "backwards": False,  # visit the columns from the last to the first
    "direct": True,
    "dropout": 0.0,
    "num_masks": 1,  # members of the ensemble
    "raster_orders": 0,  # for pictures, in how many of them the members read; 0 for the columns' own order
    "learning_rate": 3e-3,
    "weight_decay": 0.0,
    "sparsity": 0.0,  # soft threshold of all weights at each step, in learning rates: an L1 penalty
    "moved": 0.0,  # share of each batch of pictures that is moved by up to a pixel, but in the last quarter of training
    "batch_size": 100,
    "bfloat16": False,  # products in bfloat16 while training; scores always in float32
    "epochs": 40,
    "core_minutes": math.inf,
}
JOBS: dict[str, dict[str, Any]] = {
    "nltcs": {"file": UCI, "target": 6.08, "weight_decay": 0.1, "epochs": 30},
    "adult": {
        "file": UCI,
        "target": 13.12,
        "backwards": True,
        "hidden_sizes": [1000],
        "dropout": 0.5,
        "sparsity": 0.1,
        "learning_rate": 1e-2,
        "epochs": 45,
    },
    "connect4": {"file": UCI, "target": 11.90, "weight_decay": 0.01},
    "dna": {
        "file": UCI,
        "target": 79.66,
        "dropout": 0.5,
        "sparsity": 0.25,
        "learning_rate": 1e-2,
        "epochs": 100,
    },
    "mnist": {
        "file": "binarized_mnist/binarized_mnist.npz",
        "target": 88.0,
        "hidden_sizes": [4000],
        "dropout": 0.3,
        "num_masks": 4,
        "raster_orders": 4,
        "learning_rate": 2e-3,
        "moved": 0.5,
        "bfloat16": True,
        "epochs": 1000,
        "core_minutes": 55,
    },
}
NAMED_ONLY = {"mnist"}
# Where a first choice was scored on the test rows before this one: benchmarks/LOG.md.
LOOKS = {"adult": " (second look at the test rows)"}


class Members:
    """One MADE under K sets of masks: log p = logsumexp_k log p_k − log K."""

    def __init__(self, made: MADE, count: int, generator: torch.Generator, orders: Sequence[Tensor]):
        self.made = made
        self.each = [made.resampled(generator, orders[number % len(orders)]) for number in range(count)]

    def train(self, mode: bool = True) -> None:
        for model in (self.made, *self.each):
            model.train(mode)

    def log_prob(self, x: Tensor) -> Tensor:
        """(N,) log-likelihoods, nats."""
        return torch.stack([member.log_prob(x) for member in self.each]).logsumexp(0) - math.log(len(self.each))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=JOBS, action="append")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.only or [name for name in JOBS if name not in NAMED_ONLY]:
        path = options.data / JOBS[name]["file"].format(name)
        if not path.exists():
            print(f"{name}: skipped, there is no {path}: name the folder with --data")
            continue
        with np.load(path) as rows:
            parts = {part: torch.from_numpy(rows[part]).float() for part in ("train", "valid", "test")}
        row = measure(name, parts, options.seed)
        target = JOBS[name]["target"]
        publish(
            f"quality_tables_{name}",
            [row],
            [claim(f"MADE, {name}, test nats{LOOKS.get(name, '')}", row["test nats"], "<=", target)],
        )


def measure(name: str, parts: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """Train, score the test rows once; the row of figures."""
    job = {**DEFAULTS, **JOBS[name]}
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    columns = parts["train"].shape[1]
    order = torch.arange(columns).flip(0) if job["backwards"] else None
    made = MADE(columns, job["hidden_sizes"], order, direct=job["direct"], dropout=job["dropout"])
    with torch.no_grad():  # independent columns, to begin with
        count = len(parts["train"])
        made.output.bias.copy_(((parts["train"].sum(0) + 0.5) / (count + 1)).logit())
    orders = MADE.raster_orders(28, 28)[: job["raster_orders"]] if job["raster_orders"] else [made.order]
    ensemble = Members(made, job["num_masks"], generator, orders)
    began = time.process_time()
    epoch = fit(ensemble, parts["train"], parts["valid"], job, generator)
    minutes = (time.process_time() - began) / 60
    test = log_probs(ensemble, parts["test"])
    return {
        "set": name,
        "hidden units": "+".join(map(str, job["hidden_sizes"])),
        "masks": job["num_masks"],
        "orders": orders_said(job),
        "dropout": job["dropout"],
        "L1": job["sparsity"],
        "moved": job["moved"],
        "weight decay": job["weight_decay"],
        "learning rate": job["learning_rate"],
        "best epoch": epoch,
        "seed": seed,
        "threads": torch.get_num_threads(),
        "core minutes": minutes,
        "valid nats": -float(log_probs(ensemble, parts["valid"]).mean()),
        "test nats": -float(test.mean()),
        "± 95%": 1.96 * float(test.std()) / len(test) ** 0.5,
    }


def fit(ensemble: Members, train: Tensor, valid: Tensor, job: dict[str, Any], generator: torch.Generator) -> int:
    """Train the shared weights, a batch under each member by turns; ends with those of the best epoch, its number."""
    optimiser = make_optimiser(ensemble.made, job["learning_rate"], job["weight_decay"])
    began, best, kept, best_epoch = time.process_time(), math.inf, {}, 0
    step, spent, steps = 0, 0.0, job["epochs"] * math.ceil(len(train) / job["batch_size"])
    ensemble.train()
    members = ensemble.each
    for epoch in range(1, job["epochs"] + 1):
        for rows in torch.randperm(len(train), generator=generator).split(job["batch_size"]):
            spent = max((step + 1) / steps, (time.process_time() - began) / 60 / job["core_minutes"])
            rate = learning_rate(min(spent, 1.0), job["learning_rate"], warmup=0.02)
            x = train[rows]
            if job["moved"] and spent < 0.75:
                x = moved(x, round(job["moved"] * len(x)), generator)
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=job["bfloat16"]):
                loss = -members[step % len(members)].log_prob(x).mean()
            loss.backward()
            optimiser.step()
            if job["sparsity"]:
                soften(ensemble, rate * job["sparsity"])
            step += 1
        nats = -float(log_probs(ensemble, valid).mean())
        if nats < best:
            best, best_epoch, kept = nats, epoch, copy.deepcopy(ensemble.made.state_dict())
        print(f"epoch {epoch}: valid {nats:.4f} nats, best {best:.4f}, {time.process_time() - began:.0f} s", flush=True)
        if spent >= 1:
            break
    ensemble.made.load_state_dict(kept)
    return best_epoch


def orders_said(job: dict[str, Any]) -> str:
    """The orders of the members, in words."""
    if job["raster_orders"]:
        return f"{job['raster_orders']}, by rows and columns, forwards and backwards"
    return "backwards" if job["backwards"] else "as the columns stand"


def moved(x: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The rows x as square pictures, the first so many of them moved by a pixel or none in each direction."""
    side = math.isqrt(x.shape[1])
    down, right = torch.randint(3, (2,), generator=generator).tolist()
    padded = torch.nn.functional.pad(x[:count].view(-1, side, side), (1, 1, 1, 1))
    return torch.cat([padded[:, down : down + side, right : right + side].flatten(1), x[count:]])


@torch.no_grad()
def soften(ensemble: Members, threshold: float) -> None:
    """The proximal step of an L1 penalty: weights move towards 0 by the threshold and stay there."""
    for parameter in ensemble.made.parameters():
        if parameter.dim() > 1:
            parameter.copy_(torch.nn.functional.softshrink(parameter, threshold))


@torch.no_grad()
def log_probs(ensemble: Members, rows: Tensor) -> Tensor:
    """(N,) log-likelihoods, nats."""
    ensemble.train(False)
    terms = torch.cat([ensemble.log_prob(part) for part in rows.split(1000)])
    ensemble.train()
    return terms


if __name__ == "__main__":
    main()
