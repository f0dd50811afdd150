"""Forecasts of thirteen sets of series beside statsforecast's AutoETS, AutoARIMA, AutoTheta and MSTL.

    python benchmarks/instead_forecasts.py [--set airline ...] [--seconds 30] [--seed 0] [--part test]
                                           [--only chainrule] [--data FOLDER] [--answers FILE]

statsforecast and statsmodels, whose data sets are read, belong to no extra: `pip install statsforecast`. Another folder
with them goes into PYTHONPATH. Without them, or without FOLDER (default: ../shared/data, or CHAINRULE_DATA), what needs
them is skipped with a line.

A set ends with a validation part and a test part of equal length, forecast from origins one horizon apart. Methods of
statsforecast are fitted to all rows before an origin, of long series to the last 1,500, and again at each origin
(AutoARIMA of the hourly loads, minutes each, to 720 rows before the first origin, and moved on by `forward`); the one
with the smallest loss of the validation part is compared in the test part. `chainrule.fit` gets its defaults, the
horizon, the season and `--seconds`, and all rows before the first test origin, from which it holds out its own. It is
not trained again at later origins. `--part valid` forecasts the validation part from the rows before it, and leaves the
test rows alone: for choosing anything about chainrule.

The loss is the mean pinball loss of the quantiles 0.1 to 0.9, divided by that of the seasonal naive forecast, whose
quantiles are one value; its mean over the series of a set. Each answer is kept in the file of answers, and computed
once.

    airline      passengers a month, trending, short        nile         flow a year, short
    inflation    prices and interest, quarterly, short      equipment    production a month
    sunspots     a year                                     elnino       temperature of the sea, monthly
    economy      five series of the USA, quarterly          carbon       CO2 a week, with gaps
    temperature  lowest of each day                         transformer  three loads of ETTh1, hourly
    exchange     two rates, daily                           counts       generated: sales a day, negative binomial
    intermittent generated: parts a week, mostly none
"""

import argparse
import csv
import gzip
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import polars
from side_by_side import claim, publish, report

from chainrule.files import write_json
from chainrule_app import fit

LEVELS = [round(0.1 * k, 1) for k in range(1, 10)]
PEERS = ("AutoETS", "AutoARIMA", "AutoTheta", "MSTL")
MOST_ROWS, MOST_SEASON = 1500, 24  # that a method of statsforecast is fitted to; beyond it only MSTL has a season
SHORT = 150  # rows


@dataclass
class Set:
    columns: dict[str, np.ndarray]
    season: int
    horizon: int
    origins: int  # of the validation part, and of the test part
    dates: list[datetime] | None = None
    longer: int | None = None  # a second season, for MSTL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SETS, nargs="+", default=list(SETS))
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", choices=("test", "valid"), default="test")
    parser.add_argument("--only", choices=("chainrule", "peers"))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument(
        "--answers", type=Path, default=Path("instead_forecasts.json"), help="answers that are computed"
    )
    options = parser.parse_args()
    known = json.loads(options.answers.read_text()) if options.answers.exists() else {}

    def answer(key: str, work: Callable[[], list[float]]) -> list[float]:
        if key not in known:
            known[key] = work()
            write_json(options.answers, known)
        losses: list[float] = known[key]
        return losses

    rows, validation = [], list[dict[str, float]]()
    for name in options.set:
        try:
            series = SETS[name](options.data / "time_series")
        except (FileNotFoundError, ModuleNotFoundError) as error:
            print(f"{name}: skipped: {error}", flush=True)
            continue
        row: dict[str, Any] = {"set": name, "series": len(series.columns), "rows": rows_of(series)}
        parts = ("valid", "test") if options.part == "test" else ("valid",)
        if options.only != "chainrule":
            if find_spec("statsforecast") is None:
                parser.exit(2, "statsforecast is not installed: pip install statsforecast, or pass --only chainrule\n")
            losses: dict[str, dict[str, float]] = {part: {} for part in parts}
            for part, peer in product(parts, PEERS):
                of_series = answer(f"{name}/{peer}/{part}", partial(peer_losses, series, peer, part))
                losses[part][peer] = mean(of_series)
            chosen = min(PEERS, key=losses["valid"].__getitem__)
            row |= {**losses[parts[-1]], "chosen": chosen, "of the chosen": losses[parts[-1]][chosen]}
            validation.append(losses["valid"])
        if options.only != "peers":
            key = f"{name}/chainrule/{options.part}/{options.seconds:g}/{options.seed}"
            of_series = answer(key, partial(own_losses, series, options.part, options.seconds, options.seed))
            row["chainrule"] = mean(of_series)
        print(row, flush=True)
        rows.append(row)
    if rows and options.only is None:
        own, claims = mean(row["chainrule"] for row in rows), []
        single = min(PEERS, key=lambda peer: mean(losses[peer] for losses in validation))
        ratio = own / mean(row[single] for row in rows)
        claims.append(claim(f"mean pinball loss ÷ of {single}, the best single method by validation", ratio, "<=", 0.9))
        ratio = own / mean(row["of the chosen"] for row in rows)
        claims.append(claim("the same ÷ of the methods chosen by validation for each set", ratio, "<=", 1))
        if short := [row for row in rows if row["rows"] < SHORT]:
            ratio = mean(row["chainrule"] for row in short) / mean(row["AutoETS"] for row in short)
            claims.append(claim(f"the same, under {SHORT} rows, ÷ of AutoETS", ratio, "<=", 1))
        if options.part == "test":
            publish("instead_forecasts", rows, claims)
        else:
            report(rows, claims)


