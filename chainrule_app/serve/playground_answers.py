"""Answers of the playground: rows of tables with gaps, tags, labels, translations and forecasts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, cast

import numpy as np
import torch
from fastapi import APIRouter, Request
from pydantic import Field

from chainrule.data import Vocabulary, WordVocabulary
from chainrule.metrics import quantiles_of_samples
from chainrule_app.readers import series as series_reader
from chainrule_app.readers.files_in_turn import HeldText
from chainrule_app.readers.origin import Origin
from chainrule_app.readers.tables.partial_row import PartialRow
from chainrule_app.results import Result
from chainrule_app.run import Run
from chainrule_app.serve.routes import finite
from chainrule_app.serve.views import Body, Count, Seed, Text, TextBody, Views
from chainrule_app.tasks.forecast.paths import draw_paths
from chainrule_app.tasks.forecast.task import ForecastTask
from chainrule_app.tasks.table.gaps import complete_block
from chainrule_app.tasks.table.run import TableRun
from chainrule_app.tasks.table.verbs import nats_of
from chainrule_app.tasks.translate.prediction import translator_of

_PARTICLES = 64  # of each completion where known columns come after unknown ones
_SHOWN_CATEGORIES = 1000  # of a column, in the form
_BINS = 24
_PAST = 4  # horizons of history in a chart
_MOST_SERIES = 40  # that are drawn
_LEAST_PAST = 60


class RowBody(Body):
    """Cells of a row; missing ones are left out, or empty."""

    cells: dict[str, Annotated[str, Field(max_length=1 << 12)]] = Field(default_factory=dict)
    n: Annotated[int, Field(ge=1, le=1000)] = 200
    seed: Seed = 0


class AnswerBody(TextBody):
    """A text to answer."""

    beam: Annotated[int, Field(ge=1, le=16)] = 4


class SeriesBody(Body):
    """A series to forecast: pasted, or the run's own rows."""

    text: Text = ""
    back: Count = 0
    paths: Annotated[int, Field(ge=2, le=1000)] = 200
    seed: Seed = 0


def table_router(views: Views) -> APIRouter:
    """Return the routes of runs of tables."""
    router = APIRouter()

    @router.post("/complete-row")
    async def complete(body: RowBody, request: Request) -> Any:
        return await views.answer(request, complete_row, views.run(body, "table"), body.cells, body.n, body.seed)

    @router.post("/score-row")
    async def score(body: RowBody, request: Request) -> Any:
        return await views.answer(request, score_row, views.run(body, "table"), body.cells)

    @router.post("/sample-row")
    async def sample(body: RowBody, request: Request) -> Any:
        return await views.answer(request, sample_row, views.run(body, "table"), body.seed)

    return router


def answer_router(views: Views) -> APIRouter:
    """Return the route of runs that tag, label and translate texts."""
    router = APIRouter()

    @router.post("/answer")
    async def answer_text(body: AnswerBody, request: Request) -> Any:
        run = views.run(body, "tag", "classify", "translate")
        if run.task.name == "translate":
            return await views.answer(request, translate_text, run, body.text, body.beam)
        look = tag_sentence if run.task.name == "tag" else classify_text
        return await views.answer(request, look, run, body.text)

    return router


def forecast_router(views: Views) -> APIRouter:
    """Return the route of runs of series."""
    router = APIRouter()

    @router.post("/forecast")
    async def forecast(body: SeriesBody, request: Request) -> Any:
        run = views.run(body, "forecast")
        if body.text.strip():
            return await views.answer(request, forecast_text, run, body.text, body.paths, body.seed)
        return await views.answer(request, forecast_own, run, body.back, body.paths, body.seed)

    return router


def _table(run: Run) -> TableRun:
    return cast("TableRun", run.task)


def _series(run: Run) -> ForecastTask:
    return cast("ForecastTask", run.task)


def about_table(run: Run) -> dict[str, Any]:
    """Return the columns, in the order of the model."""
    return {"columns": [_column(column) for column in _table(run).schema.kept]}


def _column(column: Any) -> dict[str, Any]:
    named = [name for name in column.categories if name not in ("", "<other>")]
    about = {"name": column.name, "kind": column.kind, "categories": named[:_SHOWN_CATEGORIES]}
    low, high = column.bounds or (None, None)
    if column.dates is not None:
        low, high = column.decode(low), column.decode(high)
    return about | ({} if low is None else {"low": low, "high": high})


def complete_row(run: Run, cells: Mapping[str, str], n: int, seed: int) -> dict[str, Any]:
    """Draw the missing cells of a row, n times.

    Returns:
        `columns`: for each missing column its distribution over the draws; `rows`: the first completions; `effective`:
        the fewest draws that any completion rests on, None where every draw is exact.
    """
    task = _table(run)
    row = _partial(task, cells)
    generator = torch.Generator().manual_seed(seed)
    rows, effective = complete_block(
        cast(Any, run.model), task.schema, [row] * n, _PARTICLES, generator, missing=False, other=True
    )
    schema_columns = task.schema.kept
    missing = [index for index, is_known in enumerate(row.known) if not is_known]
    return summarised(schema_columns, rows, missing) | {"n": n, "effective": effective and min(effective)}


