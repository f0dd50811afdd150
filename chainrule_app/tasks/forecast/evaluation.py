"""Evaluate a trained forecaster at rolling origins, and measure the gain from its past and its covariates."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from chainrule.option_error import OptionError, UserError, option
from chainrule.printing import one_line
from chainrule.ranges import Range
from chainrule_app.heavy import np
from chainrule_app.printing import counted
from chainrule_app.readers import series as series_reader
from chainrule_app.results import Report, Result
from chainrule_app.tasks.config import CheckedOptions
from chainrule_app.tasks.forecast.companions import lags_of, take_new_items
from chainrule_app.tasks.forecast.paths import draw_paths
from chainrule_app.tasks.options import Paths, Seed
from chainrule_app.tasks.output import inside, inspect_again

if TYPE_CHECKING:
    import numpy.typing as npt

    from chainrule_app.readers.series.series_file import SeriesFile
    from chainrule_app.tasks.forecast.task import ForecastTask

    Floats = npt.NDArray[np.float64]


_SHARES = (0.0, 0.25, 0.5, 1.0)  # of the rows before those that lags reach


@dataclass(frozen=True)
class ForecastEvaluation(CheckedOptions):
    """Forecast a file from rolling origins, a horizon apart, and score the forecasts against the observed values.

    Skips the rows that the run was trained on: rows up to its last training date, or without dates the first rows, if
    they equal the training rows. In a file without such rows, the first origin is the first row with the run's history
    before it.

    Compares the model with persistence, which repeats the last value, and seasonal-naive, which repeats the last
    season, each with and without errors drawn from its errors before the first origin. CRPS and RMSE are in the unit
    of the series; lower is better. Intervals of 80% probability should contain 80% of the values.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "A file with the columns that the run was trained on.",
    }

    start: str | None = None
    """First origin: a date, or a row number from 1, after the training rows."""
    paths: Paths = 100
    """Number of draws per forecast."""
    seed: Seed = 0
    """Seed of the draws."""


@dataclass(frozen=True)
class TrainedRows:
    """Rows that a run was trained on: up to its last training date, or counted if their values agree."""

    count: int  # number of rows, from the beginning
    until: str | None  # last training date as written in the file; None if rows are counted

    @classmethod
    def find(cls, run: "ForecastTask", file: "SeriesFile") -> "TrainedRows":
        last = run.schema.last_trained
        if last is not None:
            return cls(bisect_right(file.dates, last, hi=len(file.values)), file.date_text(last))
        series = run.series()
        count = min(series.train_rows, len(file.values))
        same = np.array_equal(series.values[:count], file.values[:count], equal_nan=True)
        return cls(count if same else 0, None)

    def __str__(self) -> str:
        what = "them" if self.until is None else f"dates up to {self.until}"
        return f"rows 1 to {self.count:,} are skipped, as the run was trained on {what}"


def evaluate_series(run: "ForecastTask", data: str | None, options: ForecastEvaluation, *, device: str) -> Result:
    if data is None:
        raise OptionError("data", "expected a file of series to forecast, got none")
    file, horizon = run.schema.open(data, new_items=True), run.data.horizon
    trained = TrainedRows.find(run, file)
    first = _first_origin(run, file, data, options.start, trained)
    origins = series_reader.rolling_origins(first, len(file.values), horizon)
    places = series_reader.places_of(file.spans, origins, horizon, reach=max(run.schema.season, 1))
    if not places:
        remedy = f"choose an earlier {option('start')}" if first > trained.count else f"add rows; {trained}"
        raise UserError(
            f"{data}: expected {horizon} rows, the horizon, from row {first + 1} on, got {len(file.values) - first}",
            remedy,
        )
    figures = _scores(run, file, places, options, device) | {"trained_rows": trained.count}
    notes = [str(trained)] if trained.count else []
    return Result([], [], summary=lambda: figures, about={"measured": run.basis}, notes=lambda: notes)


