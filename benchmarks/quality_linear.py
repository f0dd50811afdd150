"""Forecasts of few rows: `chainrule train` with its defaults, the network alone, and the last season with its errors.

    python benchmarks/quality_linear.py [--set airline ...] [--seconds 30] [--seeds 3] [--data FOLDER]

Each set is cut into the rows that a run gets, of which it holds out its own tail, and the rows after them, which are
forecast from origins a horizon apart. CRPS is in standard deviations of the rows known, its mean over series and seeds.

    airline       passengers a month: nine years known, three forecast, a year ahead
    temperature   lowest of each day, Melbourne: two years known, the third forecast, two weeks ahead
    transformer   7 loads of ETTh1 each hour: sixty days known, thirty forecast, a day ahead
    load          the artificial load of docs/forecasting.md: sixty days known, thirty forecast, a day ahead

FOLDER is ../shared/data or the environment variable CHAINRULE_DATA; what is absent is skipped.
"""

import argparse
import csv
import gzip
import math
import os
import random
import tempfile
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

from peer_tasks import chainrule
from side_by_side import claim, publish

from chainrule_app import open_run

Rows = list[list[str]]
NAIVE = "seasonal-naive with its errors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SETS, nargs="+", default=list(SETS))
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seeds", type=int, default=3, help="so many runs of each, seeds 0, 1, ...")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    for name in options.set:
        read, known, horizon, asked = SETS[name]
        try:
            table = list(read(options.data / "time_series"))
        except FileNotFoundError as error:
            print(f"{name}: skipped: {error}")
            continue
        with tempfile.TemporaryDirectory() as directory:
            for seed in range(options.seeds):
                rows.append(measure(name, table, known, [*asked, "--horizon", horizon], Path(directory), seed, options))
        found = {way: mean(row[way] for row in rows if row["set"] == name) for way in ("default", "network", NAIVE)}
        what = f"{name}: CRPS of chainrule train ÷ of the network alone"
        claims.append(claim(what, found["default"] / found["network"], "<=", 1))
        claims.append(claim(f"{name}: the same ÷ {NAIVE}", found["default"] / found[NAIVE], "<=", 1))
        publish("quality_linear", rows, claims)


def measure(
    name: str, table: Rows, known: int, asked: list[Any], folder: Path, seed: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Train both on the rows that are known, and forecast the others; a row of the table."""
    for part, lines in (("known", table[: known + 1]), ("all", table)):
        with open(folder / f"{part}.csv", "w", newline="") as file:
            csv.writer(file).writerows(lines)
    columns = {column: place for place, column in enumerate(table[0])}
    row: dict[str, Any] = {"set": name, "seed": seed}

    def crps(found: dict[str, Any], forecast: str) -> float:
        scores = {score["series"]: score["crps"] for score in found["scores"] if score["forecast"] == forecast}
        units = {series: pstdev(float(line[columns[series]]) for line in table[1 : known + 1]) for series in scores}
        return mean(score / units[series] for series, score in scores.items())

    for way, more in (("default", []), ("network", ["--no-linear"])):
        run = folder / "run"
        given = ["--task", "forecast", "--budget", f"{options.seconds:g}s", "--seed", seed, "--out", run, "--overwrite"]
        chainrule("train", folder / "known.csv", *map(str, [*given, *asked, *more]))
        (found,) = chainrule("evaluate", run, folder / "all.csv", "--start", str(known + 1))
        row[way] = crps(found, "model")
        row[f"nats, {way}"] = found["nats_per_value"]
        if way == "default":
            row[NAIVE] = crps(found, NAIVE)
            row["share of the line"] = float(open_run(run).model().share)
    return row


def airline(folder: Path) -> Rows:
    """A header, and a row a month."""
    with open(folder / "airline-passengers.csv", newline="") as file:
        return list(csv.reader(file))


def temperature(folder: Path) -> Rows:
    """Three years before the first day that is missing, 31 December 1984."""
    with open(folder / "daily-min-temperatures.csv", newline="") as file:
        return list(csv.reader(file))[: 1 + 3 * 365]


def transformer(folder: Path) -> Rows:
    with gzip.open(folder / "ETTh1.csv.gz", "rt", newline="") as file:
        return list(csv.reader(file))[: 1 + 90 * 24]


def load(_: Path) -> Iterable[list[str]]:
    """A sine of the hour, lower on weekends, with noise that is correlated."""
    source, noise = random.Random(0), 0.0
    yield ["date", "load"]
    for hour in range(24 * 90):
        moment = datetime(2024, 1, 1) + timedelta(hours=hour)
        noise = 0.8 * noise + source.gauss(0, 3)
        weekend = 15 * (moment.weekday() >= 5)
        yield [str(moment), f"{100 + 30 * math.sin(math.tau * (moment.hour - 8) / 24) - weekend + noise:.2f}"]


SETS: dict[str, tuple[Callable[[Path], Iterable[list[str]]], int, int, list[Any]]] = {
    "airline": (airline, 108, 12, ["--target", "Passengers"]),
    "temperature": (temperature, 730, 14, ["--target", "Temp"]),
    "transformer": (transformer, 1440, 24, ["--target", "all"]),
    "load": (load, 1440, 24, ["--target", "load"]),
}

if __name__ == "__main__":
    main()
