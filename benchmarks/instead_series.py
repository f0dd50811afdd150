"""Odd values of series: `score` of a forecaster with its defaults, and what people use instead.

    python benchmarks/instead_series.py [--data FOLDER] [--seconds 30] [--seed 1] [--set airline ...]

The sets of `instead_forecasts.py` whose values are measured ones (see there for FOLDER; statsmodels, whose series are
read, belongs to no extra). In each series 2% of the values, six at least, are planted: half of them lie off by 4 to 8
robust standard deviations of the differences from a season before, half were exchanged with another value of the
series. Each series is its own training data, as where nobody has labelled anything, and chainrule is told the season.

    STL        the residual of statsmodels' STL (robust), in units of its median absolute value; where there is no
               season, of a rolling median of seven values
    forest     scikit-learn's IsolationForest on each value with the three before, the one after and a season before
    seasonal   the difference from a season before, in units of its median absolute value

Figures are the average precision of the ranking of values, after the first season.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from instead_forecasts import SETS, Set, filled
from side_by_side import duels, publish, report
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score

import chainrule

MEASURED = [name for name in SETS if name not in ("counts", "intermittent")]  # not generated
MOST_ROWS = 2000
PLANTED, LEAST = 0.02, 6
WAYS = ("chainrule", "STL", "forest", "seasonal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seconds", type=float, default=30.0, help="of training, each set")
    parser.add_argument("--seed", type=int, default=1, help="0 was used to choose")
    parser.add_argument("--set", choices=MEASURED, nargs="+", default=MEASURED)
    options = parser.parse_args()
    if not (options.data / "time_series").is_dir():
        print(f"skipped, there is no {options.data / 'time_series'}: name the folder with --data")
        return
    figures: list[dict[str, Any]] = []
    for name in options.set:
        began = time.process_time()
        figures.append(
            {"set": name} | precisions(SETS[name](options.data / "time_series"), options.seconds, options.seed)
        )
        figures[-1]["seconds"] = time.process_time() - began
        print(figures[-1], file=sys.stderr, flush=True)
    figures.append({"set": "mean"} | {who: float(np.mean([row[who] for row in figures])) for who in WAYS})
    if options.set != MEASURED:
        report(figures, [])
        return
    long = [{"who": who, "average precision": figures[-1][who]} for who in WAYS]
    publish("instead_series", figures, duels(long, (), {"average precision": ">="}))


def precisions(own: Set, seconds: float, seed: int) -> dict[str, Any]:
    """Return the mean over the series of a set of the average precision of each way."""
    rows = min(len(next(iter(own.columns.values()))), MOST_ROWS)
    columns, odd = {}, {}
    for number, (name, values) in enumerate(own.columns.items()):
        columns[name], odd[name] = planted(values[-rows:], own.season, np.random.default_rng([seed, number]))
    frame = pandas.DataFrame(columns)
    if own.dates is not None:
        frame.insert(0, "date", own.dates[-rows:])
    run = chainrule.fit(
        frame, task="forecast", target="all", horizon=own.horizon, season=own.season, budget=seconds, seed=seed
    )
    found = run.score(frame).to_pandas()
    figures: dict[str, list[float]] = {who: [] for who in WAYS}
    for name, values in columns.items():
        excess = found[found["series"] == name]["excess"].to_numpy()
        seen = np.isfinite(values)
        seen[: own.season] = False
        scores = {who: score(filled(values), own.season, seed)[seen] for who, score in OTHERS.items()}
        for who, score in (scores | {"chainrule": excess}).items():
            figures[who].append(average_precision_score(odd[name][seen], score))
    return {"series": len(columns), "rows": rows} | {who: float(np.mean(each)) for who, each in figures.items()}


def planted(values: np.ndarray, season: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Plant odd values; return the series, and which values are odd."""
    values, odd = values.astype(float).copy(), np.zeros(len(values), dtype=bool)
    there = np.flatnonzero(np.isfinite(values))
    there = there[there >= 2 * season]
    count = max(round(PLANTED * len(values)), LEAST)
    places = random.choice(there, count, replace=False)
    step = values[season:] - values[:-season]
    scale = np.nanmedian(np.abs(step)) * 1.4826
    for place in places[: count // 2]:
        values[place] += random.choice([-1, 1]) * random.uniform(4, 8) * scale
    rest = places[count // 2 :]
    values[rest] = values[rest[np.roll(np.arange(len(rest)), 1)]]
    odd[places] = True
    return values, odd


def in_units(residuals: np.ndarray) -> np.ndarray:
    return np.abs(residuals) / np.median(np.abs(residuals))


def stl(values: np.ndarray, season: int, seed: int) -> np.ndarray:
    if season == 1:
        centre = pandas.Series(values).rolling(7, center=True, min_periods=1).median().to_numpy()
        return in_units(values - centre)
    from statsmodels.tsa.seasonal import STL

    return in_units(STL(values, period=season, robust=True).fit().resid)


def forest(values: np.ndarray, season: int, seed: int) -> np.ndarray:
    series = pandas.Series(values)
    lags = pandas.concat([series, *(series.shift(lag) for lag in (1, 2, 3, -1, season))], axis=1).bfill().ffill()
    return -IsolationForest(random_state=seed).fit(lags.to_numpy()).score_samples(lags.to_numpy())


def seasonal(values: np.ndarray, season: int, seed: int) -> np.ndarray:
    step = np.zeros(len(values))
    step[season:] = values[season:] - values[:-season]
    return in_units(step)


OTHERS = {"STL": stl, "forest": forest, "seasonal": seasonal}

if __name__ == "__main__":
    main()