def rows_of(series: Set) -> int:
    return len(next(iter(series.columns.values())))


def origins_of(series: Set, part: str) -> list[int]:
    ahead = series.horizon * series.origins
    first = rows_of(series) - (ahead if part == "test" else 2 * ahead)
    return list(range(first, first + ahead, series.horizon))


def relative(series: Set, name: str, origins: list[int], forecasts: list[np.ndarray]) -> float:
    """Pinball loss of forecasts (H, Q) of a series ÷ that of its last season; gaps are not scored."""
    own, naive = [], []
    for origin, forecast in zip(origins, forecasts, strict=True):
        before = filled(series.columns[name][:origin])[-series.season :]
        observed = series.columns[name][origin : origin + series.horizon, None]
        repeated = before[np.arange(series.horizon) % series.season][:, None]
        for losses, quantiles in ((own, forecast), (naive, np.repeat(repeated, len(LEVELS), 1))):
            error = observed - quantiles
            losses.append(np.maximum(np.array(LEVELS) * error, (np.array(LEVELS) - 1) * error))
    return float(np.nanmean(own) / np.nanmean(naive))


def filled(values: np.ndarray) -> np.ndarray:
    """Each gap filled with the value before it."""
    places = np.maximum.accumulate(np.where(np.isnan(values), 0, np.arange(len(values))))
    return values[places]


def peer_losses(series: Set, peer: str, part: str) -> list[float]:
    from statsforecast import models

    began, season = time.time(), series.season
    seasons = [season, series.longer] if series.longer else [season]

    def new() -> Any:
        if peer == "MSTL" and season > 1:
            return models.MSTL(season_length=seasons, trend_forecaster=models.AutoETS(model="ZZN"))
        kind = "AutoETS" if peer == "MSTL" else peer  # without a season there is nothing to decompose
        return getattr(models, kind)(season_length=season if season <= MOST_SEASON else 1)

    losses, origins, slow = [], origins_of(series, part), peer == "AutoARIMA" and season == MOST_SEASON
    for name, values in series.columns.items():
        forecasts, fitted = [], None
        for origin in origins:
            past = filled(values[:origin])[-max(MOST_ROWS, 3 * (series.longer or 0)) :].astype(np.float64)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if slow and fitted is None:
                    fitted = new().fit(past[-30 * season :])
                if fitted is not None:
                    ahead = fitted.forward(past[-30 * season :], h=series.horizon, level=[20, 40, 60, 80])
                else:
                    ahead = new().fit(past).predict(h=series.horizon, level=[20, 40, 60, 80])
            bounds = [
                *(f"lo-{level}" for level in (80, 60, 40, 20)),
                "mean",
                *(f"hi-{level}" for level in (20, 40, 60, 80)),
            ]
            forecasts.append(np.stack([np.asarray(ahead[bound]) for bound in bounds], 1))
        losses.append(relative(series, name, origins, forecasts))
    print(f"  {peer}, {part}: {mean(losses):.4f}, {time.time() - began:.0f} s", flush=True)
    return losses


def own_losses(series: Set, part: str, seconds: float, seed: int) -> list[float]:
    origins = origins_of(series, part)
    began = time.time()
    table = polars.DataFrame(series.columns)
    table = table.select(polars.all().fill_nan(None))
    if series.dates is not None:
        table = table.select(polars.Series("date", series.dates), polars.all())
    run: Any = fit(
        table[: origins[0]],
        task="forecast", target=",".join(series.columns), horizon=series.horizon, season=series.season,
        budget=f"{seconds:g}s", seed=seed,
    )  # fmt: skip
    forecasts: dict[str, list[np.ndarray]] = {name: [] for name in series.columns}
    for origin in origins:
        ahead = run.forecast(table[:origin], quantiles=",".join(map(str, LEVELS)), paths=500, seed=seed)
        quantiles = np.stack([np.asarray(ahead[f"q{level:g}"], dtype=np.float64) for level in LEVELS], 1)
        for number, name in enumerate(series.columns):
            forecasts[name].append(quantiles[number * series.horizon : (number + 1) * series.horizon])
    losses = [relative(series, name, origins, own) for name, own in forecasts.items()]
    print(f"  chainrule, {part}: {mean(losses):.4f}, {time.time() - began:.0f} s", flush=True)
    return losses


