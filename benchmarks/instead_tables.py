"""One joint model of a table and what people use instead, with scikit-learn's defaults: predict a column, fill in gaps.

    python benchmarks/instead_tables.py [--data FOLDER] [--minutes 2] [--rows 400] [--seed 0]

FOLDER holds `tables/` (default: ../shared/data, or the environment variable CHAINRULE_DATA). For each table one model
is trained for so many minutes, on the training rows alone. On rows that it has not seen it then answers every question:
a category (accuracy, log loss) and numbers (R², mean absolute error, the share of values inside the interval of 80%)
given all other cells, and each of the cells that were emptied at random, a tenth of them (mean absolute error divided
by that of the training median, for numbers; share of right categories). scikit-learn has a model for each question:
histogram gradient boosting (with `early_stopping`), and IterativeImputer for numbers (modes for the others).
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from side_by_side import duels, publish
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401  the import makes the next one possible
from sklearn.impute import IterativeImputer
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, r2_score

import chainrule

ADULT = [
    "age", "workclass", "fnlwgt", "education", "education_num", "marital", "occupation", "relationship", "race", "sex",
    "gain", "loss", "hours", "country", "income",
]  # fmt: skip
WINE = [
    "fixed_acidity", "volatile_acidity", "citric_acid", "sugar", "chlorides", "free_sulfur", "total_sulfur", "density",
    "ph", "sulphates", "alcohol", "quality",
]  # fmt: skip
ASKED = {"adult": ("income", "age", "hours"), "white wine": ("quality", "alcohol", "density")}
EMPTIED = 0.1
Figures = list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--minutes", type=float, default=2.0, help="of training, each table")
    parser.add_argument("--rows", type=int, default=400, help="of the test set, whose numbers and gaps are predicted")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = options.data / "tables"
    if not folder.is_dir():
        print(f"skipped, there is no {folder}: name the folder with --data")
        return
    figures: Figures = []
    for name, (train, test) in tables(folder, options.seed).items():
        began = time.monotonic()
        run = chainrule.fit(train, task="table", budget=60 * options.minutes, seed=options.seed)
        figures += [{"table": name, "job": "train the joint model", "seconds": time.monotonic() - began}]
        for column in ASKED[name]:
            figures += predicted(run, name, train, test, column, options.rows)
        figures += filled(run, name, train, test[: options.rows], options.seed)
    rows = [row for row in figures if "who" in row]
    senses = {"accuracy": ">=", "log loss": "<=", "R²": ">=", "error ÷ median's": "<=", "right categories": ">="}
    publish("instead_tables", figures, duels(rows, ("table", "job"), senses))


def tables(folder: Path, seed: int) -> dict[str, tuple[pandas.DataFrame, pandas.DataFrame]]:
    """Read the training and the test rows of each table; cells that are missing in the files stay so in training."""
    adult = []
    for part in ("train", "test"):
        frame = pandas.read_csv(folder / f"adult-{part}.csv.gz", names=ADULT, skipinitialspace=True, na_values="?")
        adult.append(frame.assign(income=frame.income.str.rstrip(".")))
    wine = pandas.read_csv(folder / "winequality-white.csv", names=WINE)
    wine = wine.sample(frac=1, random_state=seed, ignore_index=True)
    wine = wine.assign(quality=wine.quality.clip(4, 8).map("q{}".format))  # the rarest marks join their neighbours
    cut = len(wine) * 4 // 5
    return {
        "adult": (adult[0], adult[1].dropna().reset_index(drop=True)),
        "white wine": (wine[:cut], wine[cut:].reset_index(drop=True)),
    }


def predicted(
    run: chainrule.Run, name: str, train: pandas.DataFrame, test: pandas.DataFrame, column: str, rows: int
) -> Figures:
    """Predict one column of unseen rows: all of them for a category, the first ones for a number."""
    categorical = not pandas.api.types.is_numeric_dtype(train[column])
    test = test if categorical else test[:rows]
    began = time.monotonic()
    found = run.predict(test, columns=column, seed=0)
    seconds = time.monotonic() - began
    about = {"table": name, "job": f"predict {column}, {len(test):,} rows"}
    known = train.dropna(subset=[column])
    x, z = known.drop(columns=column), test.drop(columns=column)
    for other in x:
        if not pandas.api.types.is_numeric_dtype(x[other]):
            x[other] = pandas.Categorical(x[other])
            z[other] = pandas.Categorical(z[other], categories=x[other].cat.categories)
    kind = HistGradientBoostingClassifier if categorical else HistGradientBoostingRegressor
    began = time.monotonic()
    model = kind(categorical_features="from_dtype", random_state=0, early_stopping=True).fit(x, known[column])
    boosted = time.monotonic() - began
    if categorical:
        classes = model.classes_
        ours = np.array([[shares.get(label, 0.0) for label in classes] for shares in found["shares"]])
        ours /= ours.sum(1, keepdims=True)
        return [
            about | {"who": who, "accuracy": accuracy_score(test[column], classes[p.argmax(1)]),
                     "log loss": log_loss(test[column], p, labels=classes), "seconds": spent}
            for who, p, spent in (("chainrule", ours, seconds), ("boosting", model.predict_proba(z), boosted))
        ]  # fmt: skip
    inside = np.mean(
        [low <= value <= high for low, value, high in zip(found["low"], test[column], found["high"], strict=True)]
    )
    shared = [
        about | {"who": who, "R²": r2_score(test[column], values), "seconds": spent,
                 "mean absolute error": mean_absolute_error(test[column], center)}
        for who, values, center, spent in (
            ("chainrule", found["mean"], found["median"], seconds),
            ("boosting", model.predict(z), model.predict(z), boosted),
        )
    ]  # fmt: skip
    shared[0]["inside 80%"] = float(inside)
    return shared


def filled(run: chainrule.Run, name: str, train: pandas.DataFrame, test: pandas.DataFrame, seed: int) -> Figures:
    """Empty a tenth of the cells, and fill them."""
    gone = np.random.default_rng(seed).random(test.shape) < EMPTIED
    gaps = test.astype(dict.fromkeys(test.select_dtypes("number"), float)).mask(gone)
    began = time.monotonic()
    found = run.predict(gaps, seed=0)
    seconds = time.monotonic() - began
    ours = gaps.copy()
    for row in found:
        ours.loc[row["index"], row["column"]] = (
            row["median"] if row["column"] in test.select_dtypes("number") else row["value"]
        )
    numbers = list(test.select_dtypes("number"))
    began = time.monotonic()
    imputer = IterativeImputer(random_state=0).fit(train[numbers])
    theirs = gaps.copy()
    theirs[numbers] = imputer.transform(gaps[numbers])
    for column in test.columns.difference(numbers):
        theirs[column] = theirs[column].fillna(train[column].mode()[0])
    spent = time.monotonic() - began
    figures = []
    for who, table, took in (("chainrule", ours, seconds), ("IterativeImputer, most frequent", theirs, spent)):
        errors, right = [], []
        for place, column in enumerate(test.columns):
            where = gone[:, place]
            if column in numbers:
                wrong = (table[column] - test[column])[where].abs().mean()
                errors.append(wrong / max((test[column] - train[column].median())[where].abs().mean(), 1e-9))
            else:
                right.append((table[column] == test[column])[where].mean())
        figures.append(
            {"table": name, "job": f"fill {int(gone.sum()):,} cells of {len(test):,} rows", "who": who,
             "error ÷ median's": float(np.median(errors)), "right categories": float(np.mean(right)),
             "empty": int(table.isna().sum().sum()), "seconds": took}
        )  # fmt: skip
    return figures


if __name__ == "__main__":
    main()
