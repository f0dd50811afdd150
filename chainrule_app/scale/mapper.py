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
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import polars

from chainrule.option_error import OptionError
from chainrule_app.answering import Answering
from chainrule_app.keywords import checked, seed_of
from chainrule_app.scale.batches import frame_of, with_columns
from chainrule_app.scale.row_answers import ROWS, Rows
from chainrule_app.tasks.config import Number
from chainrule_app.tasks.text.sampling import one_thread


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
    text      complete     completion, which follows the text
    tag       tag          tags, nats
    classify  classify     label, probability
    classify  embed        embedding
    translate translate    translation, nats
    forecast  forecast     forecast_time, and NAME_mean, NAME_q0.1, ... of each series: lists of steps
    ========= ============ ================================================================================

    `predict` also stands for `tag`, `classify`, `translate` and `forecast`. A row without text has no answer, and
    neither has an empty text, except for `sample` and `complete`.

    To forecast, a row holds all that is known of its series, as lists in the columns that the run was trained on (of
    equal length in a row), beside an item and what never changes. `group_by(item).agg(...)` makes such rows.

    A pickle holds the path of the run, or the files of a run in a temporary directory. Each process opens it once.

    Draws are equal bit for bit in all batches. Other numbers are computed together in float32 and may differ by 1e-5 of
    their value with the rows beside them; with `batch_size=1`, which takes longer, they are equal too.

    Args:
        run: a run, or its path.
        method: score, predict, fill, sample, complete, embed, tag, classify, translate or forecast.
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


def _rows_of(run: Any, *arguments: Any) -> Rows:
    task = run.task.name
    if task not in ROWS:
        raise ValueError(f"mapper: a run of the task {task} does not answer rows; those of {', '.join(ROWS)} do")
    return ROWS[task](run, *arguments)
