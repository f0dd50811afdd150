"""Odd lines of logs: chainrule with its defaults, and what people use instead.

    python benchmarks/instead_logs.py [--minutes 1.5] [--lines 30000] [--seeds 11 12]

Three generators (logs.py) plant one line of each of twelve kinds of anomaly among so many lines. Each log is its own
training text, as a user would do it. Figures are the average precision of the ranking, the anomalies among its first
twelve lines, and the seconds it took, training included. The others are a script that counts rare 5-grams after it
masks numbers, addresses and times (peers/plain_rare_grams.py), and scikit-learn's TF-IDF of the lines that it masks,
with an IsolationForest of defaults. Seeds up to 9 were used to choose the score; the default ones are for the figures.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from logs import GENERATORS
from side_by_side import duels, publish, report
from sklearn.ensemble import IsolationForest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import average_precision_score

import chainrule

PEER = Path(__file__).parent / "peers" / "plain_rare_grams.py"
FIRST = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.5, help="of training, each log")
    parser.add_argument("--lines", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12])
    parser.add_argument("--only", choices=GENERATORS, nargs="+", default=list(GENERATORS))
    options = parser.parse_args()
    figures: list[dict[str, Any]] = []
    ways: dict[str, Callable[[Path], np.ndarray]] = {
        "rare 5-grams": rare_grams,
        "TF-IDF, IsolationForest": forest,
        "chainrule": lambda path: ours(path, 60 * options.minutes),
    }
    for name in options.only:
        for seed in options.seeds:
            lines, kinds = GENERATORS[name](seed, options.lines)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"{name}.log"
                path.write_text("\n".join(lines) + "\n")
                for who, scores_of in ways.items():
                    began = time.monotonic()
                    scores = scores_of(path)
                    figures.append({"log": name, "seed": seed, "who": who} | quality(scores, kinds))
                    figures[-1]["seconds"] = time.monotonic() - began
                    print(figures[-1], file=sys.stderr, flush=True)
    means = [
        {"log": "mean", "who": who}
        | {figure: float(np.mean([row[figure] for row in figures if row["who"] == who])) for figure in MEASURED}
        for who in ways
    ]
    if options.only != list(GENERATORS):
        report(figures + means, [])
        return
    publish("instead_logs", figures + means, duels(means, ("log",), dict.fromkeys(MEASURED, ">=")))


MEASURED = ("average precision", f"of the first {FIRST}")


def quality(scores: np.ndarray, kinds: dict[int, str]) -> dict[str, Any]:
    """Return the figures of a ranking, and the kinds that are not among its first lines."""
    odd = np.zeros(len(scores))
    odd[list(kinds)] = 1
    first = np.argsort(-scores, kind="stable")[:FIRST]
    found = {kinds[index] for index in first.tolist() if index in kinds}
    missed = ", ".join(kind for kind in kinds.values() if kind not in found)
    return dict(zip(MEASURED, (average_precision_score(odd, scores), len(found)), strict=True)) | {"missed": missed}


def ours(path: Path, budget: float) -> np.ndarray:
    run = chainrule.fit(str(path), task="text", budget=budget, seed=0)
    return np.array(run.score(str(path))["spot"])


def rare_grams(path: Path) -> np.ndarray:
    """Return the number of rare 5-grams of each line, as the script prints it."""
    lines = path.read_text().count("\n") + 1
    printed = subprocess.run(
        [sys.executable, str(PEER), str(path), "--top", str(lines)], check=True, capture_output=True, text=True
    ).stdout
    scores = np.zeros(lines)
    for row in printed.splitlines():
        number, rare = row.split("\t")[:2]
        scores[int(number) - 1] = int(rare)
    return scores[:-1]  # the script's last line is the empty one after the last line end


def forest(path: Path) -> np.ndarray:
    """Return how isolated each line is, by the words that are left of it where the script's fields are masked."""
    text = re.sub(r"\d+\.\d+\.\d+\.\d+", "address", path.read_text())
    text = re.sub(r"\[[^\]\n]*\]|\d{4}-\d\d-\d\d[T ][\d:.]+", "time", text)
    words = TfidfVectorizer().fit_transform(re.sub(r"\d{4,}", "number", text).splitlines())
    return -IsolationForest(random_state=0).fit(words).score_samples(words)


if __name__ == "__main__":
    main()
