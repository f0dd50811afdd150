"""Forecasts of many series in the long form of statsforecast: `unique_id`, `ds` and `y` in, a point and bounds out."""

import io
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stderr
from typing import Any

import narwhals as nw
import polars

from chainrule.option_error import OptionError
from chainrule_app import frames
from chainrule_app.fitting import fit

__all__ = ["forecast"]
_COLUMNS = ("unique_id", "ds", "y")
_NAME = "chainrule"
_PATHS = 500  # sample paths, and more where the outer quantiles need them
_BEYOND = 20  # paths beyond each outer quantile


def forecast(
    df: Any,
    h: int,
    level: Sequence[float] = (80, 95),
    *,
    budget: str | float | None = None,
    seed: int = 0,
    verbose: bool = False,
    **options: Any,
) -> Any:
    """Train one model on all series and forecast the next h values of each, as `StatsForecast.forecast` does.

    Args:
        df: a frame of pandas, polars or Arrow with the columns `unique_id`, `ds` (dates, times or whole numbers) and
            `y`, in any order of rows.
        h: number of steps to forecast.
        level: coverages of central intervals in percent.
        budget: training time, such as "30s"; the default of forecasts if it is left out.
        seed: of training and of the paths that are drawn.
        verbose: whether training prints its progress.
        **options: of `chainrule.fit` for a forecast, such as `season=7` or `hidden_size=32`.

    Returns:
        A frame of the same library with `unique_id`, `ds`, the mean as `chainrule`, and `chainrule-lo-80`,
        `chainrule-hi-80` and so on for each level.

    Raises:
        OptionError: columns are missing or are none of the three, or a level is no percentage.

    >>> days = [day for day in range(30) for _ in "ab"]
    >>> sales = polars.DataFrame({"unique_id": ["a", "b"] * 30, "ds": days, "y": [day % 7 for day in days]})
    >>> ahead = forecast(sales, h=2, level=[80], steps=1, hidden_size=4)
    >>> ahead.columns, ahead.shape
    (['unique_id', 'ds', 'chainrule', 'chainrule-lo-80', 'chainrule-hi-80'], (4, 5))
    """
    levels = sorted(level)
    if not levels or not all(0 < share < 100 for share in levels):
        raise OptionError("level", f"expected percentages between 0 and 100, got {level!r:.60}")
    if not frames.is_frame(df) or frames.is_series(df):
        raise OptionError("df", f"expected a frame with the columns unique_id, ds and y, got {type(df).__name__}")
    table = _table_of(df)
    kinds, last = dict(table.schema), None
    if table["ds"].dtype.is_integer():
        last = table.group_by("unique_id").agg(polars.col("ds").max())
        table = table.drop("ds")
    roles = {"item": "unique_id", "target": "y", "date": "none" if last is not None else "ds"}
    with nullcontext() if verbose else redirect_stderr(io.StringIO()):
        run: Any = fit(table, task="forecast", horizon=h, budget=budget, **{"seed": seed, **roles, **options})
        quantiles = sorted(q for share in levels for q in _ends(share))
        paths = max(_PATHS, int(_BEYOND / quantiles[0]))
        ahead = run.forecast(quantiles=",".join(f"{q:.6g}" for q in quantiles), paths=paths, seed=seed)
    times = ahead["ds"] if last is None else _counted_on(ahead["unique_id"], last)
    columns = {
        "unique_id": polars.Series(ahead["unique_id"], dtype=kinds["unique_id"]),
        "ds": polars.Series(times).cast(kinds["ds"]),
        _NAME: ahead["mean"],
    }
    for share in levels:
        columns |= {
            f"{_NAME}-{side}-{share:g}": ahead[f"q{q:.6g}"] for side, q in zip(("lo", "hi"), _ends(share), strict=True)
        }
    return _like(df, polars.DataFrame(columns))


def _ends(share: float) -> tuple[float, float]:
    """Return the quantiles at both ends of a central interval.

    >>> _ends(80)
    (0.1, 0.9)
    """
    return (100 - share) / 200, (100 + share) / 200


def _counted_on(ids: Sequence[Any], last: polars.DataFrame) -> list[int]:
    """Return the numbers after the last one of each series, in the order of the forecasts."""
    ends, steps = dict(last.iter_rows()), Counter[Any]()
    times = []
    for name in ids:
        steps[name] += 1
        times.append(ends[name] + steps[name])
    return times


def _like(df: Any, answer: polars.DataFrame) -> Any:
    """Return the answer in the library of a frame, with its types of `unique_id` and `ds`."""
    keys, library = _COLUMNS[:2], nw.from_native(df).implementation
    if library.is_pandas_like():
        return answer.to_pandas().astype({name: df[name].dtype for name in keys})
    if library.is_pyarrow():
        arrow = answer.to_arrow()
        for place, name in enumerate(keys):
            arrow = arrow.set_column(place, name, arrow[name].cast(df.schema.field(name).type))
        return arrow
    return answer


def _table_of(df: Any) -> polars.DataFrame:
    """Return the three columns as a frame of polars, sorted by series and time."""
    own = nw.from_native(df)
    names = own.collect_schema().names()
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        raise OptionError("df", f"expected the columns unique_id, ds and y, got {', '.join(names)}", "rename them")
    if more := [name for name in names if name not in _COLUMNS]:
        raise OptionError(
            "df", f"expected unique_id, ds and y alone, got {more[0]!r} too", "drop it, or use chainrule.fit"
        )
    eager = own.collect() if isinstance(own, nw.LazyFrame) else own
    return polars.DataFrame(eager.to_polars()).sort("unique_id", "ds").select(_COLUMNS)
