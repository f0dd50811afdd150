"""Score the values of series: how surprising each is given the values before it, and what was expected there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from chainrule_app.heavy import modes, np, torch
from chainrule_app.pages.result_figures import series_figure
from chainrule_app.results import Column, Result
from chainrule_app.tasks.config import CheckedOptions
from chainrule_app.tasks.forecast.companions import take_new_items
from chainrule_app.tasks.forecast.evaluation import TrainedRows
from chainrule_app.tasks.forecast.prediction import key_columns, significant_digits
from chainrule_app.tasks.tally import Tally

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from chainrule import AutoregressiveModel
    from chainrule_app.readers.series.series_file import SeriesFile
    from chainrule_app.tasks.forecast.task import ForecastTask

    Floats = npt.NDArray[np.float64]

_WINDOWS = 256  # computed together
_LEVELS = (0.5, 0.1, 0.9)  # the median, and the ends of 80%
_ODD = 8.0  # nats of excess, four standard deviations of a normal distribution, of a value that others are not given
_FEW = 3  # odd values that may follow each other
_ROUNDS = 3


@dataclass(frozen=True)
class ForecastScoring(CheckedOptions):
    """Score each value of a file given the values before it: find those that nobody would have expected there.

    The excess of a value is its nats above those of the median of its distribution, so that it depends neither on the
    unit nor on how well a series can be forecast: 2 nats are two standard deviations of a normal distribution, 12.5
    nats are five. What is expected, and so the excess, is given the values before without odd ones of more than 8
    nats, up to three together, so that an odd value makes none of those after it odd; `nats` are exact given all values
    before. Missing values are not scored, and neither is the first season of a series.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "A file with the columns that the run was trained on.",
        "sort": "Sort by excess, the most surprising value first.",
        "top": "Print only the N most surprising values.",
        "json": "Print one JSON object per value, then one with the figures of all values.",
    }


@dataclass(frozen=True)
class Window:
    """Rows of a series that one pass scores, given the rows before them."""

    series: int
    origin: int  # its first row
    past: int  # rows before it that the pass reads
    length: int


def score_series(run: "ForecastTask", data: str, options: ForecastScoring, *, device: str) -> Result:
    file, total = run.schema.open(data, new_items=True), Tally()
    trained = TrainedRows.find(run, file)

    def notes() -> Iterator[str]:
        if trained.count:
            which = f"the first {trained.count:,} rows" if trained.until is None else f"the rows up to {trained.until}"
            yield f"the run was trained on {which}: later ones are more surprising"

    others = ["value", "nats", "excess", "expected", "median", "low", "high"]
    keys = key_columns(run, file, others)
    columns = [
        *keys,
        Column("value"),
        Column("nats", 2),
        Column("excess", 2),
        Column("expected"),
        *(Column(name, shown=False) for name in others[4:]),
    ]
    reach = max(run.schema.season, 1)
    hints = {"rows": sum(int(_is_scored(file, number, reach).sum()) for number in range(len(file.targets)))}
    return total.result(
        columns,
        _rows(run, file, device, reach, total),
        basis=run.basis,
        unit="value",
        empty=f"{data}: expected values after the first {reach} of a series, got none: add rows",
        rank="excess",
        notes=notes,
        hints=hints | ({"index": keys[0].name} if file.item is None else {}),
        figure=partial(series_figure, series=file.item or "series"),
    )


def _is_scored(file: "SeriesFile", number: int, reach: int) -> "npt.NDArray[np.bool_]":
    """(T,) tell which values of a series are scored: those that are there, after the first few."""
    start, stop = file.spans[number].tolist()
    scored = np.isfinite(file.values[:, number])
    scored[: start + reach] = False
    scored[stop:] = False
    return scored


def windows_of(spans: "npt.NDArray[np.int64]", reach: int, history: int, horizon: int) -> Iterator[Window]:
    """Yield windows that cover every row of each series but its first `reach`, in order.

    The first window reaches to where there are `history` rows; each of the others has that many before it.

    >>> list(windows_of(np.array([[0, 12]]), 2, 6, 4))
    [Window(series=0, origin=2, past=2, length=4), Window(series=0, origin=6, past=6, length=4), Window(series=0, \
origin=10, past=6, length=2)]
    """
    for number, (start, stop) in enumerate(spans.tolist()):
        origin, past, length = start + reach, reach, max(history - reach, 1)
        while origin < stop:
            length = min(length, stop - origin)
            yield Window(number, origin, past, length)
            origin += length
            past, length = min(history, origin - start), horizon


