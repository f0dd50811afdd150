"""Verbs whose rows several processes answer."""

import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule.option_error import OptionError, option
from chainrule_app.cli.render import show
from chainrule_app.cli.row_format import RowFormat, format_of
from chainrule_app.readers.text import STDIN
from chainrule_app.results import Result
from chainrule_app.tasks.config import Number

Processes = Annotated[
    Number | None,
    Parameter(
        help="Number of processes that answer, with one thread each, for --out. By default this process, with all "
        "threads; if it takes more than a few seconds, one for each core."
    ),
]
_PATIENCE = 5.0  # seconds: starting processes takes about half of that


def show_answers(
    run: Any,
    method: str,
    arguments: Sequence[Any],
    *,
    device: str,
    workers: int | None,
    out: Path | None,
    json: bool = False,
    csv: bool = False,
    ranked: bool = False,
    top: int | None = None,
) -> Result:
    """Call a method of a run, in several processes where that is possible and pays, and show the result."""
    result: Result = getattr(run, method)(*arguments, device=device)
    with _divided(run, method, arguments, result, device, workers, None if ranked or top else out, json, csv) as parts:
        show(result, json=json, csv=csv, ranked=ranked, top=top, out=out, parts=parts)
    return result


@contextmanager
def _divided(
    run: Any,
    method: str,
    arguments: Sequence[Any],
    result: Result,
    device: str,
    workers: int | None,
    out: Path | None,
    json: bool,
    csv: bool,
) -> Iterator[bool]:
    """Let other processes answer the rows of a result within this context; yield whether they do."""
    form = "csv" if csv and not json else result.form
    reason = _reason(run, arguments, result, device, out, form, json)
    if workers == 1:
        from chainrule_app.tasks.text.sampling import one_thread

        with one_thread(run.device(device)):
            yield False
        return
    if reason is not None:
        if workers is not None:
            raise OptionError("workers", *reason)
        yield False
        return
    number = workers or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if number == 1:
        yield False
        return
    from chainrule_app.scale.workers import Job, Workers

    assert out is not None
    if "seed" in result.about:  # which this process has drawn
        arguments = [*arguments[:-1], replace(arguments[-1], seed=result.about["seed"])]
    job = Job(run.path, method, tuple(arguments), device, partial(_written, form, format_of(out), json))
    pool = Workers(job, number, 0.0 if workers else _PATIENCE)
    pool.result, run.answered = result, pool.answered
    try:
        yield True
    finally:
        pool.close()


def _reason(
    run: Any, arguments: Sequence[Any], result: Result, device: str, out: Path | None, form: str, json: bool
) -> tuple[str, str] | None:
    """Return why one process must answer, and a remedy; None if several can."""
    if not result.hints.get("batchwise"):
        return "this answer is computed in one process", "leave it out"
    if out is None:
        return f"requires {option('out')} and unsorted rows", ""
    if RowFormat.of(form, format_of(out), json=json) is None:
        return f"{out} needs all rows at once", "write .csv, .tsv, .jsonl or .parquet"
    if run.device(device).type != "cpu":
        return f"requires {option('device', 'cpu')}", ""
    try:
        pickle.dumps(arguments)
    except TypeError:  # of a temporary file
        arguments = [STDIN]
    if any(argument in (STDIN, [STDIN]) for argument in arguments):
        return "one process reads standard input", "write it to a file first"
    return None


def _written(form: str, name: str, json: bool, result: Result, rows: list[Sequence[Any]], first: bool) -> bytes:
    row_format = RowFormat.of(form, name, json=json)
    assert row_format is not None
    return row_format.written(result, rows, header=first)