def lines(path: Path, header: bool = True) -> list[list[str]]:
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else open(path, newline="") as file:
        return list(csv.reader(file))[header:]


def shipped(name: str) -> Any:
    """The frame of a data set of statsmodels."""
    from importlib import import_module

    return import_module(f"statsmodels.datasets.{name}").load_pandas().data


def dates(first: datetime, count: int, months: int = 0, days: float = 0) -> list[datetime]:
    def later(number: int) -> datetime:
        month = first.month - 1 + months * number
        return first.replace(year=first.year + month // 12, month=month % 12 + 1) + timedelta(days=days) * number

    return [later(number) for number in range(count)]


def airline(folder: Path) -> Set:
    values = np.array([float(row[1]) for row in lines(folder / "airline-passengers.csv")])
    return Set({"passengers": values}, 12, 12, 2, dates(datetime(1949, 1, 1), len(values), months=1))


def nile(_: Path) -> Set:
    return Set({"volume": shipped("nile")["volume"].to_numpy()}, 1, 5, 4)


def inflation(_: Path) -> Set:
    frame = shipped("interest_inflation")
    return Set({name: frame[name].to_numpy() for name in ("Dp", "R")}, 4, 4, 4)


def equipment(_: Path) -> Set:
    values = shipped("elec_equip").iloc[:, 0].to_numpy()
    return Set({"production": values}, 12, 12, 3, dates(datetime(1995, 1, 1), len(values), months=1))


def sunspots(_: Path) -> Set:
    return Set({"activity": shipped("sunspots")["SUNACTIVITY"].to_numpy()}, 1, 11, 3)


def elnino(_: Path) -> Set:
    values = shipped("elnino").iloc[:, 1:].to_numpy().reshape(-1)
    return Set({"temperature": values}, 12, 12, 5, dates(datetime(1950, 1, 1), len(values), months=1))


def economy(_: Path) -> Set:
    frame = shipped("macrodata")
    return Set(
        {name: frame[name].to_numpy() for name in ("realgdp", "realinv", "cpi", "tbilrate", "unemp")}, 4, 8, 3,
        dates(datetime(1959, 1, 1), len(frame), months=3),
    )  # fmt: skip


def carbon(_: Path) -> Set:
    values = shipped("co2")["co2"].to_numpy()
    return Set({"co2": values}, 52, 13, 4, dates(datetime(1958, 3, 29), len(values), days=7))


def temperature(folder: Path) -> Set:
    table = lines(folder / "daily-min-temperatures.csv")[: 4 * 365 - 1]  # before 31 December 1984, which is missing
    values = np.array([float(row[1]) for row in table])
    return Set({"temperature": values}, 7, 14, 6, dates(datetime(1981, 1, 1), len(values), days=1), longer=365)


def transformer(folder: Path) -> Set:
    table = lines(folder / "ETTh1.csv.gz")[: 300 * 24]
    columns = {
        name: np.array([float(row[place]) for row in table]) for name, place in (("HUFL", 1), ("MUFL", 3), ("OT", 7))
    }
    return Set(columns, 24, 24, 7, [datetime.fromisoformat(row[0]) for row in table], longer=168)


def exchange(folder: Path) -> Set:
    table = np.array(lines(folder / "exchange_rate.txt.gz", header=False), dtype=np.float64)
    return Set({f"rate {number}": values for number, values in enumerate(table.T[:2], 1)}, 5, 30, 5)


def counts(_: Path) -> Set:
    """Sales of three goods: negative binomial about a level that drifts, a week and a slow growth; seed 0."""
    random, columns = np.random.default_rng(0), {}
    for number in range(3):
        days = np.arange(420)
        week = np.tile(random.dirichlet(np.full(7, 8.0)) * 7, 60)
        level = np.exp(np.log(4 * 3**number) + 0.001 * days + np.cumsum(random.normal(0, 0.02, 420)))
        expected = level * week
        columns[f"good {number + 1}"] = random.negative_binomial(5, 5 / (5 + expected)).astype(np.float64)
    return Set(columns, 7, 14, 4, dates(datetime(2023, 1, 2), 420, days=1))


def intermittent(_: Path) -> Set:
    """Demand for three parts: in a week with probability 0.15, 0.3 and 0.5, of a geometric size; seed 1."""
    random, columns = np.random.default_rng(1), {}
    for number, chance in enumerate((0.15, 0.3, 0.5)):
        columns[f"part {number + 1}"] = (random.random(260) < chance) * random.geometric(0.3, 260).astype(np.float64)
    return Set(columns, 1, 8, 4)


SETS: dict[str, Callable[[Path], Set]] = {
    function.__name__: function
    for function in (
        airline, nile, inflation, equipment, sunspots, elnino, economy, carbon, temperature, transformer, exchange,
        counts, intermittent,
    )
}  # fmt: skip


if __name__ == "__main__":
    main()
