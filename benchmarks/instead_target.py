"""A run trained for one column with --target, beside histogram gradient boosting with scikit-learn's defaults.

    python benchmarks/instead_target.py [--part valid|test] [--tables adult churn …] [--minutes 1] [--seed 0]

For each table and column, `chainrule.fit(train, target=COLUMN)` trains for so many minutes, on the training rows alone.
Both then predict the column of unseen rows: a category by accuracy and log loss in nats, a number by R², the mean
pinball loss of seven quantiles, and the share of values inside the interval of 80%. The peer of a category is
`HistGradientBoostingClassifier(early_stopping=True)`; of a number `HistGradientBoostingRegressor` for R², and one more
of these with `loss="quantile"` for each quantile. `--part valid` scores a fifth of the training rows, on which design
choices are made, so that the test rows decide nothing.

FOLDER of `--data` holds `tables/` (default: ../shared/data, or the environment variable CHAINRULE_DATA). The breast
cancer table comes with scikit-learn; the customers who leave are generated from the seed.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from instead_tables import ADULT, WINE
from side_by_side import duels, publish, report, with_published
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import accuracy_score, log_loss, r2_score

import chainrule

Frames = tuple[pandas.DataFrame, pandas.DataFrame]
Figures = list[dict[str, Any]]
TARGETS = {
    "adult": ("income", "age", "hours"),
    "white wine": ("quality", "alcohol"),
    "red wine": ("quality",),
    "breast cancer": ("diagnosis",),
    "churn": ("leaves",),
}
LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)  # the quantiles of `predict`
MARKS = {"white wine": (4, 8), "red wine": (4, 7)}  # rarer ones join their neighbours
CUSTOMERS = 6000
BOOSTING: dict[str, Any] = {"categorical_features": "from_dtype", "random_state": 0, "early_stopping": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--part", choices=("valid", "test"), default="valid", help="the rows that are predicted")
    parser.add_argument("--tables", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--kinds", nargs="+", choices=("category", "number"), default=["category", "number"])
    parser.add_argument("--minutes", type=float, default=1.0, help="of training, each column")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = options.data / "tables"
    if not folder.is_dir():
        print(f"skipped, there is no {folder}: name the folder with --data")
        return
    figures: Figures = []
    for name in options.tables:
        train, unseen = parts(read(name, folder, options.seed), options.part, options.seed)
        for column in TARGETS[name]:
            kind = "number" if pandas.api.types.is_numeric_dtype(train[column]) else "category"
            if kind in options.kinds:
                figures += compared(name, train, unseen, column, options.minutes, options.seed)
    if options.part == "valid":
        report(figures, [])
        return
    figures = with_published("instead_target", figures, "table", "column")
    senses = {"log loss": "<=", "accuracy": ">=", "R²": ">=", "pinball": "<="}
    publish("instead_target", figures, duels(figures, ("table", "column"), senses))


def read(name: str, folder: Path, seed: int) -> Frames:
    """Return the training and the test rows of a table."""
    if name == "adult":
        parts = [
            pandas.read_csv(folder / f"adult-{part}.csv.gz", names=ADULT, skipinitialspace=True, na_values="?")
            for part in ("train", "test")
        ]
        return parts[0], parts[1].assign(income=parts[1].income.str.rstrip("."))
    if name in MARKS:
        table = pandas.read_csv(folder / f"winequality-{name.split()[0]}.csv", names=WINE)
        table["quality"] = table.quality.clip(*MARKS[name]).map("q{}".format)
    elif name == "breast cancer":
        bunch = load_breast_cancer(as_frame=True)
        table = bunch.data.assign(diagnosis=bunch.target.map({0: "malignant", 1: "benign"}))
    else:
        table = customers(CUSTOMERS, seed)
    return halves(table, seed)


def halves(table: pandas.DataFrame, seed: int) -> Frames:
    """Return four fifths of the rows of a shuffled table, and the last fifth."""
    shuffled = table.sample(frac=1, random_state=seed, ignore_index=True)
    cut = len(shuffled) * 4 // 5
    return shuffled[:cut], shuffled[cut:].reset_index(drop=True)


def parts(frames: Frames, part: str, seed: int) -> Frames:
    """Return the rows to train on and to predict: with `valid`, both are training rows."""
    return frames if part == "test" else halves(frames[0], seed + 1)


def customers(rows: int, seed: int) -> pandas.DataFrame:
    """Generate customers of a shop, some of whom leave: interactions, a threshold, gaps, and noise."""
    random = np.random.default_rng(seed)
    plan = random.choice(["basic", "family", "premium"], rows, p=[0.5, 0.3, 0.2])
    age = random.gamma(9, 5, rows).clip(18, 90).round()
    months = random.exponential(24, rows).round()
    price = np.select([plan == "basic", plan == "family"], [9.99, 19.99], 29.99)
    calls = random.poisson(0.3 + 1.5 * (plan == "premium") * (months < 12))
    minutes = random.lognormal(5 + 0.4 * (plan == "family") - 0.01 * (age - 45), 0.6, rows).round(1)
    logit = -2.5 + 0.9 * calls - 0.03 * months + 1.8 * ((plan == "basic") & (minutes > 300)) + 1.2 * (age < 25)
    leaves = np.where(random.random(rows) < 1 / (1 + np.exp(-logit)), "yes", "no")
    region = random.choice(["north", "south", "east", "west"], rows)
    table = pandas.DataFrame(
        {"plan": plan, "age": age, "months": months, "price": price, "calls": calls, "minutes": minutes,
         "region": region, "leaves": leaves}
    )  # fmt: skip
    return table.assign(minutes=table.minutes.mask(random.random(rows) < 0.05))


def compared(
    name: str, train: pandas.DataFrame, unseen: pandas.DataFrame, column: str, minutes: float, seed: int
) -> Figures:
    """Train both for one column, and predict it."""
    began = time.monotonic()
    run = chainrule.fit(train, task="table", target=column, budget=60 * minutes, seed=seed)
    trained = time.monotonic() - began
    answers = run.predict(unseen, columns=column, seed=0)
    known = train.dropna(subset=[column])
    x, z = features(known, unseen, column)
    about = {"table": name, "column": column, "rows": len(known), "predicted": len(unseen)}
    if not pandas.api.types.is_numeric_dtype(train[column]):
        began = time.monotonic()
        model = HistGradientBoostingClassifier(**BOOSTING).fit(x, known[column])
        spent = time.monotonic() - began
        ours = probabilities(answers["shares"], list(model.classes_))
        return [
            about | {"who": who, "accuracy": accuracy_score(unseen[column], model.classes_[p.argmax(1)]),
                     "log loss": log_loss(unseen[column], p, labels=model.classes_), "seconds": seconds}
            for who, p, seconds in (("chainrule", ours, trained), ("boosting", model.predict_proba(z), spent))
        ]  # fmt: skip
    began = time.monotonic()
    mean = HistGradientBoostingRegressor(**BOOSTING).fit(x, known[column]).predict(z)
    theirs = [
        HistGradientBoostingRegressor(loss="quantile", quantile=level, **BOOSTING).fit(x, known[column]).predict(z)
        for level in LEVELS
    ]
    spent = time.monotonic() - began
    ours = [[float(shares[f"{level:g}"]) for shares in answers["shares"]] for level in LEVELS]
    return [
        about | {"who": "chainrule"} | of_numbers(unseen[column], answers["mean"], ours) | {"seconds": trained},
        about | {"who": "boosting"} | of_numbers(unseen[column], mean, theirs) | {"seconds": spent},
    ]


def features(known: pandas.DataFrame, unseen: pandas.DataFrame, column: str) -> Frames:
    """Return the other columns of both, with categories as boosting reads them."""
    x, z = known.drop(columns=column), unseen.drop(columns=column)
    for other in x:
        if not pandas.api.types.is_numeric_dtype(x[other]):
            x[other] = pandas.Categorical(x[other])
            z[other] = pandas.Categorical(z[other], categories=x[other].cat.categories)
    return x, z


def probabilities(answers: Any, classes: list[str]) -> "np.ndarray[Any, Any]":
    """Return the probability of each class, (rows, classes)."""
    shares = np.array([[shares.get(label, 0.0) for label in classes] for shares in answers])
    return np.asarray(shares / shares.sum(1, keepdims=True))


def of_numbers(actual: Any, mean: Any, quantiles: Any) -> dict[str, float]:
    """Return the figures of predicted numbers."""
    actual = np.asarray(actual, float)
    errors = actual - np.asarray(quantiles, float)
    levels = np.array(LEVELS)[:, None]
    inside = (errors[1] >= 0) & (errors[-2] <= 0)
    return {
        "R²": r2_score(actual, np.asarray(mean, float)),
        "pinball": float(np.maximum(levels * errors, (levels - 1) * errors).mean()),
        "inside 80%": float(inside.mean()),
    }


if __name__ == "__main__":
    main()
