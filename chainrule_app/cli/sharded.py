"""Verbs whose rows the processes of a Ray cluster write into a folder of shards."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from os import stat_result
from pathlib import Path
from time import monotonic
from typing import Any

from chainrule import __version__
from chainrule.option_error import OptionError, option
from chainrule_app.cli.divided import Call, Spread, job_of, why_alone
from chainrule_app.cli.render import json_facts, say, say_written, show
from chainrule_app.cli.row_format import RowFormat, format_of
from chainrule_app.printing import plain_value, progress_bars, url_of
from chainrule_app.readers.files_in_turn import FilesInTurn
from chainrule_app.readers.sources import file_and_array, paths_of
from chainrule_app.results import Result
from chainrule_app.scale.ray_engine import RayWorkers, cluster
from chainrule_app.scale.shards import FORMAT, Executor, ShardLog, Shards, Target, is_complete, refuse_changes
from chainrule_app.scale.workers import Job
from chainrule_app.tasks.run_directory import identity
from chainrule_app.tasks.text.sampling import one_thread

_BATCHES = 16  # of a shard: about a second of a table
_PAUSE = 10.0  # seconds between two lines of progress


def show_shards(call: Call, spread: Spread, out: Path | None, *, json: bool, csv: bool) -> None:
    """Compute the result of a call on a cluster, write its rows into shards, and show its figures."""
    if out is not None and url_of(out) is not None:
        raise OptionError("out", f"a cluster writes shards to a folder that its machines share, got {out}", "name one")
    target = None if out is None else Target(out)
    if spread.resume:
        if target is None:
            raise OptionError("resume", f"requires {option('out')}")
        call = _with_seed(call, ShardLog.begun(target).get("seed"))
    result = call.result()
    form = "csv" if csv and not json else result.form
    rows_in = out if result.columns else Path("figures.jsonl")  # without rows, any format will do
    reason = why_alone(call, result, rows_in, form, json=json)
    if reason is not None:
        raise OptionError("engine", *reason)
    job = job_of(call, result, "" if out is None else format_of(out), form, json=json)
    plan = _plan(job, result, json=json)
    if spread.resume and target is not None and is_complete(target):
        refuse_changes(target, plan)
        say([f"{target.folder} is complete"])
        return
    with cluster(spread.address, spread.workers) as number:
        workers = RayWorkers(job, target, batches_of(result), number)
        with closing(workers):
            compute(plan, call, result, target, workers, resume=spread.resume, json=json)


def compute(
    plan: Mapping[str, Any],
    call: Call,
    result: Result,
    target: Target | None,
    executor: Executor,
    *,
    resume: bool,
    json: bool,
) -> None:
    """Let an executor compute the shards of a plan, and show the figures of all rows."""
    rows = 0
    with ShardLog.open(target, plan, resume=resume) as log, one_thread(call.run.device("cpu")):
        with _progress(call.method, result.hints.get("rows"), log.rows()) as progress:
            call.run.answered = Shards(log, executor, progress).answered
            for part in result.stream():
                rows += part.rows  # type: ignore[attr-defined]  # parts come in the place of rows
        if target is not None:
            figures = {name: plain_value(value, value) for name, value in (result.summary | result.about).items()}
            log.finish(figures)
    if target is None or not result.columns:
        show(result, json=json)
        return
    row_format = RowFormat.of(result.form, format_of(target.folder), json=json)
    if row_format is not None and row_format.kind == "json":
        for _ in json_facts(result):
            raise AssertionError("figures among the rows")
    say_written(result, target.folder, rows, json=json)


def _with_seed(call: Call, seed: int | None) -> Call:
    """Return a call with the seed that an earlier process drew."""
    if seed is None or not call.drawn:
        return call
    if "seed" in call.settings:
        return replace(call, settings=call.settings | {"seed": seed})
    return replace(call, arguments=(*call.arguments[:-1], replace(call.arguments[-1], seed=seed)))


def _plan(job: Job, result: Result, *, json: bool) -> dict[str, Any]:
    """Return all that the content of shards depends on."""
    *data, options = job.arguments
    return {
        "format": FORMAT,
        "version": __version__,
        "run": identity(job.run),
        "method": job.method,
        "data": {name: size for source in data for name, size in _sizes(source)},
        "options": {name: str(value) for name, value in asdict(options).items()},
        "seed": job.settings.get("seed", result.about.get("seed")),
        "json": json,
        "batches": batches_of(result),
    }


def batches_of(result: Result) -> int:
    """Return the number of batches of a shard."""
    batches: int = result.hints.get("shard", _BATCHES)
    return batches


def _sizes(source: Any) -> Iterator[tuple[str, list[int]]]:
    """Yield the files of a source, with their sizes and times of change."""
    if isinstance(source, int):
        yield "rows", [source]
    elif isinstance(source, list | tuple):
        for one in source:
            yield from _sizes(one)
    elif source is not None:
        for name in source.paths if isinstance(source, FilesInTurn) else paths_of(str(source)):
            path = file_and_array(name)[0]
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                facts: stat_result = file.stat()
                yield str(file), [facts.st_size, facts.st_mtime_ns]


@contextmanager
def _progress(method: str, total: int | None, before: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the rows of each shard; shows the sum as a bar, or now and then as a line."""
    began: tuple[float, int] | None = None
    done, last = before, 0.0
    with progress_bars() as begin:
        advance = begin(total, "rows")
        advance(before)

        def finished(rows: int) -> None:
            nonlocal done, began, last
            done, now = done + rows, monotonic()
            advance(rows)
            if began is None:  # the processes have started
                began, last = (now, done), now
            elif not sys.stderr.isatty() and now - last >= _PAUSE:
                last, whole = now, "" if total is None else f" of {total:,}"
                say([f"{method}: {done:,}{whole} rows, {(done - began[1]) / (now - began[0]):,.0f} a second"])

        yield finished
