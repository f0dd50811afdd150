"""Labels of texts, beside TF-IDF of words and characters with logistic regression, within twice its time plus a minute.

    python benchmarks/instead_labels.py [--part valid|test] [--sets sst2 genres ...] [--seeds 0]

The peer is scikit-learn's: words and pairs of words, and runs of 2 to 5 characters inside words, with sublinear TF-IDF,
and `LogisticRegression` whose C is the best of five on the validation part. `chainrule.fit` has the defaults, the same
training and validation parts, and twice the peer's seconds plus sixty. Figures: accuracy, log loss in nats, and the
expected calibration error of 15 bins. With `--part valid` both are scored on the validation part, on which they were
tuned, to make design choices; with `--part test` on the test part, which decides nothing.

- sst2: sentences of film reviews, two labels.
- genres: sentences of UD English EWT by where they are from: answers, email, newsgroup, reviews, weblog.
- documents: the whole documents of that corpus, with the same labels.
- reviews: long reviews stand-in, SST-2 sentences joined by eights, six of the label and two of the other one; each
  sentence is in one document.

FOLDER of `--data` holds `sst2/` and `ud_english_ewt/` (default: ../shared/data, or the environment variable
CHAINRULE_DATA). Sets that are not run again keep their rows in the result.
"""

import argparse
import gzip
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from side_by_side import claim, duels, publish, report, with_published
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.pipeline import make_union

import chainrule

SETS = ("sst2", "genres", "documents", "reviews")
PARTS = ("train", "dev", "test")
STRENGTHS = (0.3, 1, 3, 10, 30, 100)
TOGETHER, OF_THE_OTHER = 8, 2  # sentences of a joined review, and how many of them have the other label
BINS = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--part", choices=("valid", "test"), default="valid", help="the texts that are scored")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    for name in options.sets:
        folder = options.data / ("sst2" if name in ("sst2", "reviews") else "ud_english_ewt")
        if not folder.is_dir():
            print(f"{name}: skipped, there is no {folder}: name the folder with --data")
            continue
        measured = compared(name, read(name, folder), options.part, options.seeds)
        if options.part == "valid":
            report(measured, [])
        else:
            rows = with_published("instead_labels", measured, "set")
            claims = duels(rows, ("set",), {"accuracy": ">=", "log loss": "<="})
            publish("instead_labels", rows, claims + [spent(part, rows) for part in SETS if part in claimed(rows)])


def read(name: str, folder: Path) -> list[pd.DataFrame]:
    """Return the texts and labels of the training, validation and test part."""
    frames = []
    for part in PARTS:
        pairs: Sequence[tuple[str, ...]]
        if name in ("sst2", "reviews"):
            lines = (folder / f"{part}.tsv").read_text(encoding="utf-8").splitlines()
            pairs = [tuple(line.split("\t")) for line in lines if "\t" in line]
            pairs = joined(pairs) if name == "reviews" else pairs
        else:
            with gzip.open(folder / f"en_ewt-ud-{part}.conllu.gz", "rt", encoding="utf-8") as file:
                pairs = corpus(file.read(), whole=name == "documents")
        frames.append(pd.DataFrame(pairs, columns=["text", "label"]))
    return frames


def corpus(content: str, *, whole: bool) -> list[tuple[str, str]]:
    """Return the sentences or the documents of a CoNLL-U file with their genre."""
    documents: list[tuple[str, list[str]]] = []
    for line in content.splitlines():
        if line.startswith("# newdoc id = "):
            documents.append((line.removeprefix("# newdoc id = ").split("-")[0], []))
        elif line.startswith("# text = "):
            documents[-1][1].append(line.removeprefix("# text = "))
    if whole:
        return [(" ".join(sentences), genre) for genre, sentences in documents]
    return [(sentence, genre) for genre, sentences in documents for sentence in sentences]


def joined(pairs: Sequence[tuple[str, ...]]) -> list[tuple[str, str]]:
    """Join sentences to documents, mostly of one label."""
    order = np.random.default_rng(0)
    left = {label: [text for text, own in pairs if own == label] for label in ("0", "1")}
    documents = []
    while all(len(texts) >= TOGETHER for texts in left.values()):
        for label, other in (("0", "1"), ("1", "0")):
            texts = [left[label].pop() for _ in range(TOGETHER - OF_THE_OTHER)]
            texts += [left[other].pop() for _ in range(OF_THE_OTHER)]
            documents.append((" ".join(order.permutation(texts)), label))
    return documents


def compared(name: str, frames: list[pd.DataFrame], part: str, seeds: list[int]) -> list[dict[str, Any]]:
    """Train both, and score them."""
    train, valid, test = frames
    scored = valid if part == "valid" else test
    began = time.monotonic()
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
    union = make_union(words, letters)
    learnt, held_out = union.fit_transform(train.text), union.transform(valid.text)
    models = [LogisticRegression(C=strength, max_iter=2000).fit(learnt, train.label) for strength in STRENGTHS]
    model = min(models, key=lambda each: log_loss(valid.label, each.predict_proba(held_out), labels=each.classes_))
    seconds = time.monotonic() - began
    about = {"set": name, "train": len(train), "scored": len(scored), "part": part}
    theirs = model.predict_proba(union.transform(scored.text))
    rows = [about | {"who": f"TF-IDF, C = {model.C:g}"} | figures(scored.label, theirs, model.classes_, seconds)]
    for seed in seeds:
        began = time.monotonic()
        run = chainrule.fit(train, task="classify", validation=valid, budget=2 * seconds + 60, seed=seed)
        trained = time.monotonic() - began
        answers = run.classify(scored.text.tolist())["probabilities"]
        ours = np.array([[shares[label] for label in model.classes_] for shares in answers])
        rows.append(about | {"who": "chainrule", "seed": seed} | figures(scored.label, ours, model.classes_, trained))
    return rows


def claimed(rows: list[dict[str, Any]]) -> set[str]:
    """Return the sets that have rows."""
    return {row["set"] for row in rows}


def spent(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Claim that the mean time of training was twice the peer's plus a minute at most."""
    peer, *ours = [row["seconds"] for row in rows if row["set"] == name]
    return claim(f"{name}: seconds, twice the peer's plus 60", float(np.mean(ours)), "<=", 2 * peer + 60)


def figures(true: Any, shares: Any, classes: Any, seconds: float) -> dict[str, float]:
    """Return accuracy, log loss and calibration error."""
    right, sure = classes[shares.argmax(1)] == np.asarray(true), shares.max(1)
    places = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = [abs((right - sure)[places == place].sum()) for place in range(BINS)]
    return {
        "accuracy": float(accuracy_score(true, classes[shares.argmax(1)])),
        "log loss": float(log_loss(true, shares, labels=classes)),
        "calibration error": float(sum(gaps) / len(right)),
        "seconds": seconds,
    }


if __name__ == "__main__":
    main()
