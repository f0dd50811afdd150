"""Models with a latent code: bounds of their likelihood, codes that tell digits apart, autoencoders beside PCA.

    python benchmarks/quality_latent.py [--only vae] [--minutes 20] [--seeds 3] [--weights FOLDER] [--data FOLDER]

FOLDER holds `binarized_mnist/binarized_mnist.npz` (the fixed binarisation of Larochelle and Murray), `mnist/*.gz` and
`tables/adult-{train,test}.csv.gz` (default: ../shared/data, or the environment variable CHAINRULE_DATA). Time is
counted in minutes of processor cores, of training alone. Weights are chosen on validation rows; test rows are scored
once, by the importance-weighted bound with 5,000 draws. That of all rows costs hours where a decoder is wide: then all
rows are scored with few draws, and the gain from few to 5,000 is measured on `score_rows` of them, drawn by chance. The
sum is an unbiased estimate of the same mean; its standard error has both parts. Weights that were trained are kept in
the folder of --weights, and scored without training where they are there already.
"""

import argparse
import copy
import gzip
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from side_by_side import claim, publish
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from chainrule import CodeModel, LatentModel
from chainrule.diagnostics import active_units
from chainrule.models import VAE, Autoencoder, PixelVAE
from chainrule.training import learning_rate, make_optimiser

DRAWS, VALIDATIONS, PICTURE, CODE = 5000, 20, (1, 28, 28), 32
Rows = dict[str, Tensor]
Row = dict[str, Any]

# For each bound: the model, minutes, batch, learning rate and optimiser, draws of each test row, and rows whose gain is
# measured.
BOUNDS: dict[str, Row] = {
    "vae": {"model": lambda: VAE(PICTURE, 2, 40, kl_warmup=0.2), "minutes": 8.0, "few": 100, "target": 89.5},
    "iwae": {
        "model": lambda: VAE(PICTURE, 2, 50, kl_warmup=0.2, importance_samples=50, doubly_reparameterised=True),
        "minutes": 25.0, "half": True, "few": 100, "target": 87.5,
    },
    "pixelvae": {
        "model": lambda: PixelVAE(PICTURE, 2, 32, kl_warmup=0.3, free_bits=0.1),
        "minutes": 20.0, "batch": 32, "half": True, "few": 2, "score_rows": 15, "target": 81.4,
        "rate": 1e-2, "optimiser": "muon",
    },
}  # fmt: skip
RATE: float = 2e-3
KIND: Literal["adamw", "muon"] = "adamw"  # where the job does not say
SINGLE = 0.4  # of the training with many draws is done with one: an epoch costs a tenth, and the place is near


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--only", choices=[*BOUNDS, "autoencoder", "probe"])
    parser.add_argument("--minutes", type=float, help="core minutes of each training, in place of its own")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--weights", type=Path, help="folder of trained weights: written, or read if there")
    parser.add_argument("--score-rows", type=int, help="test rows scored with 5,000 draws, in place of their own")
    options = parser.parse_args()
    for name in [options.only] if options.only else [*BOUNDS, "autoencoder", "probe"]:
        measure = OTHERS.get(name, measure_bound)
        rows: list[Row] = []
        for seed in range(options.seeds):
            torch.manual_seed(seed)
            rows += measure(name, options, seed)
        if rows:
            publish(f"quality_latent_{name}", rows, claims(name, rows))


def measure_bound(name: str, options: argparse.Namespace, seed: int) -> list[Row]:
    """Train on binarized MNIST, score the test pictures once."""
    path = options.data / "binarized_mnist/binarized_mnist.npz"
    if not path.exists():
        return skipped(path)
    with np.load(path) as file:
        parts = {part: torch.from_numpy(file[part]).view(-1, *PICTURE) for part in ("train", "valid", "test")}
    job = BOUNDS[name]
    model: LatentModel = job["model"]()
    minutes = options.minutes or job["minutes"]
    rate, kind = job.get("rate", RATE), job.get("optimiser", KIND)
    kept = None if options.weights is None else options.weights / f"{name}-{seed}.pt"
    if kept is not None and kept.exists():
        before = torch.load(kept, weights_only=True)
        model.load_state_dict(before["weights"])
        trained = before["minutes"]
    else:
        began = time.process_time()
        fit(model, parts, minutes, seed, rate=rate, batch=job.get("batch", 64), half=job.get("half", False), kind=kind)
        trained = (time.process_time() - began) / 60
    if kept is not None and not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"weights": model.state_dict(), "minutes": trained}, kept)
    use = active_units(model, parts["valid"])
    return [
        {
            "set": "binarized MNIST (fixed)",
            "model": name,
            "objective": f"draws {model.importance_samples}",
            "optimiser": f"{kind}, {rate:g}",
            "parameters": parameters(model),
            "seed": seed,
            "core minutes": trained,
            "valid elbo": -mean(model.elbo, parts["valid"]),
            **scored(model, parts["test"], job["few"], options.score_rows or job.get("score_rows", 1000), seed),
            "KL nats": float(use.kl.sum()),
            "active": use.count,
        }
    ]


