"""Places in series at which forecasts begin, and batches of what follows them."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from chainrule.data import Batch, SeriesWindows

Floats = npt.NDArray[np.float64]
Spans = npt.NDArray[np.int64]


def whole_spans(values: Floats) -> Spans:
    """(S, 2) the spans of series (T, S) that all have all rows."""
    return np.tile(np.array([[0, len(values)]]), (values.shape[1], 1))


def rolling_origins(first: int, rows: int, horizon: int) -> list[int]:
    """Origins a horizon apart, as long as all of what is forecast is known."""
    return list(range(first, rows - horizon + 1, horizon))


def places_of(spans: Spans, origins: Sequence[int], horizon: int, *, reach: int = 1) -> list[tuple[int, int]]:
    """Origin and series of forecasts whose `horizon` is known and whose series has `reach` rows before."""
    return [
        (origin, series)
        for origin in origins
        for series, (start, stop) in enumerate(spans.tolist())
        if start + reach <= origin <= stop - horizon
    ]


def by_past(places: Sequence[tuple[int, int]], spans: Spans, past: int) -> list[tuple[int, list[int]]]:
    """Group places by the number of known past rows, `past` at most; the first place of a series decides for all."""
    history: dict[int, int] = {}
    for origin, series in places:
        history[series] = min(history.get(series, past), origin - int(spans[series, 0]))
    groups: dict[int, list[int]] = {}
    for number, (_, series) in enumerate(places):
        groups.setdefault(history[series], []).append(number)
    return list(groups.items())


def window_evaluation(
    values: Floats,  # (T, S)
    features: Floats,  # (N, F), or (N, S, F)
    places: Sequence[tuple[int, int]],  # origin and series of each forecast, see `places_of`
    past: int,  # rows before each origin that are known
    horizon: int,  # rows that are forecast
    batch_size: int,
    spans: Spans | None = None,  # (S, 2) rows of each series; all rows if not given
) -> Iterator[Batch]:
    """Yield batches of the rows after each place, in order; series with less history come last."""
    for history, numbers in by_past(places, whole_spans(values) if spans is None else spans, past):
        for start in range(0, len(numbers), batch_size):
            chosen = [places[number] for number in numbers[start : start + batch_size]]
            yield SeriesWindows.batch(values, features, chosen, history, horizon)