def _rows(run: "ForecastTask", file: "SeriesFile", device: str, reach: int, total: Tally) -> Iterator[Sequence[Any]]:
    schema, model = run.schema.grown(file), run.model(device)
    features = schema.features(file)
    take_new_items(model, len(run.schema.targets), schema, file, features)
    found = np.full((5, *file.values.shape), np.nan)  # nats, excess, median and both ends
    measure = partial(_measure, model, file.values, file.values.copy(), features, found=found)

    def finish(windows: Sequence[Window]) -> Iterator[Sequence[Any]]:
        measure(windows)
        for number in dict.fromkeys(window.series for window in windows):
            own = [window for window in windows if window.series == number]
            first, last = own[0].origin, own[-1].origin + own[-1].length
            rows = np.flatnonzero(_is_scored(file, number, reach)[first:last]) + first
            if not len(rows):
                continue
            expected = schema.possible(found[2:, None, rows, number], [(first, number)])[:, 0]
            digits = significant_digits(expected)
            for row, numbers in zip(rows.tolist(), expected.T, strict=True):
                nats, excess = found[:2, row, number].tolist()
                said = "{}, {} to {}".format(*(_plain(float(f"{each:.{digits - 2}g}")) for each in numbers))
                ends = (float(f"{each:.{digits}g}") for each in numbers)
                total.add(nats, 1)
                yield *_keys(file, number, row), _plain(float(file.values[row, number])), nats, excess, said, *ends

    waiting = list[Window]()
    for window in windows_of(file.spans, reach, run.history, run.data.horizon):
        waiting.append(window)
        if len(waiting) == _WINDOWS:
            yield from finish(waiting)
            waiting = []
    yield from finish(waiting)


@torch.no_grad()
def _measure(
    model: "AutoregressiveModel",
    values: "Floats",
    usual: "Floats",
    features: "Floats",
    windows: Sequence[Window],
    *,
    found: "Floats",
) -> None:
    """Write nats, excess and quantiles of the rows of windows into `found` (5, T, S).

    Args:
        values: (T, S) as they are.
        usual: (T, S) with NaN in the place of odd ones; those among the rows of the windows are found here.
    """
    for place, head, x in _conditionals(model, values, values, features, windows):
        found[0][place] = -head.log_prob(x).cpu().numpy()
    for _ in range(_ROUNDS):
        before = np.isnan(usual)
        for place, head, x in _conditionals(model, values, usual.copy(), features, windows):
            middle, low, high = (head.icdf(torch.tensor(level, dtype=x.dtype, device=x.device)) for level in _LEVELS)
            excess = head.log_prob(middle) - head.log_prob(x)
            for number, figures in enumerate((excess, middle, low, high), 1):
                found[number][place] = figures.cpu().numpy()
        for series in {window.series for window in windows}:
            own = [window for window in windows if window.series == series]
            rows = slice(own[0].origin, own[-1].origin + own[-1].length)
            usual[rows, series] = np.where(_apart(found[1, rows, series] > _ODD), np.nan, values[rows, series])
        if (before == np.isnan(usual)).all():
            break


def _conditionals(
    model: "AutoregressiveModel", values: "Floats", past: "Floats", features: "Floats", windows: Sequence[Window]
) -> "Iterator[tuple[Any, Any, Tensor]]":
    """Yield places in (T, S), the conditionals given `past` (T, S), and the values there (B, L), for like windows."""
    from chainrule.data import SeriesWindows
    from chainrule.state import map_state

    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for window in windows:
        groups.setdefault((window.past, window.length), []).append((window.origin, window.series))
    for (known, length), places in groups.items():
        batch = SeriesWindows.batch(past, features, places, known, length)
        x, context = map_state(lambda leaf: leaf.to(modes.device_of(model)), (batch.x, batch.context))
        origins, series = np.array(places).T
        place = (origins[:, None] + np.arange(length), series[:, None])
        yield place, model(x, context), torch.from_numpy(values[place]).to(x)


def _apart(odd: "npt.NDArray[np.bool_]") -> "npt.NDArray[np.bool_]":
    """Tell which odd values (T,) are few: where many follow each other, the series has changed, and later ones go on.

    >>> _apart(np.array([True, False, True, True, True, True, False, True])).tolist()
    [True, False, False, False, False, False, False, True]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], odd, [False]]).astype(int)))
    few = np.zeros_like(odd)
    for start, stop in edges.reshape(-1, 2).tolist():
        few[start:stop] = stop - start <= _FEW
    return few


def _keys(file: "SeriesFile", number: int, row: int) -> list[Any]:
    """Return the time and the series of a value; item and time if the file is in long form."""
    name, first = file.targets[number], int(file.spans[number, 0])
    time = file.date_text(file.dates[row]) if file.dates else str(row - first + 1)
    return [time, name] if file.item is None else [name, time]


def _plain(value: float) -> int | float:
    """Return a whole number without a point.

    >>> _plain(3.0), _plain(2.5)
    (3, 2.5)
    """
    return int(value) if value.is_integer() and abs(value) < 1e15 else value