def measure_autoencoder(name: str, options: argparse.Namespace, seed: int) -> list[Row]:
    """Codes of 32 numbers beside the 32 principal components: squared errors on the test pictures."""
    found = digits(options.data)
    if found is None:
        return []
    parts, _ = found
    components = pca(parts["train"])
    base = squared(components[2](parts["test"]), parts["test"])
    rows: list[Row] = [{"model": "PCA", "numbers": CODE, "seed": seed, "test MSE": base, "MSE / PCA's": 1.0}]
    for kind, rate in (("linear", 1e-3), ("dense", 2e-3)):
        torch.manual_seed(seed)
        model = Autoencoder(PICTURE, CODE, network=kind, hidden_size=512)
        began = time.process_time()
        fit(model, parts, options.minutes or 4.0, seed, rate=rate, batch=64, decay=0.0)
        minutes = (time.process_time() - began) / 60
        error = -2 * mean(model.held_out_objective, parts["test"]) / 784
        row = {"model": f"autoencoder, {kind}", "numbers": CODE, "seed": seed, "core minutes": minutes}
        rows.append(row | {"parameters": parameters(model), "test MSE": error, "MSE / PCA's": error / base})
    return rows


def measure_probe(name: str, options: argparse.Namespace, seed: int) -> list[Row]:
    """A logistic regression on codes of 1,000 labelled digits; as many others choose its regularisation."""
    found = digits(options.data)
    if found is None:
        return []
    parts, labels = found
    binary = {part: (x > 127).to(torch.uint8) for part, x in parts.items()}
    minutes = options.minutes or 4.0
    torch.manual_seed(seed)
    vae, auto = VAE(PICTURE, 2, CODE, kl_warmup=0.2), Autoencoder(PICTURE, CODE, hidden_size=512)
    fit(vae, binary, minutes, seed, rate=2e-3, batch=64)
    fit(auto, parts, minutes, seed, rate=2e-3, batch=64)
    ways: dict[str, tuple[Rows, Callable[[Tensor], Tensor]]] = {
        "VAE, means": (binary, vae.codes),
        "autoencoder": (parts, auto.codes),
        "PCA": (parts, pca(parts["train"])[1]),
        "raw pixels": (parts, lambda x: x.flatten(1) / 255),
    }
    chosen = torch.randperm(len(labels["train"]), generator=torch.Generator().manual_seed(seed))
    rows: list[Row] = []
    for way, (pictures, read) in ways.items():
        codes = {part: over(read, x) for part, x in pictures.items()}
        scale = codes["train"].std()
        fitted = []
        for inverse in (0.01, 0.1, 1.0, 10.0):
            probe = LogisticRegression(C=inverse, max_iter=2000)
            probe.fit(codes["train"][chosen[:1000]] / scale, labels["train"][chosen[:1000]])
            held_out = probe.score(codes["train"][chosen[1000:2000]] / scale, labels["train"][chosen[1000:2000]])
            fitted.append((held_out, inverse, probe))
        _, inverse, probe = max(fitted, key=lambda trial: trial[0])
        accuracy = probe.score(codes["test"] / scale, labels["test"])
        numbers = codes["test"].shape[1]
        rows.append({"codes": way, "numbers": numbers, "C": inverse, "seed": seed, "test accuracy": accuracy})
    return rows


OTHERS = {"autoencoder": measure_autoencoder, "probe": measure_probe}


def claims(name: str, rows: list[Row]) -> list[Row]:
    """The targets of a table, of the mean over seeds."""

    def over_seeds(column: str, model: str = "") -> float:
        return float(np.mean([row[column] for row in rows if not model or row["model"] == model]))

    if name in BOUNDS:
        what = f"{name}, binarized MNIST (fixed), test bound, {DRAWS:,} draws, nats"
        found = [claim(what, over_seeds("test bound"), "<=", BOUNDS[name]["target"])]
        if name == "pixelvae":
            found.append(claim("the same, KL divergence used, nats", over_seeds("KL nats"), ">=", 3.0))
            found.append(claim("the same, active units", over_seeds("active"), ">=", 5))
        return found
    if name == "autoencoder":
        ratios = {kind: over_seeds("MSE / PCA's", f"autoencoder, {kind}") for kind in ("dense", "linear")}
        return [
            claim("autoencoder of 32 numbers, MNIST, MSE over PCA's", ratios["dense"], "<=", 0.5),
            claim("the linear one, MSE off PCA's", abs(ratios["linear"] - 1), "<=", 0.01),
        ]
    return []