def summarised(columns: Sequence[Any], rows: Sequence[Sequence[str | None]], which: Iterable[int]) -> dict[str, Any]:
    """Return the distribution of some columns over drawn rows, and the first of the rows."""
    names = [column.name for column in columns]
    return {
        "columns": [_distribution(columns[index], [row[index] for row in rows]) for index in which],
        "rows": [dict(zip(names, (cell or "" for cell in row), strict=True)) for row in rows[:8]],
    }


def _partial(task: Any, cells: Mapping[str, str]) -> Any:
    schema_columns = task.schema.kept
    if unknown := cells.keys() - {column.name for column in schema_columns}:
        raise ValueError(f"cells: there is no column {min(unknown)!r}")
    values: list[str | None] = [cells.get(column.name, "") for column in schema_columns]
    is_known = [not column.is_missing(cell) for column, cell in zip(schema_columns, values, strict=True)]
    numbers = [
        column.encode(cell) if there else 0.0
        for column, cell, there in zip(schema_columns, values, is_known, strict=True)
    ]
    return PartialRow(values, [not there for there in is_known], numbers, is_known)


def _distribution(column: Any, cells: Sequence[str | None]) -> dict[str, Any]:
    """Summarise the drawn cells of a column: shares of its categories, or a histogram."""
    about = {"name": column.name, "kind": column.kind}
    numbers = [] if column.kind == "categorical" else [column.encode(cell) for cell in cells if cell]
    missing = sum(not cell for cell in cells) / len(cells)
    if column.kind == "categorical":
        counts = Counter(cell or "" for cell in cells).most_common()
        return about | {"shares": [[name, count / len(cells)] for name, count in counts]}
    if not numbers:
        return about | {"missing": missing, "bins": [], "low": 0, "high": 0, "mean": None}
    low, high = min(numbers), max(numbers)
    if column.kind != "real":  # every bin holds the same number of integers
        width = (high - low) // _BINS + 1
        edges = np.arange(low - 0.5, high + width, width)
    else:
        edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    heights, _ = np.histogram(numbers, edges)
    quantiles = quantiles_of_samples(numbers, [0.1, 0.5, 0.9]).tolist()
    bins, ends, mean = (heights / len(cells)).tolist(), edges.tolist(), float(np.mean(numbers))
    if column.dates is not None:
        ends, quantiles, (mean,) = (list(map(column.decode, part)) for part in (ends, quantiles, [mean]))
    return about | {"bins": bins, "edges": ends, "mean": mean, "quantiles": quantiles, "missing": missing}


def score_row(run: Run, cells: Mapping[str, str]) -> dict[str, Any]:
    """Return the exact log-probability of a whole row, and the nats of each of its cells given those before it.

    Columns of real numbers count by density, so that their nats may be negative.
    """
    task = _table(run)
    schema_columns = task.schema.kept
    numbers = [column.encode(cells.get(column.name, "")) for column in schema_columns]
    nats = nats_of(cast(Any, run.model), torch.tensor([numbers], dtype=torch.float64))[0].tolist()
    each = [{"name": column.name, "nats": value} for column, value in zip(schema_columns, nats, strict=True)]
    return {"nats": sum(nats), "columns": each}


def sample_row(run: Run, seed: int) -> dict[str, Any]:
    """Draw one row from the model."""
    names = [column.name for column in _table(run).schema.kept]
    drawn = _table(run).sample(1, _table(run).Sampling(), seed=seed, device="cpu")
    return {"row": dict(zip(names, next(iter(drawn.rows())), strict=True))}


def first(result: Result) -> dict[str, Any]:
    """Return the first row of a result."""
    return next(iter(result.records()))


def tag_sentence(run: Run, text: str) -> dict[str, Any]:
    """Words, tags, the probability of each, and spans where tags mark them; of each line a sentence."""
    lines = [line for line in text.splitlines() if line.strip()]
    keys = ("words", "tags", "nats", "probabilities", "spans")
    if not lines:
        return {"sentences": []}
    return {"sentences": [{key: row[key] for key in keys if key in row} for row in run.tag(lines)]}


def classify_text(run: Run, text: str) -> dict[str, Any]:
    """Labels with their probabilities, likeliest first, and the weight of each word where the model has attention."""
    row = first(run.classify([" ".join(text.split())]))
    return {"labels": ranked(row["probabilities"]), "tokens": row["tokens"], "attention": row["attention"]}


def ranked(probabilities: Mapping[str, float]) -> list[list[Any]]:
    """Labels and probabilities, likeliest first."""
    return [[name, value] for name, value in sorted(probabilities.items(), key=lambda item: -item[1])]


