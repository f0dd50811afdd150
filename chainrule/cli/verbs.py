"""Verbs that ask a trained model: sample, score, evaluate, embed, inspect, reconstruct, interpolate, predict.

Each is the same for every task that has its ability; the first line of its docstring is its line in the list of verbs.
The answer is printed: records as JSON or lines, sorted where asked, or written to a file.
"""

import heapq
import io
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from secrets import randbelow
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule.cli.signature import Device, Input, Seed, offered
from chainrule.tasks.abilities import (
    Answer,
    Code,
    Embeds,
    Evaluates,
    Inspects,
    Interpolates,
    Predicts,
    Reconstructs,
    Record,
    Samples,
    Scores,
)
from chainrule.tasks.display import Switch, Verb, csv_line, dump_json
from chainrule.tasks.ledger import Basis
from chainrule.tasks.task import Task

_MOST = 1 << 20


@offered(Samples, "Sampling")
def sample(
    run: Samples,
    /,
    *,
    n: Annotated[int | None, Parameter(name=["-n", "--number"])] = None,
    options: Any,
    out: Path | None = None,
    seed: Seed | None = None,
    device: Device = "cpu",
    json: Switch = False,
) -> None:
    """Draw from a trained model.

    Args:
        n: Number of samples.
        out: A file to write.
        seed: The same seed gives the same samples; new ones each time if not given.
        json: Print one JSON object for each.
    """
    count = run.USUAL_NUMBER if n is None else n
    if not 1 <= count <= _MOST:
        raise ValueError(f"-n: expected a whole number from 1 to {_MOST}, got {count}")
    chosen = randbelow(1 << 31) if seed is None else seed
    answer = run.sample(count, options, out=out, seed=chosen, device=device, json=json)
    show_answer(answer, json=json, out=out if run.draws_lines else None)


@offered(Scores, "Scoring")
def score(
    run: Scores,
    data: Input,
    /,
    *,
    options: Any,
    sort: Switch = False,
    top: Annotated[int | None, Parameter(name=["--top", "-n"])] = None,
    json: Switch = False,
    device: Device = "auto",
) -> None:
    """Score data: nats and bits, exact under the model, or a bound that says so.

    Args:
        data: The data.
        sort: Most surprising first.
        top: Print only this many, the most surprising ones.
        json: Print one JSON object for each.
    """
    if top is not None and top < 1:
        raise ValueError(f"--top: expected a whole number >= 1, got {top}")
    ranked = sort or top is not None
    answer = run.score(data, options, ranked=ranked, device=device)
    show_answer(answer, ranked=ranked, top=top, json=json, basis=run.basis)


@offered(Evaluates, "Evaluation")
def evaluate(
    run: Evaluates,
    data: Input | None = None,
    /,
    *,
    options: Any,
    json: Switch = False,
    device: Device = "auto",
) -> None:
    """Compare a run's answers with the right ones, by its task's own metrics.

    Args:
        data: The data.
        json: Print the figures as one JSON object.
    """
    show_answer(run.evaluate(data, options, device=device), json=json, basis=run.basis)


@offered(Embeds, "Embedding")
def embed(
    run: Embeds,
    data: Input,
    /,
    *,
    options: Any,
    out: Path | None = None,
    json: Switch = False,
    device: Device = "auto",
) -> None:
    """Embed inputs as vectors: codes of images and table rows, the state of a model after reading a text.

    Args:
        data: The data.
        out: A file to write: CSV, or an array (N, D) of NumPy by a name that ends in .npy; CSV on standard output if
            not given.
        json: Print one JSON object for each input.
    """
    if out is not None and not out.resolve().parent.is_dir():
        raise FileNotFoundError(f"--out {out}: there is no directory {out.parent}: make it first")
    array = out if out is not None and out.suffix.lower() == ".npy" else None
    if array is not None and json:
        raise ValueError(f"--json: {out} is an array, which holds no JSON: leave one of them out")
    codes = run.embed(data, options, device=device)
    first = next(codes, None)
    if first is None:
        raise ValueError(f"{data}: expected at least one input, got none")
    if array is None:
        show_answer(Answer(code_records(first, codes, json=json)), json=json, out=out)
        return
    import numpy as np

    from chainrule.data.atomic import write_bytes

    file = io.BytesIO()
    np.save(file, np.array([first.numbers, *(code.numbers for code in codes)], np.float32))
    write_bytes(array, file.getvalue())


