"""`compare_tables`: how much a synthetic table is like a real one: columns, pairs, copies, and a classifier."""

from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from chainrule_app.results import Column, Result

if TYPE_CHECKING:
    from chainrule_app.readers.tables.prepare import TableSchema

Array = npt.NDArray[np.float64]
_BINS = 10  # of a column of numbers, equally full of real rows
_MOST_ROWS = 4000  # of each table that distances and the classifier read, drawn from the seed
_MOST_PAIRS = 2000
_BLOCK = 64  # rows whose distances are computed together
_FOLDS = 5
_COLUMNS = (
    Column("what"),
    Column("column"),
    Column("other"),
    Column("distance", 4),
    Column("association_real", 3, heading="association, real"),
    Column("association_synthetic", 3, heading="synthetic"),
)


def compare_tables(real: Any, synthetic: Any, *, seed: int = 0) -> Result:
    r"""Compare a synthetic table with the real one that it imitates.

    .. math:: d(p, q) = \tfrac{1}{2} \sum_k |p_k - q_k|

    Args:
        real: a path or frame; its rows decide the kinds of the columns. A tenth of them is held out for `distances`.
        synthetic: a path or frame with the same columns.
        seed: seed of the rows held out and drawn.

    Returns:
        A row for each column and each pair: the total variation distance between real and synthetic, numbers in ten
        bins that are equally full of real rows, and for a pair Cramér's V in both tables. The summary has the means;
        `copies`, the share of synthetic rows that equal a real row, and the same share of held-out real rows;
        `nearest`, the median distance to the nearest real row, for synthetic and for held-out rows (equal if the model
        did not memorise rows); and `classifier`, the area under the ROC curve of a classifier of real and synthetic
        rows, 0.5 if they are indistinguishable, with its standard error.

    Raises:
        ValueError: a table cannot be read, or the synthetic one has other columns or cells.
        FileNotFoundError: there is no such file.
    """
    from chainrule_app.inputs import Inputs
    from chainrule_app.readers.tables.prepare import prepare_table

    with ExitStack() as stack:
        inputs = stack.enter_context(Inputs("table"))
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="chainrule-")))
        paths: list[Any] = [inputs.source(real, "real"), inputs.source(synthetic, "synthetic")]
        table = prepare_table(paths[0], folder / "real", seed=seed, min_count=2)
        other = prepare_table(
            paths[1],
            folder / "synthetic",
            validation=paths[1],
            like=(table.schema, table.manifest["columns"]),
            seed=seed,
        )
        train, held_out = np.array(table.train), np.array(table.valid)
        drawn, schema = np.array(other.train), table.schema
    bins = [np.stack(binned, 1) for binned in zip(*_binned(schema, train, drawn), strict=True)]
    rows = [*_marginals(schema, *bins), *_pairs(schema, *bins)]
    summary = _summary(schema, rows, (train, held_out, drawn), bins, seed)
    notes = [f"classifier: {summary.pop('classifier_model')}"]
    return Result(_COLUMNS, rows, summary=lambda: summary, notes=lambda: notes, rank="distance", about={"seed": seed})


def _binned(schema: "TableSchema", train: Array, drawn: Array) -> Iterator[tuple[Array, Array]]:
    """Bin the columns of both tables: categories, or ten bins with equally many real rows."""
    for index, column in enumerate(schema.kept):
        pair = train[:, index], drawn[:, index]
        if column.kind != "categorical":
            present = pair[0][~np.isnan(pair[0])]
            edges = np.unique(np.quantile(present, np.linspace(0, 1, _BINS + 1)[1:-1])) if len(present) else np.zeros(0)
            real, synthetic = (np.where(np.isnan(part), len(edges) + 1, np.searchsorted(edges, part)) for part in pair)
            pair = real, synthetic
        yield pair


def _total_variation(first: Array, second: Array) -> float:
    values, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    shares = [
        np.bincount(part, minlength=len(values)) / len(part) for part in np.split(places.reshape(-1), [len(first)])
    ]
    return float(0.5 * np.abs(shares[0] - shares[1]).sum())


def _cramers_v(first: Array, second: Array) -> float:
    r"""Compute V = √(χ² / (n · (min(rows, columns) − 1))); 0 if a column is constant."""
    _, rows = np.unique(first, return_inverse=True)
    _, columns = np.unique(second, return_inverse=True)
    counts = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(counts, (rows.reshape(-1), columns.reshape(-1)), 1)
    if min(counts.shape) < 2:
        return 0.0
    expected = counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    return float(np.sqrt(chi_squared / (counts.sum() * (min(counts.shape) - 1))))


def _marginals(schema: "TableSchema", real: Array, drawn: Array) -> Iterator[tuple[Any, ...]]:
    for index, column in enumerate(schema.kept):
        yield "column", column.name, None, _total_variation(real[:, index], drawn[:, index]), None, None


