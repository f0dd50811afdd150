"""Verbs whose rows several processes answer."""

import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from chainrule.option_error import OptionError, option
from chainrule_app.cli.render import show
from chainrule_app.cli.row_format import RowFormat, format_of
from chainrule_app.readers.origin import STDIN
from chainrule_app.results import Result
from chainrule_app.tasks.config import CheckedOptions, Number, Switch

if TYPE_CHECKING:
    from chainrule_app.scale.workers import Job


@dataclass(frozen=True)
class Spread(CheckedOptions):
    """Options that divide an answer among processes."""

    workers: Number | None = None
    """Number of processes that answer, with one thread each; requires --out. By default this process, with all threads,
    and if that takes more than a few seconds, one for each core."""
    engine: Literal["local", "ray"] = "local"
    """Where they run: on this machine, or on a Ray cluster. With ray, --out names a folder of shards, such as
    scores.parquet or scores.jsonl."""
    address: str | None = None
    """Address of a Ray cluster; by default that of the variable RAY_ADDRESS, or a cluster started on this machine."""
    resume: Switch = False
    """Go on with the shards in --out that a process with --engine ray began; finished ones are not computed again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine != "ray":
            for name in ("address", "resume"):
                if getattr(self, name):
                    raise OptionError(name, f"requires {option('engine', 'ray')}")

    @property
    def in_shards(self) -> bool:
        return self.engine == "ray"


_PATIENCE = 5.0  # seconds: starting processes takes about half of that


@dataclass(frozen=True)
class Call:
    """Call of a method of a run.

    Args:
        run: a task's run.
        method: its name.
        arguments: the last one is a dataclass of options.
        settings: arguments by name, `device` among them.
    """

    run: Any
    method: str
    arguments: Sequence[Any]
    settings: dict[str, Any]
    drawn: bool = False  # whether the seed was drawn, not given

    def result(self) -> Result:
        """Return what the method returns."""
        result: Result = getattr(self.run, self.method)(*self.arguments, **self.settings)
        return result


def show_answers(
    call: Call,
    *,
    spread: Spread,
    out: Path | None,
    json: bool = False,
    csv: bool = False,
    ranked: bool = False,
    top: int | None = None,
) -> None:
    """Show the result of a call, which several processes compute where that is possible, and asked for or pays."""
    if spread.in_shards:
        from chainrule_app.cli.sharded import show_shards

        show_shards(call, spread, None if ranked or top is not None else out, json=json, csv=csv)
        return
    workers, result = spread.workers, call.result()
    form = "csv" if csv and not json else result.form
    file = None if ranked or top is not None else out
    with _divided(call, result, workers, file, form, json=json) as parts:
        show(result, json=json, csv=csv, ranked=ranked, top=top, out=out, parts=parts)


@contextmanager
def _divided(
    call: Call, result: Result, workers: int | None, out: Path | None, form: str, *, json: bool
) -> Iterator[bool]:
    """Let other processes compute the rows of a result within this context; yield whether they do."""
    if workers == 1:
        from chainrule_app.tasks.text.sampling import one_thread

        with one_thread(call.run.device(call.settings["device"])):
            yield False
        return
    reason = why_alone(call, result, out, form, json=json)
    if reason is not None and workers is not None:
        raise OptionError("workers", *reason)
    number = workers or _cores()
    if reason is not None or number == 1:
        yield False
        return
    from chainrule_app.scale.workers import Workers

    assert out is not None
    pool = Workers(job_of(call, result, format_of(out), form, json=json), number, 0 if workers else _PATIENCE)
    pool.result, call.run.answered = result, pool.answered
    try:
        yield True
    finally:
        pool.close()


def job_of(call: Call, result: Result, name: str, form: str, *, json: bool) -> "Job":
    """Return what other processes compute for a call, and write in the format that a name tells."""
    from chainrule_app.scale.workers import Job

    arguments = tuple(call.arguments)
    if "seed" in result.about and "seed" not in call.settings:  # which this process has drawn
        arguments = (*arguments[:-1], replace(arguments[-1], seed=result.about["seed"]))
    return Job(call.run.path, call.method, arguments, call.settings, partial(_written, form, name, json))


def why_alone(call: Call, result: Result, out: Path | None, form: str, *, json: bool) -> tuple[str, str] | None:
    """Return why one process must answer, and a remedy; None if several can."""
    if not result.hints.get("batchwise"):
        return "one process computes this answer", "leave it out"
    if out is None:
        return f"requires {option('out')}, and rows that are not sorted", ""
    if RowFormat.of(form, format_of(out), json=json) is None:
        return f"{out} needs all rows at once", "write .csv, .tsv, .jsonl or .parquet"
    if call.run.device(call.settings["device"]).type != "cpu":
        return f"requires {option('device', 'cpu')}", ""
    try:
        pickle.dumps(call.arguments)
    except TypeError:  # of a temporary file
        standard_input = True
    else:
        standard_input = any(argument in (STDIN, [STDIN]) for argument in call.arguments)
    return ("one process reads standard input", "write it to a file first") if standard_input else None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _written(form: str, name: str, json: bool, result: Result, rows: list[Sequence[Any]], first: bool) -> bytes:
    row_format = RowFormat.of(form, name, json=json)
    assert row_format is not None
    return row_format.written(result, rows, header=first)