def translate_text(run: Run, text: str, beam: int) -> dict[str, Any]:
    """Translations of lines, each with its nats and, where the model has attention, its alignment."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    if not lines:
        return {"sentences": []}
    translator = translator_of(cast(Any, run.task), None, "cpu")
    sentences = []
    for row in run.translate(lines, beam=beam):
        sentence = {key: row[key] for key in ("source", "translation", "nats")}
        sentence["unknown"] = unknown_parts(translator.source_vocabulary, row["source"])
        if translator.model.has_attention and row["translation"]:
            read, written = translator.symbols(row["source"], row["translation"])
            weights = translator.attention(row["source"], row["translation"]).double()
            sentence |= {
                "read": read,
                "written": written,
                "weights": [[round(w, 4) for w in r] for r in weights.tolist()],
            }
        sentences.append(sentence)
    return {"sentences": sentences}


def unknown_parts(vocabulary: Vocabulary, text: str) -> list[str]:
    """Return the words (or characters) of a text that the vocabulary lacks."""
    if vocabulary.unknown is None:
        return []
    parts = WordVocabulary.split_words(text) if vocabulary.level == "word" else text
    symbols = vocabulary.encode(f"{text}\n").tolist()
    read = zip(parts, symbols, strict=False)
    return list(dict.fromkeys(part for part, symbol in read if symbol == vocabulary.unknown))


def about_series(run: Run) -> dict[str, Any]:
    """Return the columns that a pasted series needs, and whether the run's own rows are there."""
    task = _series(run)
    schema = task.schema
    keys = [name for name in (schema.item, schema.date) if name is not None]
    names = [*keys, *(schema.targets if schema.item is None else [schema.value]), *schema.covariates]
    return {"horizon": task.data.horizon, "columns": names, "targets": list(schema.targets), "own": task.is_prepared()}


def forecast_own(run: Run, back: int, paths: int, seed: int) -> dict[str, Any]:
    """Return a forecast of the run's own rows from a number of rows before their end, with what came."""
    task = _series(run)
    series, horizon = task.series(), task.data.horizon
    longest = int((series.spans[:, 1] - series.spans[:, 0]).max())
    places = [
        (stop - horizon - back, number)
        for number, (start, stop) in enumerate(series.spans.tolist())
        if stop - horizon - back > start
    ][:_MOST_SERIES]
    if not back >= 0 or not places:
        raise ValueError(f"back: expected a whole number from 0 to {longest - horizon - 1}, got {back}")
    drawn = draw_paths(
        cast(Any, run.model), series.values, series.features, places, series.spans, task.history, horizon, paths, seed
    )
    drawn = task.schema.possible(drawn, places)
    quantiles = quantiles_of_samples(drawn, [0.1, 0.5, 0.9])
    past = max(_PAST * horizon, _LEAST_PAST)
    return {
        "series": [
            {
                "name": task.schema.targets[number],
                "past": finite(series.values[max(origin - past, series.spans[number, 0]) : origin, number]),
                "came": finite(series.values[origin : origin + horizon, number]),
                "quantiles": quantiles[:, index].tolist(),
                "mean": drawn[:, index].mean(0).tolist(),
                "times": _dates(task, origin, horizon),
            }
            for index, (origin, number) in enumerate(places)
        ]
    }


def _dates(task: ForecastTask, row: int, count: int) -> list[str]:
    """Return the dates of rows of a run, so many from one on; nothing for rows of training, or without dates."""
    trained, frequency, last = task.facts.rows.train, task.schema.frequency, task.schema.last_trained
    if frequency is None or last is None or row < trained:
        return []
    dates = series_reader.future_dates([last], frequency, row + count - trained)[-count:]
    return [str(date.date() if frequency.daily else date) for date in dates]


def forecast_text(run: Run, text: str, paths: int, seed: int) -> dict[str, Any]:
    """Return a forecast of what follows a pasted file of comma-separated values."""
    file = HeldText(Origin("series"), [text if text.endswith("\n") else text + "\n"])
    series = _series(run).schema.open(file)
    result = list(run.forecast(file, paths=paths, seed=seed, quantiles="0.1,0.5,0.9"))
    schema, past = _series(run).schema, max(_PAST * _series(run).data.horizon, _LEAST_PAST)
    item = schema.item or "series"
    time = next(name for name in result[0] if name != item)
    forecasts: list[dict[str, Any]] = []
    for number, name in enumerate(schema.targets):
        start, stop = series.spans[number].tolist()
        rows = [row for row in result if row[item] == name]
        if not rows or len(forecasts) == _MOST_SERIES:
            continue
        forecasts.append(
            {
                "name": name,
                "past": finite(series.values[max(stop - past, start) : stop, number]),
                "came": [],
                "quantiles": [[row[f"q{level:g}"] for row in rows] for level in (0.1, 0.5, 0.9)],
                "mean": [row["mean"] for row in rows],
                "times": [str(row[time]) for row in rows],
            }
        )
    return {"series": forecasts}