def fit(
    model: CodeModel,
    parts: Rows,
    minutes: float,
    seed: int,
    *,
    rate: float,
    batch: int,
    decay: float = 0.01,
    half: bool = False,
    kind: Literal["adamw", "muon"] = KIND,
) -> None:
    """Train for so many core minutes, in bfloat16 if `half`; ends with the weights of the best validation."""
    train, valid = parts["train"], parts["valid"]
    optimiser = make_optimiser(model, rate, decay, kind)
    generator = torch.Generator().manual_seed(seed)
    many = getattr(model, "importance_samples", 1)
    began, best, kept, validated, step = time.process_time(), math.inf, copy.deepcopy(model.state_dict()), 0, 0
    progress, order = 0.0, iter(())
    while progress < 1:
        rows = next(order, None)
        if rows is None:
            order = iter(torch.randperm(len(train), generator=generator).split(batch))
            continue
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(progress, rate, 0.02)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            if isinstance(model, LatentModel):
                model.importance_samples = many if progress >= SINGLE else 1
                value = model.train().training_objective(train[rows], progress=progress)
            else:
                value = model.train().training_objective(train[rows])
        optimiser.zero_grad()
        (-value.mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        optimiser.step()
        step += 1
        progress = (time.process_time() - began) / 60 / minutes
        if progress * VALIDATIONS > validated + 1 or progress >= 1:
            validated += 1
            nats = -held_out(model, valid, many)
            epoch = step * batch / len(train)
            print(f"epoch {epoch:.1f}: valid {nats:.3f}, {progress * minutes:.1f} core minutes", flush=True)
            if nats < best:
                best, kept = nats, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    if isinstance(model, LatentModel):
        model.importance_samples = many


def held_out(model: CodeModel, valid: Tensor, many: int) -> float:
    """The number that chooses weights: the bound that training maximises, of 5,000 held-out rows."""
    if isinstance(model, LatentModel) and many > 1:
        generator = torch.Generator().manual_seed(0)
        return mean(lambda x: model.importance_bound(x, many, generator), valid[:1000])
    torch.manual_seed(0)
    return mean(model.held_out_objective, valid[:5000])


def scored(model: LatentModel, test: Tensor, few: int, rows: int, seed: int) -> Row:
    """The bound with 5,000 draws, nats a row, and the bound of one draw beside it."""
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    began = time.process_time()
    chosen = torch.randperm(len(test), generator=generator)[:rows]
    many = over(lambda x: model.importance_bound(x, DRAWS, generator), test[chosen]).double()
    if rows >= len(test):
        value, error = many.mean(), many.std() / len(many) ** 0.5
    else:
        each = over(lambda x: model.importance_bound(x, few, generator), test).double()
        gain = many - each[chosen]
        value = each.mean() + gain.mean()
        error = (each.var() / len(each) + gain.var() / len(gain)).sqrt()
    return {
        "test bound": -float(value),
        "± SE": float(error),
        "draws": DRAWS,
        "rows with all draws": min(rows, len(test)),
        "test elbo": -mean(model.elbo, test),
        "scoring minutes": (time.process_time() - began) / 60,
    }


@torch.no_grad()
def over(read: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """What is read of all rows, a thousand at a time."""
    return torch.cat([read(part) for part in x.split(1000)])


def mean(read: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """Over the rows, of a model in evaluation mode where the reader is a method of one."""
    owner = getattr(read, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        owner.eval()
    return float(over(read, x).double().mean())


def pca(train: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """The components of pictures in [0, 1], and functions to codes and to rebuilt pictures."""
    x = train.flatten(1).double() / 255
    centre = x.mean(0)
    components = torch.linalg.eigh(torch.cov(x.t()))[1][:, -CODE:]

    def read(pictures: Tensor) -> Tensor:
        return (pictures.flatten(1).double() / 255 - centre) @ components

    def rebuild(pictures: Tensor) -> Tensor:
        return (read(pictures) @ components.t() + centre).view(pictures.shape)

    return components, read, rebuild


def squared(rebuilt: Tensor, pictures: Tensor) -> float:
    """The mean squared error of a pixel in [0, 1]."""
    return float(((rebuilt - pictures / 255) ** 2).mean())


def digits(data: Path) -> tuple[Rows, Rows] | None:
    """MNIST, bytes, with labels; the last 10,000 of its training pictures are for validation."""
    pictures, labels = {}, {}
    for part, name in (("train", "train"), ("test", "t10k")):
        for into, kind, start in ((pictures, "images-idx3", 16), (labels, "labels-idx1", 8)):
            path = data / "mnist" / f"{name}-{kind}-ubyte.gz"
            if not path.exists():
                skipped(path)
                return None
            into[part] = torch.from_numpy(np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8)[start:].copy())
    for rows in (pictures, labels):
        shape = PICTURE if rows is pictures else ()
        rows["train"], rows["test"] = rows["train"].view(-1, *shape), rows["test"].view(-1, *shape)
        rows["train"], rows["valid"] = rows["train"][:50_000], rows["train"][50_000:]
    return pictures, labels


def parameters(model: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def skipped(path: Path) -> list[Row]:
    print(f"skipped, there is no {path}: name the folder with --data")
    return []


if __name__ == "__main__":
    main()
