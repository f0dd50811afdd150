"""Exact sampling in parallel beside cached sampling, one row at a time, on one thread.

    python benchmarks/sampling_parallel.py [--data FOLDER] [--seconds 90] [--only "LSTM 1×512"] [--rounds 7]

Both draw the same sample: `model.sample` element by element from its caches (prepared weights, a matrix-vector product
each), `sample_parallel` in windows of guesses. That the two agree is checked in float64 before anything is timed. An
untrained model says nothing of how often guesses are right, so that each one is trained for `--seconds` first: on tiny
Shakespeare (`tinyshakespeare/input.txt`) and on binarized MNIST (`binarized_mnist/binarized_mnist.npz`), in FOLDER
(default: ../shared/data, or the environment variable CHAINRULE_DATA). A set that is not there is skipped.

Guesses of a text: n-grams of the training text, with the noise of the sample or accepted by chance (`rejection`); a
small recurrent model; the last pass's own results. Of a picture: the last pass's results, in windows of rows.
"""

import argparse
import copy
import itertools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from side_by_side import claim, interleaved, median_ratio, publish
from torch import Tensor

from chainrule import AutoregressiveModel
from chainrule.data import Corpus, StreamBatches, prepare_corpus, stream_evaluation
from chainrule.decoding import NgramDraft, ParallelSample, sample_parallel
from chainrule.models import PixelCNN, RecurrentLM, TransformerLM
from chainrule.training import TrainingOptions, train
from chainrule.training.optimiser import make_optimiser

TEXT, PICTURES = "tinyshakespeare/input.txt", "binarized_mnist/binarized_mnist.npz"
LENGTH, ROUNDS = 300, 7
TARGET = 1.5
MODELS: dict[str, Callable[[int], AutoregressiveModel]] = {
    "Transformer 6×384": lambda symbols: TransformerLM(
        symbols, model_size=384, num_layers=6, num_heads=6, context_length=256, ngram_order=4
    ),
    "Transformer 5×192": lambda symbols: TransformerLM(
        symbols, model_size=192, num_layers=5, context_length=64, ngram_order=4
    ),
    "LSTM 1×512": lambda symbols: RecurrentLM(symbols, "lstm", 128, 512, ngram_order=4),
}
PIXELS = "PixelCNN 28×28"
WINDOWS = (2, 4, 8, 28)  # rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--only", choices=[*MODELS, PIXELS], action="append")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    asked = options.only or [*MODELS, PIXELS]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for file, measure in ((TEXT, texts), (PICTURES, pictures)):
            path = options.data / file
            if not path.exists():
                print(f"skipped, there is no {path}: name the folder with --data")
                continue
            rows += measure(path, Path(folder), asked, options)
    claims = [
        claim(f"{row['model']}, batch 1, n-gram draft: symbols/s ÷ cached sampling", row["÷ cached"], ">=", TARGET, "×")
        for row in rows
        if row["guesses"] == "n-grams" and row["model"].startswith("Transformer")
    ]
    publish("sampling_parallel", rows, claims)


