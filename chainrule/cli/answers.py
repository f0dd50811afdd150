"""Answers of verbs, printed: records as JSON or lines, sorted where asked, or written to a file."""

import heapq
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.config import Duration
from chainrule.tasks.display import dump_json, flag, format_duration, printable, resume_command
from chainrule.tasks.ledger import Basis
from chainrule.tasks.task import Task

if TYPE_CHECKING:
    from chainrule.training.loop import TrainingResult


def show_answer(
    answer: Answer,
    *,
    json: bool,
    ranked: bool = False,
    top: int | None = None,
    out: Path | None = None,
    basis: Basis | None = None,
) -> None:
    """Print an answer, or write its lines to a file, whole or not at all.

    Args:
        answer: the records may raise while they are read: then nothing is written to `out`.
        json: one JSON object a record.
        ranked: sort by surprise, the greatest first.
        top: only so many of them.
        out: a file for the lines in place of standard output.
        basis: of the likelihoods in the records, said with them, where the answer names no other.
    """
    basis = answer.basis or basis
    measured = {} if basis is None else {"measured": asdict(basis)}
    records = _without_notices(_ranked(answer.records, top) if ranked else answer.records, json=json)
    if out is not None:
        from chainrule.data.atomic import write_text

        lines = (
            dump_json(record.values | measured) if json else _whole(record)
            for record in records
            if json or record.line is not None
        )
        write_text(out, "".join(f"{line}\n" for line in lines))
    elif json:
        for record in records:
            print(dump_json(record.values | measured))
    else:
        heading = answer.heading
        for record in records:
            if heading:
                print(heading)
                heading = ""
            _print(record)
    if out is not None or not json:
        for line in (*([] if basis is None else [f"measured: {basis}"]), *answer.closing()):
            print(line, file=sys.stderr if out is not None else sys.stdout)


def _without_notices(records: Iterator[Record], *, json: bool) -> Iterator[Record]:
    """Pass records on; what is to be said of written files goes to standard error, unless it is asked for as JSON."""
    for record in records:
        if record.notice and not (json and record.values):
            print(_whole(record), file=sys.stderr)
        else:
            yield record


def _ranked(records: Iterator[Record], top: int | None) -> Iterator[Record]:
    def surprise(record: Record) -> float:
        return record.surprise

    if top is None:
        return iter(sorted(records, key=surprise, reverse=True))
    return iter(heapq.nlargest(top, records, key=surprise))


def _print(record: Record) -> None:
    if isinstance(record.line, str):
        print(record.line)
    elif record.line is not None:
        for piece in record.line:
            sys.stdout.write(piece)
            sys.stdout.flush()


def _whole(record: Record) -> str:
    return record.line if isinstance(record.line, str) else "".join(record.line or ())


def _longer(duration: Duration) -> str:
    """The flag that makes a run of this duration longer."""
    for name, value in asdict(duration).items():
        if value is not None:
            return f"{flag(name)} ...  (a larger total trains on)"
    return "--budget ...  (a longer total trains on)"


def show_result(run: Task[Any], result: "TrainingResult", *, json: bool) -> None:
    """Print the summary of a training run, and what to do next."""
    figures, told = run.summary(result)
    if json:
        summary = {
            "run": str(run.path),
            "steps": result.step,
            "steps_now": result.steps_now,
            "elements": result.elements,
            "seconds": result.elapsed,
            "ended_by": result.ended_by,
            "best_step": result.best_step,
            "nats_per_element": result.best.nats_per_element,
            "validation_elements": result.best.elements,
        }
        print(dump_json(summary | figures))
        return
    again = f"{resume_command(run.path)} {_longer(run.config.duration)}"
    if result.steps_now == 0:
        print(
            f"\nnothing to do: the run has had all that it was asked for, {result.step:,} steps\n"
            f"best: {printable(told)}, at step {result.best_step:,}\n"
            f"next: {again}"
        )
        return
    early = " (stopped early: no more improvement)" if result.ended_by == "patience" else ""
    commands = [*run.next_steps(), again]
    print(
        f"\n{result.step:,} steps in {format_duration(result.elapsed)}{early}\n"
        f"best: {printable(told)}, at step {result.best_step:,}\n"
        f"run:  {run.path}\n"
        f"next: {commands[0]}\n" + "\n".join(f"      {command}" for command in commands[1:])
    )