def _first_origin(run: "ForecastTask", file: "SeriesFile", data: str, start: str | None, trained: TrainedRows) -> int:
    from chainrule_app.readers.series.frequency import as_shown
    from chainrule_app.readers.tables.dates import as_date

    if start is None:
        complete = trained.count >= run.facts.rows.train  # all training rows are here
        return trained.count if complete else max(trained.count, min(run.history, len(file.values)))
    if start.isdecimal():
        index = int(start) - 1
    else:
        date = as_date(start)
        date = None if date is None else as_shown(date, file.utc_offset)
        if date is None or date not in file.dates:
            raise OptionError("start", f"expected a date of {data}, or the number of a row, got {start!r}")
        index = file.dates.index(date)
    if not max(run.schema.season, 1) <= index < len(file.values):
        raise OptionError(
            "start",
            f"expected a row from {run.schema.season + 1} on, with a season before it, "
            f"to {len(file.values)}, got {index + 1}",
        )
    if index < trained.count:
        raise OptionError(
            "start", f"expected a row of {data} from {trained.count + 1} on, got row {index + 1}", f"{trained}"
        )
    return index


def _scores(
    run: "ForecastTask", file: "SeriesFile", places: list[tuple[int, int]], options: ForecastEvaluation, device: str
) -> dict[str, Any]:
    from chainrule.metrics import seasonal_naive
    from chainrule.training import evaluate as likelihood
    from chainrule_app.tasks.forecast.scores import ForecastScores, naive_paths

    values, horizon, unit = file.values, run.data.horizon, np.ones(1)
    paths, seed = options.paths, options.seed
    schema = run.schema.grown(file)
    features = schema.features(file)
    model = run.model(device)
    take_new_items(model, len(run.schema.targets), schema, file, features)
    nats = likelihood(
        model, series_reader.window_evaluation(values, features, places, run.history, horizon, 256, file.spans)
    )
    drawn = draw_paths(model, values, features, places, file.spans, run.history, horizon, paths, seed)
    drawn = schema.possible(drawn, places)
    naive = {"persistence": 1} | ({"seasonal-naive": run.schema.season} if run.schema.season > 1 else {})
    rows = []
    for number, name in enumerate(file.targets):
        of_series = [place for place, (_, series) in enumerate(places) if series == number]
        if not of_series:
            continue
        start, stop = file.spans[number].tolist()
        own, origins = values[start:stop, number : number + 1], [places[place][0] - start for place in of_series]
        observed = np.stack([own[origin : origin + horizon].T for origin in origins])  # (O, 1, H)
        if not np.isfinite(observed).any():
            continue
        own = series_reader.without_gaps(own)
        scores = {"model": ForecastScores.of_paths(drawn[:, of_series, None], observed, unit)}
        random = np.random.default_rng(seed)
        for baseline, season in naive.items():
            again = np.stack([seasonal_naive(own[:origin].T, horizon, season) for origin in origins])
            scores[baseline] = ForecastScores.of_values(again, observed, unit)
            if origins[0] > season * ((horizon - 1) // season + 1) + horizon:
                spread = naive_paths(own, origins[0], origins, horizon, season, paths, random)
                scores[f"{baseline} with its errors"] = ForecastScores.of_paths(spread, observed, unit)
        rows += [{"series": name, "forecast": forecast, **vars(score)} for forecast, score in scores.items()]
    origins = sorted({origin for origin, _ in places})
    return {
        "origins": len(origins),
        "first_row": origins[0] + 1,
        "horizon": horizon,
        "paths": paths,
        "seed": seed,
        "nats_per_value": nats.nats_per_element,
        "scores": rows,
    }


@dataclass(frozen=True)
class ForecastInspection(CheckedOptions):
    """Measure how much the past, and each column known in advance, improve a trained forecaster.

    Recomputes the likelihood of the last horizons of the held-out rows, or of DATA, with fewer rows of the past, and
    with one column at a time shuffled in time (permutation importance).
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "A file with the columns that the run was trained on; the held-out rows by default.",
    }

    origins: Annotated[int, Range(1, 1 << 20)] = 32
    """Forecasts to look at, a horizon apart."""


def inspect_series(run: "ForecastTask", data: str | None, options: ForecastInspection, *, seed: int) -> Report:
    from chainrule.training import evaluate
    from chainrule_app.pages.finding_pages import series_page

    values, features, spans, first = _rows_of(run, data)
    horizon, history, schema, model = run.data.horizon, run.history, run.schema, run.model()
    origins = series_reader.rolling_origins(first, len(values), horizon)[-options.origins :]
    where = series_reader.places_of(spans, origins, horizon)
    if not where:
        raise ValueError(f"{data}: expected at least {first + horizon} rows, got {len(values)}: add rows")
    history = min(history, *(origin - int(spans[series, 0]) for origin, series in where))

    def nats(features: "Floats", past: int) -> float:
        return evaluate(
            model, series_reader.window_evaluation(values, features, where, past, horizon, 256, spans)
        ).nats_per_element

    lag = min(run.longest_lag, history)
    pasts = sorted({lag + round(share * (history - lag)) for share in _SHARES})
    past_nats = [{"rows": past, "nats_per_value": nats(features, past)} for past in pasts]
    baseline, random, columns = past_nats[-1]["nats_per_value"], np.random.default_rng(seed), len(schema.covariates)
    places = [[index] for index in range(columns)]
    columns += len(schema.statics)
    for number in schema.harmonics.values():  # a sine and a cosine for each
        places.append(list(range(columns, columns + 2 * number)))
        columns += 2 * number
    gains = {}
    for name, index in zip([*schema.covariates, *schema.calendar], places, strict=True):
        shuffled = features.copy()
        if features.ndim == 2:
            shuffled[:, index] = features[random.permutation(len(features))][:, index]
        for series, (start, stop) in enumerate(spans.tolist() if features.ndim == 3 else ()):
            rows = random.permutation(stop - start)
            shuffled[start:stop, series, index] = features[start:stop, series, index][rows]
        gains[name] = nats(shuffled, history) - baseline
    figures = {
        "run": str(run.path),
        "origins": len(origins),
        "nats_per_value": baseline,
        "past": past_nats,
        "known": gains,
    }
    command = inspect_again(run, data, origins=options.origins, seed=seed)
    page = series_page(figures, inside(run), command)
    return Report(figures, tuple(_inspection_lines(run, figures)), str(page))


def _rows_of(run: "ForecastTask", data: str | None) -> "tuple[Floats, Floats, npt.NDArray[np.int64], int]":
    """Return values, features, spans, and the first row to forecast."""
    if data is None:
        series = run.series()
        return series.values, series.features, series.spans, series.train_rows
    file = run.schema.open(data)
    return file.values, run.schema.features(file), file.spans, run.longest_lag


def _near(run: "ForecastTask") -> str:
    """Describe the extra lags of the linear autoregression."""
    if not run.training.linear:
        return ""
    lags = lags_of(run.schema)
    near = sum(lag == index for index, lag in enumerate(lags, 1))  # 1, 2, 3, ... without a gap
    return f"; the linear autoregression also the last {near}"


def _inspection_lines(run: "ForecastTask", figures: dict[str, Any]) -> Iterable[str]:
    lags = ", ".join(map(str, run.schema.lags))
    read = f"{counted(figures['origins'], 'forecast')} of {counted(run.data.horizon, 'row')}"
    yield f"{run.recipe}: {read}, {figures['nats_per_value']:.4f} nats per value"
    yield f"reads the values {lags} rows back at each step{_near(run)}"
    for past in figures["past"]:
        yield f"from {past['rows']:>6,} rows of the past   {past['nats_per_value']:>9.4f} nats per value"
    for name, nats in figures["known"].items():
        yield f"without {one_line(name):<24} {nats:>+9.4f} nats per value"
