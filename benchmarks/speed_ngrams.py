"""Counting the n-grams of a text, and a model averaged with the counts beside the model alone: scoring and drawing.

    python benchmarks/speed_ngrams.py [--rounds 10] [--data FOLDER]

Characters of tiny Shakespeare and words of the Penn Treebank, with n-grams as long as `chainrule train` counts them and
an LSTM of 256 units; words have clusters of rare ones and tied weights, as there.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from default_rule import ptb, shakespeare
from side_by_side import claim, interleaved, median_ratio, publish

from chainrule.data import CharVocabulary, WordVocabulary
from chainrule.layers import KneserNey
from chainrule.models import CalibratedMixture, NgramLM, RecurrentLM
from chainrule_app.tasks.text.plan import MOST_DIFFERENT
from chainrule_app.tasks.text.task import ORDERS

TEXTS: dict[str, Any] = {
    "characters": (shakespeare, CharVocabulary, "char", {"embedding_size": 64, "ngram_order": 3}),
    "words": (ptb, WordVocabulary, "word", {"embedding_size": 256, "tie_weights": True, "adaptive_softmax": True}),
}
DRAWN = 100  # symbols of a text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    for name, (text, vocabulary, level, sizes) in TEXTS.items():
        try:
            train, valid = text(options)
        except FileNotFoundError as error:
            print(f"{name}: skipped: there is no {error.filename}")
            continue
        symbols = vocabulary.fit([train])
        found = measure(symbols, train, valid, level, sizes, options.rounds)
        rows.append({"symbols": name, **found})
        claims += [
            claim(f"{name}: seconds to count a million symbols", found["counting, s a million"], "<=", 1.0),
            claim(f"{name}: time to score a text ÷ of the network alone", found["scoring ÷ network"], "<=", 2.5),
            claim(f"{name}: time to draw one text ÷ of the network alone", found["drawing one ÷ network"], "<=", 4.0),
        ]
    publish("speed_ngrams", rows, claims)


def measure(symbols: Any, train: str, valid: str, level: str, sizes: dict[str, Any], rounds: int) -> dict[str, Any]:
    """The row of one text."""
    ids = torch.from_numpy(np.asarray(symbols.encode(train)))
    began = time.perf_counter()
    ngrams = KneserNey.fit(ids, len(symbols), ORDERS[level], most_different=MOST_DIFFERENT[level])
    counting = (time.perf_counter() - began) / len(ids) * 1e6
    torch.manual_seed(0)
    network = RecurrentLM(len(symbols), hidden_size=256, **sizes).eval()
    both = CalibratedMixture(network, NgramLM(ngrams)).eval()
    x = torch.from_numpy(np.asarray(symbols.encode(valid)[: 16 * 256])).view(16, 256)
    ways: dict[str, Any] = {}
    for name, model in (("network", network), ("both", both)):
        ways[f"score {name}"] = torch.no_grad()(lambda model=model: model.log_prob(x))
        for texts in (1, 16):
            ways[f"draw {texts} {name}"] = lambda model=model, texts=texts: model.sample(texts, length=DRAWN)
    seconds = interleaved(ways, rounds)
    return {
        "n-grams": len(ngrams.keys),
        "counting, s a million": counting,
        "scoring ÷ network": median_ratio(seconds["score both"], seconds["score network"]),
        "drawing one ÷ network": median_ratio(seconds["draw 1 both"], seconds["draw 1 network"]),
        "drawing 16 ÷ network": median_ratio(seconds["draw 16 both"], seconds["draw 16 network"]),
    }


if __name__ == "__main__":
    main()
