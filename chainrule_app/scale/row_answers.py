"""The answers of each task for the rows of a batch, which `chainrule_app.scale.mapper` adds to it."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from operator import itemgetter
from typing import Any

import narwhals as nw
import polars

from chainrule.option_error import OptionError
from chainrule_app import frames
from chainrule_app.inputs import inputs_of
from chainrule_app.keywords import chosen_options
from chainrule_app.results import Column
from chainrule_app.tasks.classify.labels import label_columns
from chainrule_app.tasks.forecast.prediction import parse_quantiles
from chainrule_app.tasks.run_directory import FRAME

Kind = Any  # a data type of polars
Answers = list[Sequence[Any]]  # of each row
Answer = Callable[..., Answers]  # of rows, and a seed for draws


class Rows(ABC):
    """The rows of one kind of data: what a method reads of them, and what it adds."""

    replaces: Sequence[str] = ()  # names of columns that get other values

    def __init__(
        self,
        run: Any,
        method: str,
        column: str | None,
        seed: int,
        size: int | None,
        device: str,
        options: dict[str, Any],
    ):
        task = run.task
        sizes = _METHODS[task.name]
        self._run, self._column, self._seed = run, column, seed
        self._options, self._device = options, {"device": device}
        self._method = "predict" if method == (task.verb or task.name) else method
        if self._method not in sizes:
            names = ", ".join(sizes)
            raise OptionError("method", f"expected one of {names} for a run of {task.name}, got {method!r:.80}")
        self._size = size or sizes[self._method]
        with inputs_of(task, answers=False) as inputs:
            self._chosen: Any = chosen_options(run.options_of(_SAME.get(self._method, self._method)), options, inputs)
        for name, single in (("n_best", (None, 1)), ("n", (1,)), ("per", (None, "row")), ("given", ("previous",))):
            if getattr(self._chosen, name, single[0]) not in single:
                raise OptionError(name, "a mapper has one answer for each row", "leave this option out")

    @abstractmethod
    def reads(self, frame: nw.DataFrame[Any]) -> list[str]:
        """Return the names of the columns that the model reads."""

    @abstractmethod
    def adds(self, frame: nw.DataFrame[Any]) -> dict[str, Kind]:
        """Return the names and types of the answers."""

    @abstractmethod
    def answers(self, rows: polars.DataFrame, keys: Sequence[str] | None) -> Answers:
        """Return the answers for rows of the columns that the model reads; `keys` are for draws."""

    def _together(
        self, rows: polars.DataFrame, places: Sequence[int], answer: Answer
    ) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the places and answers of some rows, computed in batches."""
        for start in range(0, len(places), self._size):
            part = list(places[start : start + self._size])
            try:
                answers = answer(rows[part])
            except ValueError:
                for place in part:  # to name the row
                    _answer_alone(rows, place, answer)
                raise
            yield from zip(part, answers, strict=True)

    def _drawn(
        self, rows: polars.DataFrame, places: Sequence[int], keys: Sequence[str] | None, answer: Answer
    ) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the places and answers of some rows, each drawn from a seed of its own."""
        for place in places:
            key = repr(rows.row(place)) if keys is None else keys[place]
            seed = int.from_bytes(sha256(f"{self._seed} {key}".encode()).digest()[:4]) >> 1
            yield place, _answer_alone(rows, place, partial(answer, seed=seed))


def _answer_alone(rows: polars.DataFrame, place: int, answer: Answer) -> Sequence[Any]:
    try:
        return answer(rows[[place]])[0]
    except ValueError as error:
        raise ValueError(f"row {place} of the batch: {str(error).replace('data index 0, ', '')}") from None


def _in_order(answers: Iterable[tuple[int, Sequence[Any]]]) -> Answers:
    return [answer for _, answer in sorted(answers, key=itemgetter(0))]


class TableRows(Rows):
    def __init__(self, run: Any, method: str, *arguments: Any):
        super().__init__(run, method, *arguments)
        self._schema = run.task.schema
        self._exact: dict[tuple[bool, ...], bool] = {}  # whether no draws are needed, by the known cells
        if self._method == "predict":
            from chainrule_app.tasks.table.prediction import columns_of

            self._targets = [self._schema.kept[index] for index in columns_of(self._schema, self._chosen.columns)]
            if not self._targets:
                raise OptionError("columns", "expected the columns to predict", "fill predicts every missing cell")
        if self._method == "fill":
            self.replaces = [column.name for column in self._schema.kept]

    def reads(self, frame: nw.DataFrame[Any]) -> list[str]:
        known = {column.name for column in self._schema.columns}
        names = [name for name in frame.columns if name in known]
        if not names:
            raise ValueError(f"batch: expected columns of {', '.join(sorted(known))}, got {', '.join(frame.columns)}")
        return names

    def adds(self, frame: nw.DataFrame[Any]) -> dict[str, Kind]:
        if self._method == "score":
            return {"nats": polars.Float64, "most": polars.String, "cell": polars.String, "cell_nats": polars.Float64}
        if self._method == "fill":
            own = frame.select(self.reads(frame)).head(0).to_polars().schema
            return {column.name: _kind_of(column, own.get(column.name)) for column in self._schema.kept}
        return {
            f"{column.name}_{part}": polars.Float64 if part == "probability" else _kind_of(column)
            for column in self._targets
            for part in ("predicted", "low", "high", "probability")
        }

    def answers(self, rows: polars.DataFrame, keys: Sequence[str] | None) -> Answers:
        if self._method == "score":
            return _in_order(self._together(rows, range(len(rows)), self._score))
        answer = self._predict if self._method == "predict" else self._fill
        found: dict[int, Sequence[Any]] = {}
        for known, places in self._by_gaps(rows).items():
            if self._needs_draws(known, rows[places[:1]]):
                found |= self._drawn(rows, places, keys, answer)
            else:
                found |= self._together(rows, places, answer)
        return _in_order(found.items())

    def _by_gaps(self, rows: polars.DataFrame) -> dict[tuple[bool, ...], list[int]]:
        """Group rows by the columns that they know."""
        groups = defaultdict[tuple[bool, ...], list[int]](list)
        with inputs_of(self._run.task) as inputs:
            for row in self._schema.partial(inputs.source(rows))[1]:
                groups[tuple(row.known)].append(row.place)
        return groups

    def _needs_draws(self, known: tuple[bool, ...], row: polars.DataFrame) -> bool:
        if self._method == "fill" and self._chosen.values == "draw":
            return True
        if known not in self._exact:
            options = {"columns": self._chosen.columns} if self._method == "predict" else {}
            draws = self._run._predicted(row, **options, particles=1, draws=1, seed=0, **self._device)["draws"]
            self._exact[known] = not any(draws)
        return not self._exact[known]

    def _score(self, rows: polars.DataFrame, seed: int = 0) -> Answers:
        scores = self._run.score(rows, **self._device, **self._options)
        cells = [None if cell is None else str(cell) for cell in scores["cell"]]
        return list(zip(scores["nats"], scores["most"], cells, scores["cell_nats"], strict=True))

    def _predict(self, rows: polars.DataFrame, seed: int = 0) -> Answers:
        found = self._run._predicted(rows, seed=seed, **self._device, **self._options)
        parts = zip(found["value"], found["low"], found["high"], found["probability"], strict=True)
        cells = {(row, name): cell for row, name, cell in zip(found["index"], found["column"], parts, strict=True)}
        none = (None,) * 4
        names = [column.name for column in self._targets]
        return [[part for name in names for part in cells.get((row, name), none)] for row in range(len(rows))]

    def _fill(self, rows: polars.DataFrame, seed: int = 0) -> Answers:
        result = self._run._answer("fill", rows, self._options | {"seed": seed}, **self._device)
        filled = frames.like(rows, result)
        kinds = {column.name: _kind_of(column, rows.schema.get(column.name)) for column in self._schema.kept}
        rows_filled: Answers = filled.select(polars.col(name).cast(kind) for name, kind in kinds.items()).rows()
        return rows_filled


def _kind_of(column: Any, own: Kind = None) -> Kind:
    """Return the type of a column of a table: its own in the batch, or that of its values."""
    if own is not None and own != polars.Null:
        return own
    return {"integer": polars.Int64, "real": polars.Float64}.get(column.kind, polars.String)


class TextRows(Rows):
    """Rows with a text, whose answers are columns of a result."""

    def __init__(self, run: Any, method: str, *arguments: Any):
        super().__init__(run, method, *arguments)
        answers = _OF_TEXTS[run.task.name, self._method]
        if self._method == "predict" and run.task.name == "classify":
            parse = Column("label", parse=frames.value_parser(run.path / FRAME, "label"))
            names = [*map(parse.value, run.task.labels.names)]
            kind = polars.Series(names).dtype
            shown = label_columns(self._chosen.top, len(names))
            answers = {column.name: polars.Float64 if "probability" in column.name else kind for column in shown[:-1]}
        self._answers = dict(answers)

    def reads(self, frame: nw.DataFrame[Any]) -> list[str]:
        if self._column is None:
            kinds = (nw.String, nw.List(nw.String)) if self._run.task.name == "tag" else (nw.String,)
            texts = [name for name, kind in frame.schema.items() if kind in kinds]
            chosen = [name for name in texts if name in ("text", "source")] or texts
        else:
            chosen = [name for name in frame.columns if name == self._column]
        if len(chosen) != 1:
            asked = "" if self._column is None else f", got {self._column!r:.80}"
            raise OptionError("column", f"expected the column of texts, one of {', '.join(frame.columns)}{asked}")
        return chosen

    def adds(self, frame: nw.DataFrame[Any]) -> dict[str, Kind]:
        return self._answers

    def answers(self, rows: polars.DataFrame, keys: Sequence[str] | None) -> Answers:
        draw = {"sample": self._sample, "complete": self._complete}.get(self._method)
        texts = rows.to_series().to_list()
        places = [place for place, text in enumerate(texts) if (text if draw is None else text is not None)]
        found: dict[int, Sequence[Any]] = dict.fromkeys(range(len(rows)), (None,) * len(self._answers))
        found |= self._together(rows, places, self._answer) if draw is None else self._drawn(rows, places, keys, draw)
        return _in_order(found.items())

    def _sample(self, rows: polars.DataFrame, seed: int = 0) -> Answers:
        return [self._run.sample(1, prompt=rows.item(), seed=seed, **self._device, **self._options)]

    def _complete(self, rows: polars.DataFrame, seed: int = 0) -> Answers:
        pieces = self._run.stream(prompt=rows.item(), seed=seed, **self._device, **self._options)
        return [("".join(islice(pieces, 1, None)),)]  # without the prompt

    def _answer(self, rows: polars.DataFrame, seed: int = 0) -> Answers:
        result = getattr(self._run, self._method)(rows.to_series().to_list(), **self._device, **self._options)
        if self._method == "embed":
            return [(vector.tolist(),) for vector in result["code"]]
        columns = [result[name] for name in self._answers]
        return list(zip(*columns, strict=True))


class SeriesRows(Rows):
    """Rows that hold a series each, in lists: every row is forecast alone, as its paths are drawn."""

    def __init__(self, run: Any, method: str, *arguments: Any):
        super().__init__(run, method, *arguments)
        schema = run.task.schema
        self._names = [schema.value] if schema.item is not None else list(schema.targets)
        self._series = [*([] if schema.date is None else [schema.date]), *self._names, *schema.covariates]  # lists
        levels = [f"q{level:g}" for level in parse_quantiles(self._chosen.quantiles)]
        self._figures = ["mean", *levels]

    def reads(self, frame: nw.DataFrame[Any]) -> list[str]:
        schema = self._run.task.schema
        alone = [*([] if schema.item is None else [schema.item]), *schema.static]
        for name in (names := [*alone, *self._series]):
            if name not in frame.columns:
                raise ValueError(f"batch: expected the column {name!r}, got {', '.join(frame.columns)}")
        return names

    def adds(self, frame: nw.DataFrame[Any]) -> dict[str, Kind]:
        times = self._kind_of_times(frame.select(self.reads(frame)).head(1).to_polars())
        return {"forecast_time": polars.List(times), **dict.fromkeys(self._columns(), polars.List(polars.Float64))}

    def _columns(self) -> list[str]:
        return [f"{name}_{figure}" for name in self._names for figure in self._figures]

    def _kind_of_times(self, rows: polars.DataFrame) -> Kind:
        """Return the type of times, which is that of the batch."""
        date = self._run.task.schema.date
        return polars.Int64 if date is None else getattr(rows.schema[date], "inner", polars.String)

    def answers(self, rows: polars.DataFrame, keys: Sequence[str] | None) -> Answers:
        for name in self._series:
            if not rows.schema[name].is_nested():
                raise ValueError(
                    f"batch: expected lists in the column {name!r}, as a row holds a whole series, got "
                    f"{rows.schema[name]}: group the rows of each series first"
                )
        lengths = polars.col(self._series).list.len()
        known = rows.select(polars.all_horizontal(lengths.fill_null(0) > 0)).to_series()
        places = [place for place, is_known in enumerate(known) if is_known]
        found: dict[int, Sequence[Any]] = dict.fromkeys(range(len(rows)), (None,) * (1 + len(self._columns())))
        return _in_order((found | dict(self._drawn(rows, places, keys, self._forecast))).items())

    def _forecast(self, rows: polars.DataFrame, seed: int = 0) -> Answers:
        result = self._run.forecast(rows.explode(self._series), seed=seed, **self._device, **self._options)
        of_items = self._run.task.schema.item is not None  # the columns of series and times, in their order
        series, time = result.columns[:2] if of_items else result.columns[1::-1]
        first, *_ = shown = [self._names[0]] * len(result) if of_items else result[series.name]
        written = self._kind_of_times(rows) == polars.String
        times = (result.cells() if written else result.to_dict())[time.name]
        values = defaultdict[str, list[float]](list)
        for name, row in zip(shown, result, strict=True):
            for figure in self._figures:
                values[f"{name}_{figure}"].append(row[figure])
        return [[times[: shown.count(first)], *(values[name] for name in self._columns())]]


_SAME = {"complete": "sample"}  # methods with the options of another
_METHODS = {  # the rows that each method computes together
    "table": {"score": 1024, "predict": 256, "fill": 256},
    "text": {"score": 256, "embed": 256, "sample": 1, "complete": 1},
    "tag": {"predict": 256},
    "classify": {"predict": 256, "embed": 256},
    "translate": {"predict": 64},
    "forecast": {"predict": 1},
}
_OF_TEXTS: dict[tuple[str, str], dict[str, Kind]] = {
    ("text", "score"): {
        "nats": polars.Float64, "elements": polars.Int64, "bits_per_element": polars.Float64, "excess": polars.Float64,
    },
    ("text", "embed"): {"embedding": polars.List(polars.Float32)},
    ("text", "sample"): {"sample": polars.String},
    ("text", "complete"): {"completion": polars.String},
    ("tag", "predict"): {"tags": polars.List(polars.String), "nats": polars.Float64},
    ("classify", "predict"): {},  # by the labels
    ("classify", "embed"): {"embedding": polars.List(polars.Float32)},
    ("translate", "predict"): {"translation": polars.String, "nats": polars.Float64},
}  # fmt: skip


ROWS: dict[str, Callable[..., Rows]] = {
    **dict.fromkeys(_METHODS, TextRows),
    "table": TableRows,
    "forecast": SeriesRows,
}
"""What answers the rows of each task."""
