"""Odd rows of tables: the joint model with its defaults, and what people use instead, with scikit-learn's defaults.

    python benchmarks/instead_anomalies.py [--data FOLDER] [--seconds 30] [--seed 1] [--only TABLE ...]

FOLDER holds `tables/` and `uci_binary/` (default: ../shared/data, or the variable CHAINRULE_DATA); the other
tables come with scikit-learn. Ten tables: in five the odd rows are real ones, a few of a rare class among others; in
five they are planted, 2% of the rows, each with three cells that belong to other rows. Each table is its own training
data, as where nobody has labelled anything. Figures are the area under the ROC curve of the ranking of rows.
LocalOutlierFactor, GaussianMixture and IsolationForest get standardised numbers and one column for each category.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from instead_tables import ADULT, WINE
from side_by_side import duels, publish, report
from sklearn import datasets
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import LocalOutlierFactor

import chainrule

CHANGED, CELLS = 0.02, 3  # share of the rows that get cells of other rows, and how many
Table = tuple[pandas.DataFrame, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seconds", type=float, default=30.0, help="of training, each table")
    parser.add_argument("--seed", type=int, default=1, help="0 was used to choose")
    parser.add_argument("--only", nargs="+", help="names of tables")
    options = parser.parse_args()
    if not (options.data / "tables").is_dir():
        print(f"skipped, there is no {options.data / 'tables'}: name the folder with --data")
        return
    figures: list[dict[str, Any]] = []
    for name, (frame, odd) in tables(options.data, options.seed).items():
        if options.only and name not in options.only:
            continue
        began = time.monotonic()
        run = chainrule.fit(frame, task="table", budget=options.seconds, seed=options.seed)
        row = {"table": name, "rows": len(frame), "columns": frame.shape[1], "odd": int(odd.sum())}
        row["chainrule"] = roc_auc_score(odd, run.score(frame)["nats"])
        row |= {who: roc_auc_score(odd, scores) for who, scores in others(frame, options.seed).items()}
        figures.append(row | {"seconds": time.monotonic() - began})
        print(figures[-1], file=sys.stderr, flush=True)
    ways = ("chainrule", "LOF", "GMM", "IsolationForest")
    mean = {who: float(np.mean([row[who] for row in figures])) for who in ways}
    figures.append({"table": "mean"} | mean)
    if options.only:
        report(figures, [])
        return
    rows = [{"who": who, "mean AUC of ten tables": value} for who, value in mean.items()]
    publish("instead_anomalies", figures, duels(rows, (), {"mean AUC of ten tables": ">="}))


def tables(folder: Path, seed: int) -> dict[str, Table]:
    """Return ten tables, each with a mark for its odd rows."""
    random = np.random.default_rng(seed)
    cancer, wine, digits, iris, diabetes = (
        load(as_frame=True)
        for load in (datasets.load_breast_cancer, datasets.load_wine, datasets.load_digits, datasets.load_iris,
                     datasets.load_diabetes)
    )  # fmt: skip
    white = pandas.read_csv(folder / "tables" / "winequality-white.csv", names=WINE)
    adult = pandas.read_csv(folder / "tables" / "adult-train.csv.gz", names=ADULT, skipinitialspace=True, na_values="?")
    nltcs = pandas.DataFrame(np.load(folder / "uci_binary" / "nltcs.npz")["train"]).rename(columns="c{}".format)
    return {
        "breast cancer: malignant": rare(cancer.data, cancer.target == 0, 20, random),
        "wine: third kind": rare(wine.data, wine.target == 2, 8, random),
        "digits: zeros": rare(digits.data.astype(int), digits.target == 0, 30, random),
        "iris: virginica": rare(iris.data, iris.target == 2, 6, random),
        "white wine: best and worst": rare(white[WINE[:-1]], ~white.quality.between(4, 8), 25, random),
        "white wine": swapped(white.sample(3000, random_state=seed), random),
        "adult": swapped(adult.dropna().sample(5000, random_state=seed), random),
        "diabetes": swapped(diabetes.frame, random),
        "breast cancer": swapped(cancer.data, random),
        "nltcs": swapped(nltcs.sample(5000, random_state=seed), random),
    }


def rare(frame: pandas.DataFrame, odd: pandas.Series, count: int, random: np.random.Generator) -> Table:
    """Keep so many odd rows."""
    chosen = random.choice(np.flatnonzero(odd), count, replace=False)
    order = random.permutation(np.concatenate([np.flatnonzero(~odd), chosen]))
    return frame.iloc[order].reset_index(drop=True), odd.to_numpy()[order].astype(int)


def swapped(frame: pandas.DataFrame, random: np.random.Generator) -> Table:
    """Give some rows cells of other rows that differ from theirs."""
    frame = frame.reset_index(drop=True).copy()
    rows = random.choice(len(frame), max(round(CHANGED * len(frame)), 8), replace=False)
    original = frame.copy()
    for row in rows:
        for column in random.choice(frame.shape[1], CELLS, replace=False):
            values = original.iloc[:, column]
            frame.iloc[row, column] = random.choice(values[values != values[row]].to_numpy())
    return frame, np.isin(np.arange(len(frame)), rows).astype(int)


def others(frame: pandas.DataFrame, seed: int) -> dict[str, np.ndarray]:
    """Return how odd each row is to scikit-learn's estimators."""
    x = pandas.get_dummies(frame, dtype=float).to_numpy()
    x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-9)
    local = LocalOutlierFactor()
    local.fit(x)
    return {
        "LOF": -local.negative_outlier_factor_,
        "GMM": -GaussianMixture(random_state=seed).fit(x).score_samples(x),
        "IsolationForest": -IsolationForest(random_state=seed).fit(x).score_samples(x),
    }


if __name__ == "__main__":
    main()
