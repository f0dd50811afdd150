"""Forecasts of exchange rates and transformer loads beside naive ones, on rows that decided nothing.

    python benchmarks/quality_forecasting.py [--only exchange_rate] [--data FOLDER] [--seed 0]

FOLDER holds `time_series/{exchange_rate.txt.gz,ETTh1.csv.gz}` (default: ../shared/data, or the environment variable
CHAINRULE_DATA). Protocol: one model for all series of a set, each forecast from its own past alone.

    exchange_rate   8 currencies, 7,588 days; horizon 30 days; train, valid, test: first 70%, next 10%, last 20%
    ETTh1           6 loads and the oil temperature, hourly; horizon 24 hours; 12, 4 and 4 months of 30 days, as usual

A forecast begins at each horizon's end, so that each test row is forecast once (what is left over at the end is not).
CRPS and RMSE are in training standard deviations of each series, means over all series, origins and steps: CRPS from
paths, RMSE of their mean. A naive forecast without a spread has its absolute error for CRPS; "with its errors" adds
differences drawn from the training rows, for steps as far ahead. Settings and the step were chosen on the validation
rows; the model does not see them otherwise.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from side_by_side import claim, publish

from chainrule.data import SeriesWindows
from chainrule.decoding import sample_paths
from chainrule.metrics import seasonal_naive
from chainrule.models import Forecaster
from chainrule.training import TrainingOptions, evaluate, train
from chainrule_app.readers.series.schema import SeriesSchema
from chainrule_app.readers.series.series_file import read_series
from chainrule_app.readers.series.windows import rolling_origins, window_evaluation
from chainrule_app.tasks.forecast.scores import ForecastScores, naive_paths

DEFAULTS: dict[str, Any] = {
    "cell": "lstm",
    "hidden_size": 64,
    "num_layers": 1,
    "dropout": 0.1,
    "head": "student",
    "components": 2,
    "anchor": 1,
    "warm_up": 48,  # rows read before a forecast, beside the longest lag
    "batch_size": 32,
    "learning_rate": 3e-3,
    "weight_decay": 0.01,
    "steps": 2000,
    "paths": 200,
}
JOBS: dict[str, dict[str, Any]] = {
    "exchange_rate": {
        "file": "exchange_rate.txt.gz",
        "horizon": 30,
        "season": 5,
        "parts": (5312, 759, 1517),
        "hidden_size": 16,
        "dropout": 0.3,
        "learning_rate": 1e-3,
        "steps": 1500,
        "paths": 2000,  # with 200 the mean of the paths is uncertain by more than it differs from persistence
    },
    "ETTh1": {
        "file": "ETTh1.csv.gz",
        "horizon": 24,
        "season": 24,
        "parts": (8640, 2880, 2880),
        "learning_rate": 2e-3,
        "weight_decay": 1.0,
        "steps": 3000,
        "paths": 100,
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=JOBS, action="append")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pilot", nargs="*", metavar="NAME=VALUE", help="other settings, scored on validation only")
    options = parser.parse_args()
    for name in options.only or list(JOBS):
        path = options.data / "time_series" / JOBS[name]["file"]
        if not path.exists():
            print(f"{name}: skipped, there is no {path}: name the folder with --data")
            continue
        job = {**DEFAULTS, **JOBS[name]}
        for setting in options.pilot or []:
            key, value = setting.split("=")
            job[key] = type(job[key])(value)
        rows = measure(path, job, options.seed, test=options.pilot is None)
        if options.pilot is None:
            best = {score: min(row[score] for row in rows[1:]) for score in ("CRPS", "RMSE")}
            claims = [
                claim(f"{name}, {score}, against the best naive forecast", rows[0][score], "<=", best[score])
                for score in best
            ]
            publish(f"quality_forecasting_{name}", rows, claims)
        else:
            print(*rows, sep="\n", flush=True)


def measure(path: Path, job: dict[str, Any], seed: int, *, test: bool) -> list[dict[str, Any]]:
    """Train, forecast the test rows once; a row of figures for each kind of forecast."""
    file = read_series(path, "all")
    trained, watched, tested = job["parts"]
    schema = SeriesSchema.fit(file, trained, job["season"], job["anchor"])
    values, features = file.values, schema.features(file)
    torch.manual_seed(seed)
    model = Forecaster(
        schema.scalings, job["hidden_size"], job["cell"], job["num_layers"], job["dropout"], head=job["head"],
        components=job["components"], lags=schema.lags, anchor=job["anchor"], num_covariates=schema.num_covariates,
    )  # fmt: skip
    horizon, history = job["horizon"], model.window.longest_lag + job["warm_up"]
    batches = SeriesWindows(
        values[:trained],
        features[:trained],
        model.window.longest_lag,
        job["warm_up"] + horizon,
        job["batch_size"],
        seed,
    )
    began = time.process_time()
    settings = TrainingOptions(
        steps=job["steps"], batch_size=job["batch_size"], learning_rate=job["learning_rate"],
        weight_decay=job["weight_decay"], seed=seed, validate_every=max(job["steps"] // 20, 1), precision="float32",
    )  # fmt: skip

    def held_out(origins: list[int]) -> Any:
        places = [(origin, series) for origin in origins for series in range(values.shape[1])]
        return window_evaluation(values, features, places, history, horizon, 128)

    valid = rolling_origins(trained, trained + watched, horizon)
    with tempfile.TemporaryDirectory() as folder:
        result = train(model, batches, lambda: held_out(valid), settings, folder)
    minutes = (time.process_time() - began) / 60
    origins = rolling_origins(trained + watched, trained + watched + tested, horizon) if test else valid
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    drawn = [sample_paths(model, part.context, paths=job["paths"], length=horizon, generator=generator)
             for part in held_out(origins)]  # fmt: skip
    shape = (len(origins), values.shape[1], horizon)
    paths = torch.cat(drawn).movedim(1, 0).reshape(-1, *shape).numpy()
    observed = np.stack([values[origin : origin + horizon].T for origin in origins])
    units = values[:trained].std(0)
    scores = {"Forecaster": ForecastScores.of_paths(paths, observed, units)}
    random = np.random.default_rng(seed)
    for name, season in (("persistence", 1), ("seasonal-naive", job["season"])):
        naive = np.stack([seasonal_naive(values[:origin].T, horizon, season) for origin in origins])
        scores[f"{name} ({season})"] = ForecastScores.of_values(naive, observed, units)
        spread = naive_paths(values, trained, origins, horizon, season, job["paths"], random)
        scores[f"{name} with its errors"] = ForecastScores.of_paths(spread, observed, units)
    rows = [
        {"forecast": name, "CRPS": score.crps, "RMSE": score.rmse, "MAE": score.mae,
         "in 80%": score.coverage, "in 50%": score.coverage_50}
        for name, score in scores.items()
    ]  # fmt: skip
    rows[0] |= {
        "nats per value": evaluate(model, held_out(origins)).nats_per_element,
        "cell": job["cell"], "units": job["hidden_size"], "head": job["head"], "best step": result.best_step,
        "origins": len(origins), "seed": seed, "threads": torch.get_num_threads(), "core minutes": minutes,
    }  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
