"""MADE of mixed columns on census income, against a chain of per-column models; test rows decide nothing.

    python benchmarks/quality_adult_table.py [--data FOLDER] [--core-minutes 3] [--seed 0]

FOLDER holds `tables/adult-{train,test}.csv.gz` (default: ../shared/data, or the environment variable CHAINRULE_DATA).
All models read the same schema, made of the training rows, and give distributions of the same kinds, so that their
nats can be compared; a tenth of the training file stops them early. The chain is the network without hidden layers:
each column is a (multinomial) logistic regression on all columns before it, with a mixture where it is numeric.
Independent columns are the same with nothing to read.
"""

import argparse
import copy
import gzip
import math
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from side_by_side import claim, publish
from torch import Tensor

from chainrule.models import TableMADE
from chainrule.training import learning_rate, make_optimiser
from chainrule_app import prepare_table
from chainrule_app.readers.tables import Table, table_batches

CHAIN = "chain of per-column logistic models"
MODELS: dict[str, dict[str, Any]] = {
    "independent columns": {"read": False, "num_layers": 0, "dropout": 0.0, "learning_rate": 1e-2},
    CHAIN: {"read": True, "num_layers": 0, "dropout": 0.0, "learning_rate": 5e-3},
    "MADE": {"read": True, "num_layers": 2, "dropout": 0.3, "learning_rate": 3e-3},
}
UNITS, BATCH, COMPONENTS, VALIDATIONS = 256, 128, 8, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--core-minutes", type=float, default=3.0, help="of training, each model")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train, test = (options.data / "tables" / f"adult-{part}.csv.gz" for part in ("train", "test"))
    if not (train.exists() and test.exists()):
        print(f"skipped, there is no {train} or no {test}: name the folder with --data")
        return
    with TemporaryDirectory() as folder:
        table = prepare_table(train, folder, header=False, seed=options.seed)
        rows = [row for _, _, row in table.schema.encoded(same_classes(test, Path(folder)))]
        held_out = torch.tensor(rows, dtype=torch.float64)
        figures = [measure(name, table, held_out, options.core_minutes, options.seed) for name in MODELS]
    nats = {row["model"]: row["test nats a row"] for row in figures}
    what = "MADE, adult with mixed types, test nats a row, below the chain"
    publish("quality_adult_table", figures, [claim(what, nats["MADE"], "<=", nats[CHAIN])])


def measure(name: str, table: Table, test: Tensor, minutes: float, seed: int) -> dict[str, Any]:
    """Train by early stopping, score the test rows once; the row of figures."""
    job = MODELS[name]
    torch.manual_seed(seed)
    model = TableMADE(table.schema.heads(), UNITS, job["num_layers"], components=COMPONENTS, dropout=job["dropout"])
    if not job["read"]:
        model.output.mask = torch.zeros_like(model.output.mask)
    began = time.process_time()
    steps = fit(model, table, job["learning_rate"], minutes, seed)
    scores = log_probs(model, test)
    return {
        "model": name,
        "hidden units": "+".join([str(UNITS)] * job["num_layers"]),
        "dropout": job["dropout"],
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "best step": steps,
        "seed": seed,
        "threads": torch.get_num_threads(),
        "core minutes": (time.process_time() - began) / 60,
        "valid nats a row": -float(log_probs(model, torch.from_numpy(table.valid.copy())).mean()),
        "test nats a row": -float(scores.mean()),
        "± 95%": 1.96 * float(scores.std()) / len(scores) ** 0.5,
    }


def fit(model: TableMADE, table: Table, rate: float, minutes: float, seed: int) -> int:
    """Train for some minutes; ends with the weights of the best validation, and its step."""
    optimiser, batches = make_optimiser(model, rate, weight_decay=0.01), table_batches(table.train, BATCH, seed)
    valid = torch.from_numpy(table.valid.copy())
    began, best, kept, best_step, step, validated = time.process_time(), math.inf, {}, 0, 0, 0
    while (progress := (time.process_time() - began) / 60 / minutes) < 1:
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(progress, rate, warmup=0.03)
        optimiser.zero_grad()
        (-model.train().log_prob(batches.at(step).x).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 15.0)
        optimiser.step()
        step += 1
        if progress * VALIDATIONS > validated + 1:
            validated += 1
            nats = -float(log_probs(model, valid).mean())
            print(f"step {step}: valid {nats:.4f} nats a row", flush=True)
            if nats < best:
                best, best_step, kept = nats, step, copy.deepcopy(model.state_dict())
    masks = {name: layer.mask for name, layer in model.named_modules() if hasattr(layer, "mask")}
    model.load_state_dict(kept)
    for name, mask in masks.items():  # those of independent columns are not what the order says
        model.get_submodule(name).mask = mask
    return best_step


@torch.no_grad()
def log_probs(model: TableMADE, rows: Tensor) -> Tensor:
    """(N,) log-likelihoods, nats."""
    return torch.cat([model.eval().log_prob(part) for part in rows.split(1000)])


def same_classes(path: Path, folder: Path) -> Path:
    """The test file with its classes written as in training: in the original they end in a full stop."""
    text = gzip.decompress(path.read_bytes()).decode()
    lines = [line.rstrip().removesuffix(".") for line in text.splitlines() if line.count(",") == 14]
    (folder / "test.csv").write_text("\n".join(lines) + "\n")
    return folder / "test.csv"


if __name__ == "__main__":
    main()
