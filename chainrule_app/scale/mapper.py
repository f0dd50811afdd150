"""The answers of a run as one picklable function from Arrow batch to Arrow batch.

Engines such as polars, Dask and Ray Data call such a function on batches of any size, in any process and order. The
answer for a row must not depend on that:

- A method that draws is called for each row alone, with a seed made of the mapper's seed and the key of the row.
- Matrix products round by the shape of a batch and the place of a row in it, so that filling batches up to one size
  does not help. The answers of rows that are computed together are equal to rounding, and only those of rows that are
  computed alone bit for bit.
- On the CPU one thread computes, however many the machine has: engines start a process for each core.
"""

import pickle
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Any

import narwhals as nw
import polars

from chainrule.option_error import OptionError
from chainrule_app import frames
from chainrule_app.answering import Answering
from chainrule_app.inputs import inputs_of
from chainrule_app.keywords import checked, chosen_options, seed_of
from chainrule_app.results import Column
from chainrule_app.scale.batches import frame_of, with_columns
from chainrule_app.tasks.classify.labels import label_columns
from chainrule_app.tasks.config import Number
from chainrule_app.tasks.run_directory import FRAME
from chainrule_app.tasks.text.sampling import one_thread

Kind = Any  # a data type of polars
Answers = list[Sequence[Any]]  # of each row
Answer = Callable[..., Answers]  # of rows, and a seed for draws


class Mapper:
    """Function that adds the answers of a run to each row of a batch.

    A batch is a table or record batch of Arrow, or a frame of polars or pandas, and so is the result: the rows in their
    order, all columns as they were, then the answers in columns whose types are the same for every batch, also for an
    empty one. Pass the mapper to an engine that calls a function, or this class and its arguments to an engine that
    makes an object in each of its processes (an actor).

    ========= ============ ================================================================================
    task      method       columns that are added
    ========= ============ ================================================================================
    table     score        nats, most (name of the most surprising cell), cell (its value), cell_nats
    table     predict      of each name in `columns`: NAME_predicted, NAME_low, NAME_high, NAME_probability
    table     fill         columns that are absent; missing cells of the others are filled in
    text      score        nats, elements, bits_per_element, excess
    text      embed        embedding
    text      sample       sample, which begins with the text
    tag       tag          tags, nats
    classify  classify     label, probability
    classify  embed        embedding
    translate translate    translation, nats
    ========= ============ ================================================================================

    `predict` also stands for `tag`, `classify` and `translate`. A row without text has no answer, and neither has an
    empty text, except for `sample`.

    A pickle holds the path of the run, or the files of a run in a temporary directory. Each process opens it once.

    Draws are equal bit for bit in all batches. Other numbers are computed together in float32 and may differ by 1e-5 of
    their value with the rows beside them; with `batch_size=1`, which takes longer, they are equal too.

    Args:
        run: a run, or its path.
        method: score, predict, fill, sample, embed, tag, classify or translate.
        per: "row": an answer for each row.
        column: the column of texts; by default the only one, or the one called text or source. Sentences to tag are
            texts with blanks between words, or lists of words.
        key: the column that tells rows apart in draws; by default the cells that the model reads, so that equal rows
            have equal draws.
        seed: seed of all draws.
        prefix: put before the names of added columns.
        batch_size: rows that are computed together.
        device: auto, cpu, cuda or mps.
        **options: of the method of the same name.

    Raises:
        ValueError: the run has no such method, the method does not answer row by row, or an option is unknown.
    """

    def __init__(
        self,
        run: Answering | str | Path,
        method: str,
        *,
        per: str = "row",
        column: str | None = None,
        key: str | None = None,
        seed: int = 0,
        prefix: str = "",
        batch_size: int | None = None,
        device: str = "cpu",
        **options: Any,
    ):
        if per != "row":
            raise OptionError("per", f"expected row, got {per!r:.80}")
        self._run = run if isinstance(run, Answering) else _load(run)
        self._key, self._prefix, size = key, prefix, checked("batch_size", Number | None, batch_size)
        self._arguments: tuple[Any, ...] = (method, column, seed_of(seed), size, device, options)
        self._rows = _rows_of(self._run, *self._arguments)

    def __call__(self, batch: Any) -> Any:
        """Return a batch with the answers for its rows."""
        frame = frame_of(batch)
        adds = {f"{self._prefix}{name}": kind for name, kind in self._rows.adds(frame).items()}
        if taken := adds.keys() & set(frame.columns) - set(self._rows.replaces):
            raise ValueError(
                f"batch: there is a column {min(taken)!r} already: rename it, or set prefix= for the added columns"
            )
        if self._key is not None and self._key not in frame.columns:
            raise OptionError("key", f"expected a column of {', '.join(frame.columns)}, got {self._key!r:.80}")
        rows = frame.select(self._rows.reads(frame)).to_polars()
        device = self._arguments[-2]
        keys = None if self._key is None else list(map(str, frame[self._key].to_list()))
        with one_thread(self._run.task.device(device)):
            answers = self._rows.answers(rows, keys) if len(rows) else []
        columns = zip(*answers, strict=True) if answers else [()] * len(adds)
        made = zip(adds.items(), columns, strict=True)
        return with_columns(batch, [polars.Series(name, list(values), kind) for (name, kind), values in made])

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_run": pickle.dumps(self._run), "_rows": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        with _opening:
            run = _opened(state["_run"])
        vars(self).update(state, _run=run, _rows=_rows_of(run, *state["_arguments"]))

    def __repr__(self) -> str:
        return f"<Mapper of {self._arguments[0]}, {self._run.path}>"


