"""Inside a trained forecaster: how much it gains from the past, and from each column that is known in advance."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.display import one_line
from chainrule.tasks.page import check_number

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from chainrule.tasks.forecast.task import ForecastTask

    Floats = npt.NDArray[np.float64]

_SHARES = (0.0, 0.25, 0.5, 1.0)  # of the rows before those that lags reach


@dataclass(frozen=True)
class ForecastInspection:
    """Show what a trained forecaster gains from the past, and from each column that is known in advance.

    The likelihood of the last horizons of the held-out rows, or of DATA, is taken again: with fewer rows of the past,
    and with one column at a time shuffled in time, which keeps its values and breaks its ties.

    Args:
        data: A file with the columns that the run was trained on, to read in place of the held-out rows.
        seed: Seed of the shuffling.
    """

    origins: int = 32
    """Forecasts to look at, a horizon apart."""


def inspect_series(run: "ForecastTask", data: str | None, options: ForecastInspection, *, seed: int) -> Answer:
    """Inspect a run on its held-out rows, or on a file."""
    import numpy as np

    from chainrule.data.series import rolling_origins, window_evaluation
    from chainrule.training import evaluate

    check_number("origins", options.origins, 1)
    values, features, first = _rows(run, data)
    horizon, history, schema, model = run.data.horizon, run.history, run.schema, run.model()
    origins = rolling_origins(first, len(values), horizon)[-options.origins :]
    if not origins:
        raise ValueError(f"{data}: expected at least {first + horizon} rows, got {len(values)}: give it more")
    history = min(history, origins[0])

    def nats(features: "Floats", past: int) -> float:
        return evaluate(model, window_evaluation(values, features, origins, past, horizon, 256)).nats_per_element

    lag = min(run.longest_lag, history)
    pasts = sorted({lag + round(share * (history - lag)) for share in _SHARES})
    told = [{"rows": past, "nats_per_value": nats(features, past)} for past in pasts]
    usual, random, columns = told[-1]["nats_per_value"], np.random.default_rng(seed), len(schema.covariates)
    # Two features for each cycle of the calendar, its sine and cosine.
    places = [[place] for place in range(columns)]
    places += [[columns + 2 * cycle, columns + 2 * cycle + 1] for cycle in range(len(schema.calendar))]
    known = {}
    for name, place in zip([*schema.covariates, *schema.calendar], places, strict=True):
        shuffled = features.copy()
        shuffled[:, place] = features[random.permutation(len(features))][:, place]
        known[name] = nats(shuffled, history) - usual
    figures = {"run": str(run.path), "origins": len(origins), "nats_per_value": usual, "past": told, "known": known}
    return Answer(iter([Record(figures, "\n".join(_lines(run, figures)))]))


def _rows(run: "ForecastTask", data: str | None) -> "tuple[Floats, Floats, int]":
    """Values, features, and the first row to forecast."""
    if data is None:
        series = run.series()
        return series.values, series.features, series.train_rows
    file = run.schema.open(data)
    return file.values, run.schema.features(file), run.longest_lag


def _lines(run: "ForecastTask", figures: dict[str, Any]) -> Iterable[str]:
    lags = ", ".join(map(str, run.schema.lags))
    yield f"{figures['origins']} forecasts of {run.data.horizon} rows, {figures['nats_per_value']:.4f} nats per value"
    yield f"reads the values {lags} rows back at each step"
    for past in figures["past"]:
        yield f"from {past['rows']:>6,} rows of the past   {past['nats_per_value']:>9.4f} nats per value"
    for name, nats in figures["known"].items():
        yield f"without {one_line(name):<24} {nats:>+9.4f} nats per value"
