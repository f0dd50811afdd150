"""The held-out rows of a table by simpler means: boosting of the target, or frequencies of each column."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from chainrule_app.heavy import modes, np, torch
from chainrule_app.tasks.baseline import Baseline, likelihoods

if TYPE_CHECKING:
    from chainrule_app.tasks.table.task import TableTask

_COST = 2e-6  # seconds of boosting for a row, a column and a class, at most on a slow core
_FEWEST, _MOST_HELD_OUT, _TOGETHER = 200, 2000, 256
_STOPPED_BY = 10  # rows of training for each that boosting holds out


def table_baseline(run: "TableTask", model: Any, seconds: float) -> Baseline | None:
    """Compare with boosting of the target, or without one with the frequencies of each column."""
    if run.data.target is None:
        return _frequencies(run, model, seconds)
    return _boosting(run, model, [column.name for column in run.schema.kept].index(run.data.target), seconds)


def _boosting(run: "TableTask", model: Any, target: int, seconds: float) -> Baseline | None:
    """Compare the log loss of a category with gradient boosting, on as many rows as the time is enough for."""
    column, table = run.schema.kept[target], run.table()
    if column.kind != "categorical" or find_spec("sklearn") is None:
        return None
    others = [number for number in range(table.train.shape[1]) if number != target]
    rows = int(seconds / (_COST * len(others) * len(column.categories)))
    if not others or rows < _FEWEST:
        return None
    from sklearn.ensemble import HistGradientBoostingClassifier

    train, valid = np.array(table.train[:rows]), np.array(table.valid[:_MOST_HELD_OUT])
    kinds = [run.schema.kept[number] for number in others]
    categorical = [kind.kind == "categorical" and len(kind.categories) < 250 for kind in kinds]
    train = train[np.isfinite(train[:, target])]
    valid = valid[np.isfinite(valid[:, target])]
    counts = np.unique(train[:, target], return_counts=True)[1]
    if len(counts) < 2 or not len(valid):
        return None
    # It stops by a tenth of the rows, which must hold each class.
    stops = bool(counts.min() > 1 and len(train) >= _STOPPED_BY * len(counts))
    boosted = HistGradientBoostingClassifier(early_stopping=stops, random_state=0, categorical_features=categorical)
    shares = boosted.fit(train[:, others], train[:, target]).predict_proba(valid[:, others])
    place = {value: index for index, value in enumerate(boosted.classes_.tolist())}
    right = [place.get(value) for value in valid[:, target].tolist()]
    found = np.array([0.0 if index is None else row[index] for row, index in zip(shares, right, strict=True)])
    nats = float(-np.log(found.clip(1e-15)).mean())
    parts = [part.to(modes.device_of(model)) for part in torch.from_numpy(valid).split(_TOGETHER)]
    own = -float(torch.cat([model(part).log_prob(part)[:, target] for part in parts]).mean())
    return Baseline("gradient boosting", nats, own, f"nats for {column.name}")


def _frequencies(run: "TableTask", model: Any, seconds: float) -> Baseline | None:
    """Compare the nats of a row with the frequencies of the values of each column, where all are categories."""
    table, columns = run.table(), run.schema.kept
    if any(column.kind != "categorical" for column in columns):
        return None
    width = len(columns)
    own, _ = likelihoods(model, model, lambda: run.batches((0, 1))[1](), seconds / 2)
    nats = 0.0
    for number, column in enumerate(columns):
        seen, held_out = table.train[:, number], table.valid[:, number]
        values, counts = np.unique(seen[np.isfinite(seen)], return_counts=True)
        missing = int((~np.isfinite(seen)).sum())
        size = len(seen) + len(column.categories) + 1
        found = dict(zip(values.tolist(), counts.tolist(), strict=True))
        counted = [found.get(value, 0) if np.isfinite(value) else missing for value in held_out.tolist()]
        nats -= float(np.log((np.array(counted) + 1) / size).mean())
    return Baseline("column frequencies", nats, own * width, "nats per row")