def _pairs(schema: "TableSchema", real: Array, drawn: Array) -> Iterator[tuple[Any, ...]]:
    names = [column.name for column in schema.kept]
    for number, (a, b) in enumerate(combinations(range(len(names)), 2)):
        if number == _MOST_PAIRS:
            return
        width = 1 + max(real[:, b].max(), drawn[:, b].max())
        joint = [part[:, a] * width + part[:, b] for part in (real, drawn)]
        associations = [_cramers_v(part[:, a], part[:, b]) for part in (real, drawn)]
        yield "pair", names[a], names[b], _total_variation(*joint), *associations


def _summary(
    schema: "TableSchema", rows: list[tuple[Any, ...]], tables: tuple[Array, Array, Array], bins: list[Array], seed: int
) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    train, held_out, drawn = (
        part[random.permutation(len(part))[:_MOST_ROWS]] if len(part) > _MOST_ROWS else part for part in tables
    )
    whole = {row.tobytes() for row in tables[0]}
    categorical = np.array([column.kind == "categorical" for column in schema.kept])
    scale = np.nan_to_num(np.nanmax(train, 0) - np.nanmin(train, 0))
    scale = np.where(categorical | (scale == 0), 1.0, scale)
    area, error, model = _classifier(np.nan_to_num(train), np.nan_to_num(drawn), categorical, seed)
    pairs = [row for row in rows if row[0] == "pair"]
    return {
        "real_rows": len(tables[0]) + len(tables[1]),
        "synthetic_rows": len(tables[2]),
        "columns_distance": float(np.mean([row[3] for row in rows if row[0] == "column"])),
        "pairs_distance": float(np.mean([row[3] for row in pairs])) if pairs else None,
        "association_difference": max((abs(row[4] - row[5]) for row in pairs), default=None),
        "copies": float(np.mean([row.tobytes() in whole for row in tables[2]])),
        "copies_held_out": float(np.mean([row.tobytes() in whole for row in tables[1]])),
        "nearest": float(np.median(_nearest(drawn, train, categorical, scale))),
        "nearest_held_out": float(np.median(_nearest(held_out, train, categorical, scale))),
        "classifier": area,
        "classifier_error": error,
        "classifier_model": model,
    }


def _nearest(rows: Array, among: Array, categorical: npt.NDArray[np.bool_], scale: Array) -> Array:
    """Compute Gower's distance of each row to its nearest: the mean over columns of differences from 0 to 1."""
    distances = []
    for start in range(0, len(rows), _BLOCK):
        apart = np.abs(np.nan_to_num(rows[start : start + _BLOCK, None]) - np.nan_to_num(among[None])) / scale
        apart = np.where(categorical, apart > 0, np.minimum(apart, 1.0))
        distances.append(apart.mean(2).min(1))
    return np.concatenate(distances)


def _classifier(real: Array, drawn: Array, categorical: npt.NDArray[np.bool_], seed: int) -> tuple[float, float, str]:
    """Return the area under the ROC curve of a two-sample test, its standard error, and the classifier."""
    size = min(len(real), len(drawn))
    rows, labels = np.concatenate([real[:size], drawn[:size]]), np.repeat([0, 1], size)
    if find_spec("sklearn") is None:
        scale = np.where(categorical, 1.0, rows.std(0) + 1e-12)
        scores = np.zeros(2 * size)
        for index in range(2 * size):  # leave one out: the label of the nearest other row
            apart = np.where(categorical, rows != rows[index], np.abs(rows - rows[index]) / scale).sum(1)
            apart[index] = np.inf
            scores[index] = labels[np.argmin(apart)]
        model = "nearest neighbour (install scikit-learn to detect finer differences)"
    else:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.model_selection import StratifiedKFold, cross_val_predict

        small = categorical & (rows.max(0) < 255)
        learner = HistGradientBoostingClassifier(categorical_features=small, random_state=seed)
        folds = StratifiedKFold(min(_FOLDS, size), shuffle=True, random_state=seed)
        scores = cross_val_predict(learner, rows, labels, cv=folds, method="predict_proba")[:, 1]
        model = f"gradient boosting of scikit-learn, {_FOLDS}-fold cross-validation on {2 * size:,} rows"
    area = _area(scores, labels)
    return area, float(np.sqrt((2 * size + 1) / (12 * size * size))), model  # of Mann and Whitney's U where p = q


def _area(scores: Array, labels: npt.NDArray[Any]) -> float:
    """Compute the area under the ROC curve: the chance that a synthetic row scores above a real one."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places.reshape(-1)]
    ones = int(labels.sum())
    return float((ranks[labels == 1].sum() - ones * (ones + 1) / 2) / (ones * (len(labels) - ones)))