def texts(path: Path, folder: Path, asked: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the models of a text."""
    rows: list[dict[str, Any]] = []
    asked = [name for name in MODELS if name in asked]
    if not asked:
        return rows
    corpus = prepare_corpus(path, folder / "corpus", validation_fraction=0.1)
    symbols = len(corpus.vocabulary)
    ngrams = NgramDraft(corpus.train.slice(0, len(corpus.train)), symbols)
    small = RecurrentLM(symbols, "gru", 64, 128, ngram_order=4)
    trained(small, corpus, folder / "small", options.seconds / 2, rate=4e-3)
    for name in asked:
        torch.manual_seed(0)
        model = MODELS[name](symbols)
        nats = trained(model, corpus, folder / name, options.seconds, rate=2e-3)
        ways: dict[str, dict[str, Any]] = {
            "n-grams": {"draft": ngrams},
            "n-grams, rejection": {"draft": ngrams, "rejection": True},
            "GRU 1×128": {"draft": small},
            "GRU 1×128, rejection": {"draft": small, "rejection": True},
            "its own": {},
        }
        rows += measured(model, name, {"nats/element": nats}, ways, LENGTH, options.rounds)
    return rows


def trained(model: AutoregressiveModel, corpus: Corpus, folder: Path, seconds: float, *, rate: float) -> float:
    """Train a model of a text for a while; held-out nats a symbol."""

    def held_out() -> Any:
        return stream_evaluation(corpus.valid, batch_size=16, chunk_length=256)

    result = train(
        model,
        StreamBatches(corpus.train, batch_size=16, chunk_length=64),
        held_out,
        TrainingOptions(budget=seconds, batch_size=16, learning_rate=rate),
        folder,
        progress=False,
    )
    model.eval()
    return float(result.best.nats_per_element)


def pictures(path: Path, folder: Path, asked: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the model of pictures."""
    if PIXELS not in asked:
        return []
    with np.load(path) as arrays:
        train_rows, valid = (torch.from_numpy(arrays[part]).view(-1, 1, 28, 28).long() for part in ("train", "valid"))
    torch.manual_seed(0)
    model = PixelCNN((1, 28, 28), 2, channels=32, layers=4, kernel_size=5)
    fit(model, train_rows, options.seconds)
    with torch.no_grad():
        nats = -float(model.log_prob(valid[:500]).mean())
    ways = {f"its own, {rows} rows": {"window": 28 * rows} for rows in WINDOWS}
    return measured(model, PIXELS, {"nats/picture": nats}, ways, None, options.rounds)


def fit(model: PixelCNN, x: Tensor, seconds: float) -> None:
    """Train on pictures for a while."""
    optimiser, generator, began = make_optimiser(model, 4e-3, 0.01), torch.Generator().manual_seed(0), time.monotonic()
    while (spent := (time.monotonic() - began) / seconds) < 1:
        for group in optimiser.param_groups:
            group["lr"] = 4e-3 * (1 - spent)
        batch = x[torch.randint(len(x), (16,), generator=generator)]
        optimiser.zero_grad()
        (-model.log_prob(batch).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimiser.step()
    model.eval()


def measured(
    model: AutoregressiveModel,
    name: str,
    quality: dict[str, float],
    ways: dict[str, dict[str, Any]],
    length: int | None,
    rounds: int,
) -> list[dict[str, Any]]:
    """A row for each way to guess: the time of the same samples, drawn one element at a time and in parallel."""
    require_same_samples(model, ways, None if length is None else 60)
    drawn: dict[str, list[ParallelSample]] = {way: [] for way in ways}
    calls: dict[str, Callable[[], object]] = {}

    def cached(seeds: Any) -> Callable[[], object]:
        return lambda: model.sample(1, length=length, generator=torch.Generator().manual_seed(next(seeds)))

    def parallel(way: str, seeds: Any) -> Callable[[], object]:
        return lambda: drawn[way].append(
            sample_parallel(model, 1, length=length, generator=torch.Generator().manual_seed(next(seeds)), **ways[way])
        )

    calls["cached"] = cached(itertools.count())
    calls |= {way: parallel(way, itertools.count()) for way in ways}
    seconds = interleaved(calls, rounds, warmup=1)
    rows = []
    for way, samples in drawn.items():
        elements = samples[0].elements
        passes = sum(sample.passes for sample in samples)
        guesses = sum(sample.guesses for sample in samples)
        rows.append(
            {
                "model": name,
                **quality,
                "guesses": way,
                "elements": elements,
                "cached elements/s": elements / float(np.median(seconds["cached"])),
                "elements/s": elements / float(np.median(seconds[way])),
                "÷ cached": median_ratio(seconds["cached"], seconds[way]),
                "passes": passes / len(samples),
                "elements/pass": sum(sample.elements for sample in samples) / passes,
                "right guesses": sum(sample.accepted for sample in samples) / max(guesses, 1),
            }
        )
    return rows


def require_same_samples(model: AutoregressiveModel, ways: dict[str, dict[str, Any]], length: int | None) -> None:
    """In float64 the sample is the same, element for element, but where guesses are accepted by chance."""
    exact = copy.deepcopy(model).double()
    expected = exact.sample(1, length=length, generator=torch.Generator().manual_seed(0))
    for way in ways.values():
        if not way.get("rejection"):
            drawn = sample_parallel(exact, 1, length=length, generator=torch.Generator().manual_seed(0), **way)
            assert torch.equal(drawn.x, expected), "sample_parallel: another sample than that of model.sample"


if __name__ == "__main__":
    main()