def code_records(first: Code, others: Iterator[Code], *, json: bool) -> Iterator[Record]:
    """The codes as lines of CSV, a header first."""

    def named(code: Code) -> dict[str, str]:
        return {"input": code.name} | ({} if code.label is None else {"label": code.label})

    if not json:
        yield Record({}, csv_line([*named(first), *(f"z{number}" for number in range(len(first.numbers)))]))
    for code in chain((first,), others):
        cells = [*named(code).values(), *(f"{number:.9g}" for number in code.numbers)]
        yield Record(named(code) | {"code": code.numbers}, csv_line(cells))


@offered(Inspects, "Inspection", out="writes_page")
def inspect(
    run: Inspects,
    data: Input | None = None,
    /,
    *,
    out: Path | None = None,
    options: Any,
    seed: Seed = 0,
    json: Switch = False,
) -> None:
    """Look inside a trained model.

    Args:
        data: To read in place of held-out data.
        out: The page, a name that ends in .html; report.html in the run directory if not given.
        seed: Seed of random choices.
        json: Print all findings as one JSON object, and nothing else, on standard output.
    """
    show_answer(run.inspect(data, options, out=out, seed=seed), json=json)


@offered(Reconstructs, "Reconstruction")
def reconstruct(
    run: Reconstructs,
    data: Input,
    /,
    *,
    options: Any,
    out: Path | None = None,
    seed: Seed = 0,
    device: Device = "auto",
    json: Switch = False,
) -> None:
    """Show images next to their reconstructions from their codes.

    Args:
        data: The data.
        out: The file to write.
        seed: Seed of a decoder that draws.
        json: Print what was written as one JSON object.
    """
    show_answer(run.reconstruct(data, options, out=out, seed=seed, device=device), json=json)


@offered(Interpolates, "Interpolation")
def interpolate(
    run: Interpolates,
    first: Input,
    last: Input,
    /,
    *,
    options: Any,
    out: Path | None = None,
    seed: Seed = 0,
    device: Device = "auto",
    json: Switch = False,
) -> None:
    """Interpolate between two images: decode the codes on the line between theirs.

    Args:
        first: Where to begin.
        last: Where to end.
        out: The file to write.
        seed: Seed of a decoder that draws.
        json: Print what was written as one JSON object.
    """
    show_answer(run.interpolate((first, last), options, out=out, seed=seed, device=device), json=json)


def predict_verb(task: type[Task[Any]]) -> Verb | None:
    """The verb that is called after its task, as `chainrule tag RUN FILE`; None where the task predicts nothing."""
    several = issubclass(task, Predicts) and task.several
    return (predict_several if several else predict)(task)


@offered(Predicts, "Prediction")
def predict_several(
    run: Predicts, /, *files: str, options: Any, out: Path | None = None, json: Switch = False, device: Device = "auto"
) -> None:
    """Predict.

    Args:
        files: The data.
        out: A file to write to; standard output if not given.
        json: Print one JSON object for each.
    """
    show_answer(run.predict(list(files), options, out=out, device=device, json=json), json=json, out=out)


@offered(Predicts, "Prediction")
def predict(
    run: Predicts,
    file: Input,
    /,
    *,
    options: Any,
    out: Path | None = None,
    json: Switch = False,
    device: Device = "auto",
) -> None:
    """Predict.

    Args:
        file: The data; - is standard input.
        out: A file to write to; standard output if not given.
        json: Print one JSON object for each.
    """
    show_answer(run.predict([file], options, out=out, device=device, json=json), json=json, out=out)


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
        if heading:  # of no records
            print(heading)
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
