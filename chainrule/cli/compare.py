"""`chainrule compare RUN...`: runs side by side, ranked only where their figures are of the same thing."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chainrule.cli.answers import show_answer
from chainrule.cli.signature import joined_help
from chainrule.tasks import open_run
from chainrule.tasks.abilities import Answer, Record, Scores
from chainrule.tasks.display import Switch, Verb, format_duration, one_line
from chainrule.tasks.ledger import LedgerEntry, why_not_ranked
from chainrule.tasks.run_directory import WEIGHTS, count_weights
from chainrule.tasks.task import Task

_DATA = 12  # characters of a digest


def compare_verb(task: type[Task[Any]]) -> Verb:
    """The verb, the same for every task: runs of several may be compared."""
    compare.__doc__ = joined_help(compare.__doc__ or "", "")  # paragraphs in a line each, as in all verbs
    return compare


def compare(
    *runs: Path,
    data: Path | None = None,
    speed: Switch = False,
    json: Switch = False,
    device: str = "auto",
) -> None:
    """Compare runs: size, time trained, likelihood in the same units, and how it was measured.

    The likelihood is that of held-out data at the best validation, or of a file. Runs are ranked, the best first, only
    where unit, condition, tokens, base measure and data are the same for all; otherwise a line says what differs. A
    bound lies above the true figure: a model with a bound may be better than its rank.

    Args:
        runs: Run directories, of any tasks.
        data: A file or folder to score with every run, in place of the held-out data of each.
        speed: Measure how many elements a second each run scores and draws here.
        json: Print one JSON object a run.
        device: Where to compute: auto, cpu or cuda.
    """
    if not runs:
        raise ValueError("RUN: expected at least one run directory, got none")
    lines = [_measured(open_run(run), data, device, speed=speed) for run in runs]
    entries = [line.entry for line in lines if line.entry is not None]
    why = why_not_ranked(entries)
    if not why:
        lines.sort(key=lambda line: float("inf") if line.entry is None else line.entry.nats_per_element)
    show_answer(_answer(lines, why), json=json)


@dataclass(frozen=True)
class _Line:
    """A run, as it is shown.

    Args:
        run: its directory.
        values: for JSON: task, model, parameters, seconds, speeds.
        entry: its likelihood; None where none was measured yet.
    """

    run: str
    values: dict[str, Any]
    entry: LedgerEntry | None


def _measured(run: Task[Any], data: Path | None, device: str, *, speed: bool) -> _Line:
    weights = run.path / WEIGHTS
    if not weights.is_file():
        raise FileNotFoundError(f"{weights}: no weights yet: expected runs that were trained")
    entry = run.held_out() if data is None else _scored(run, data, device)
    speeds = {}
    if speed:
        from chainrule.tasks.speeds import measure_speeds

        found = measure_speeds(run, device)
        speeds = {"scored_per_second": found.score, "drawn_per_second": found.sample}
    values = {
        "run": str(run.path),
        "task": run.name,
        "model": run.config.model,
        "parameters": count_weights(weights),
        "seconds": run.seconds_trained(),
        **speeds,
    }
    return _Line(str(run.path), values, entry)


def _scored(run: Task[Any], data: Path, device: str) -> LedgerEntry:
    """The likelihood of a file under a run."""
    if not isinstance(run, Scores):
        raise ValueError(f"--data: {run.path} is a run of the task {run.name}, which scores no files: leave it out")
    answer = run.score(str(data), run.Scoring(), ranked=False, device=device)
    for _ in answer.records:  # read to the end: the entry is of all of them
        pass
    assert answer.entry is not None
    return replace(answer.entry(), data=str(run.fingerprint(str(data))["sha256"]))


def _answer(lines: list[_Line], why: str) -> Answer:
    rows = [_cells(line, None if why else place) for place, line in enumerate(lines, 1)]
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    width = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}

    def aligned(cells: Iterable[tuple[str, str]]) -> str:
        return "  ".join(
            f"{cell:<{width[name]}}" if name in _WORDS else f"{cell:>{width[name]}}" for name, cell in cells
        ).rstrip()

    def records() -> Iterator[Record]:
        for place, (line, row) in enumerate(zip(lines, rows, strict=True), 1):
            likelihood = None if line.entry is None else line.entry.values()
            ranks = {"rank": None if why or line.entry is None else place, "not_ranked": why or None}
            yield Record(line.values | {"likelihood": likelihood} | ranks, aligned((name, row[name]) for name in names))

    def closing() -> Iterable[str]:
        if why:
            yield f"not ranked: {why}"
        elif any(line.entry is not None and line.entry.basis.kind == "bound" for line in lines):
            yield "a bound is above the true figure: the model may be better than its rank"

    return Answer(records(), aligned((name, name) for name in names), closing)


_WORDS = ("run", "task", "model", "measured", "of", "data")


def _cells(line: _Line, rank: int | None) -> dict[str, str]:
    values, entry = line.values, line.entry
    seconds = values["seconds"]
    cells = {
        "#": "" if rank is None or entry is None else str(rank),
        "run": one_line(line.run),
        "task": values["task"],
        "model": values["model"],
        "parameters": f"{values['parameters']:,}",
        "trained": "" if seconds is None else format_duration(seconds),
        "nats": "",
        "bits": "",
        "bits/byte": "",
        "error": "",
        "measured": "no validation yet",
        "of": "",
        "data": "",
        **{name: _rate(values.get(key)) for name, key in _RATES.items()},
    }
    if entry is None:
        return cells
    error = "" if entry.standard_error is None else f" ±{entry.standard_error / entry.elements:.4f}"
    per_byte = entry.bits_per_byte
    basis = entry.basis
    return cells | {
        "nats": f"{entry.nats_per_element:.4f}{error}" if basis.quantity == "nats" else "",
        "bits": f"{entry.bits_per_element:.4f}" if basis.quantity == "nats" else "",
        "error": "" if basis.quantity == "nats" else f"{entry.nats_per_element:.6f}",
        "bits/byte": "" if per_byte is None else f"{per_byte:.4f}",
        "measured": basis.how,
        "of": basis.subject,
        "data": entry.data[:_DATA],
    }


_RATES = {"scored/s": "scored_per_second", "drawn/s": "drawn_per_second"}


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
