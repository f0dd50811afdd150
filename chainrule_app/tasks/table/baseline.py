"""The held-out rows of a table by simpler means: boosting of the target, or frequencies of each column."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from chainrule_app.heavy import modes, np, torch
from chainrule_app.tasks.baseline import Baseline, measured

if TYPE_CHECKING:
    from chainrule.heads import Column
    from chainrule_app.tasks.table.task import TableTask

_COST = 2e-6  # seconds of boosting for a row, a column and a class, at most on a slow core
_FEWEST, _MOST_HELD_OUT, _TOGETHER = 200, 2000, 256
_MOST_PREDICTED = 500  # held-out rows whose mean is an integral
_MOST_CELLS = 50  # of a histogram
_STOPPED_BY = 10  # rows of training for each that boosting holds out


def table_baseline(run: "TableTask", model: Any, seconds: float) -> Baseline | None:
    """Compare with boosting of the target, or without one with the frequencies of each column."""
    if run.data.target is None:
        return _frequencies(run, model, seconds)
    return _boosting(run, model, [column.name for column in run.schema.kept].index(run.data.target), seconds)


def _boosting(run: "TableTask", model: Any, target: int, seconds: float) -> Baseline | None:
    """Compare the target's log loss, or root mean squared error, with boosting on as many rows as there is time for."""
    column, table = run.schema.kept[target], run.table()
    classes, width = len(column.categories) if column.kind == "categorical" else 1, table.train.shape[1]
    rows = int(seconds / (_COST * max(width - 1, 1) * classes))
    if find_spec("sklearn") is None or width < 2 or rows < _FEWEST:
        return None
    train, valid = np.array(table.train[:rows]), np.array(table.valid[:_MOST_HELD_OUT])
    train, valid = (part[np.isfinite(part[:, target])] for part in (train, valid))
    if not len(train) or not len(valid) or len(np.unique(train[:, target])) < 2:
        return None
    others = np.arange(width) != target
    kinds = [kind for kind, is_input in zip(run.schema.kept, others, strict=True) if is_input]
    options: dict[str, Any] = {
        "random_state": 0,
        "categorical_features": [kind.kind == "categorical" and len(kind.categories) < 250 for kind in kinds],
    }
    return (_classified if column.kind == "categorical" else _regressed)(model, train, valid, target, others, options)


def _classified(model: Any, train: Any, valid: Any, target: int, others: Any, options: dict[str, Any]) -> Baseline:
    from sklearn.ensemble import HistGradientBoostingClassifier

    # It stops by a tenth of the rows, which must hold each class.
    counts = np.unique(train[:, target], return_counts=True)[1]
    stops = bool(counts.min() > 1 and len(train) >= _STOPPED_BY * len(counts))
    boosted = HistGradientBoostingClassifier(early_stopping=stops, **options)
    shares = boosted.fit(train[:, others], train[:, target]).predict_proba(valid[:, others])
    place = {value: index for index, value in enumerate(boosted.classes_.tolist())}
    right = [place.get(value) for value in valid[:, target].tolist()]
    found = np.array([0.0 if index is None else row[index] for row, index in zip(shares, right, strict=True)])
    nats = float(-np.log(found.clip(1e-15)).mean())
    parts = [part.to(modes.device_of(model)) for part in torch.from_numpy(valid).split(_TOGETHER)]
    own = -float(torch.cat([model(part).log_prob(part)[:, target] for part in parts]).mean())
    return Baseline("gradient boosting", nats, own, "nats for the target")


def _regressed(model: Any, train: Any, valid: Any, target: int, others: Any, options: dict[str, Any]) -> Baseline:
    from sklearn.ensemble import HistGradientBoostingRegressor

    from chainrule.decoding import conditional

    valid = valid[:_MOST_PREDICTED]
    boosted = HistGradientBoostingRegressor(**options).fit(train[:, others], train[:, target])
    (found,) = conditional(model, torch.from_numpy(valid), [target])
    value, own = (
        float(np.sqrt(np.square(means - valid[:, target]).mean()))
        for means in (boosted.predict(valid[:, others]), found.mean.cpu().numpy())
    )
    return Baseline("gradient boosting", value, own, "RMSE of the target")


def _frequencies(run: "TableTask", model: Any, seconds: float) -> Baseline:
    """Compare the nats of a row with the frequencies of the values of each column alone."""
    table, columns = run.table(), run.schema.heads()
    own, _ = measured(model, run.batches((0, 1))[1], seconds / 2)
    rows = zip(columns, table.train.T, table.valid.T, strict=True)
    nats = -sum(float(log_frequencies(*column).mean()) for column in rows)
    return Baseline("column frequencies", nats, own * len(columns), "nats per row")


def log_frequencies(column: "Column", seen: Any, held_out: Any) -> Any:
    """Return the log-frequency of each held-out value of a column among those that were seen.

    Numbers without a probability each have that of their cell of a histogram with cells of equal counts.
    """
    seen, held_out = (np.array(values, dtype=np.float64) for values in (seen, held_out))
    symbols, wanted = _symbols(column, seen), _symbols(column, held_out)
    logs = np.log((np.bincount(symbols, minlength=column.symbols) + 1) / (len(seen) + column.symbols))[wanted]
    if not column.numeric:
        return logs
    numbers, others = seen[symbols == column.symbols - 1], wanted == column.symbols - 1
    whole = column.kind == "integer"  # a number is a cell of width 1
    cells = min(max(round(len(numbers) ** 0.5), 1), _MOST_CELLS)
    edges = np.quantile(numbers, np.linspace(0, 1, cells + 1)) if len(numbers) else np.zeros(1)
    edges = np.unique(np.floor(edges) - 0.5 if whole else edges)
    least = 1.0 if whole else column.finest * column.scale
    outside = max(edges[-1] - edges[0], least)
    edges = np.concatenate([[edges[0] - outside], edges, [edges[-1] + least, edges[-1] + least + outside]])
    counts = np.histogram(numbers, edges)[0] + 1
    densities = counts / counts.sum() / np.diff(edges).clip(least)
    logs[others] += np.log(densities)[(np.searchsorted(edges, held_out[others], "right") - 1).clip(0, len(counts) - 1)]
    return logs


def _symbols(column: "Column", values: Any) -> Any:
    """Return the symbol of each value, see `Column`."""
    if not column.numeric:
        return np.nan_to_num(values).round().astype(int)
    symbols = np.full(len(values), column.symbols - 1)
    if column.missing:
        symbols[np.isnan(values)] -= 1
    for symbol, atom in enumerate(column.atoms):
        symbols[values == atom] = symbol
    return symbols