_opening = Lock()  # so that the threads of a process open a run once


@lru_cache(maxsize=8)
def _opened(pickled: bytes) -> Answering:
    """Open the run of a pickled mapper."""
    run: Answering = pickle.loads(pickled)  # noqa: S301  part of a pickle that is being read
    return run


def _load(path: Any) -> Answering:
    from chainrule_app.fitting import load

    return load(path)


class _Rows(ABC):
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
            self._chosen: Any = chosen_options(run.options_of(self._method), options, inputs)
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


class _TableRows(_Rows):
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


class _TextRows(_Rows):
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
        draws = self._method == "sample"
        texts = rows.to_series().to_list()
        places = [place for place, text in enumerate(texts) if (text is not None if draws else text)]
        found: dict[int, Sequence[Any]] = dict.fromkeys(range(len(rows)), (None,) * len(self._answers))
        found |= self._drawn(rows, places, keys, self._sample) if draws else self._together(rows, places, self._answer)
        return _in_order(found.items())

    def _sample(self, rows: polars.DataFrame, seed: int = 0) -> Answers:
        return [self._run.sample(1, prompt=rows.item(), seed=seed, **self._device, **self._options)]

    def _answer(self, rows: polars.DataFrame, seed: int = 0) -> Answers:
        result = getattr(self._run, self._method)(rows.to_series().to_list(), **self._device, **self._options)
        if self._method == "embed":
            return [(vector.tolist(),) for vector in result["code"]]
        columns = [result[name] for name in self._answers]
        return list(zip(*columns, strict=True))


_METHODS = {  # the rows that each method computes together
    "table": {"score": 1024, "predict": 256, "fill": 256},
    "text": {"score": 256, "embed": 256, "sample": 1},
    "tag": {"predict": 256},
    "classify": {"predict": 256, "embed": 256},
    "translate": {"predict": 64},
}
_OF_TEXTS: dict[tuple[str, str], dict[str, Kind]] = {
    ("text", "score"): {
        "nats": polars.Float64, "elements": polars.Int64, "bits_per_element": polars.Float64, "excess": polars.Float64,
    },
    ("text", "embed"): {"embedding": polars.List(polars.Float32)},
    ("text", "sample"): {"sample": polars.String},
    ("tag", "predict"): {"tags": polars.List(polars.String), "nats": polars.Float64},
    ("classify", "predict"): {},  # by the labels
    ("classify", "embed"): {"embedding": polars.List(polars.Float32)},
    ("translate", "predict"): {"translation": polars.String, "nats": polars.Float64},
}  # fmt: skip


def _rows_of(run: Any, *arguments: Any) -> _Rows:
    task = run.task.name
    if task not in _METHODS:
        raise ValueError(f"mapper: a run of the task {task} does not answer rows; those of {', '.join(_METHODS)} do")
    return _TableRows(run, *arguments) if task == "table" else _TextRows(run, *arguments)
