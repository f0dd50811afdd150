"""Answers of verbs, printed: records as JSON or lines, sorted where asked, or written to a file."""

import heapq
import sys
from collections.abc import Iterator
from pathlib import Path

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.display import dump_json


def show_answer(
    answer: Answer, *, json: bool, ranked: bool = False, top: int | None = None, out: Path | None = None
) -> None:
    """Print an answer, or write its lines to a file, whole or not at all.

    Args:
        answer: the records may raise while they are read: then nothing is written to `out`.
        json: one JSON object a record.
        ranked: sort by surprise, the greatest first.
        top: only so many of them.
        out: a file for the lines in place of standard output.
    """
    records = _ranked(answer.records, top) if ranked else answer.records
    if out is not None:
        from chainrule.data.atomic import write_text

        write_text(out, "".join(f"{dump_json(record.values) if json else _whole(record)}\n" for record in records))
    elif json:
        for record in records:
            print(dump_json(record.values))
    else:
        heading = answer.heading
        for record in records:
            if heading:
                print(heading)
                heading = ""
            _print(record)
    if not json:
        for line in answer.closing():
            print(line, file=sys.stderr if out is not None else sys.stdout)


def _ranked(records: Iterator[Record], top: int | None) -> Iterator[Record]:
    def surprise(record: Record) -> float:
        return record.surprise

    if top is None:
        return iter(sorted(records, key=surprise, reverse=True))
    return iter(heapq.nlargest(top, records, key=surprise))


def _print(record: Record) -> None:
    if record.notice:
        print(_whole(record), file=sys.stderr)
    elif isinstance(record.line, str):
        if record.line:
            print(record.line)
    else:
        for piece in record.line:
            sys.stdout.write(piece)
            sys.stdout.flush()


def _whole(record: Record) -> str:
    return record.line if isinstance(record.line, str) else "".join(record.line)
