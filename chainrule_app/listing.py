"""`runs`: the runs of a folder as a table, and the history of a run, read from their files alone, without torch."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.printing import one_line
from chainrule_app.pages.result_figures import learning_figure
from chainrule_app.printing import is_url, shown
from chainrule_app.results import Column, Result
from chainrule_app.tasks.model_size import count_parameters
from chainrule_app.tasks.run_directory import CHECKPOINT, CONFIG, WEIGHTS, is_locked, sealed_record
from chainrule_app.tasks.train_command import train_command

if TYPE_CHECKING:
    from chainrule_app.tasks.task import Task

_DATED = (CONFIG, CHECKPOINT, WEIGHTS)  # files that training writes
_DEPTH = 3  # folders below the one named
_COLUMNS = (
    Column("run"),
    Column("task"),
    Column("model"),
    Column("data"),
    Column("parameters"),
    Column("minutes", 1),
    Column("best", 4),
    Column("unit"),
    Column("state"),
    Column("date"),
    Column("command", shown=False),
)


def runs(folder: str | Path = "runs") -> Result:
    """List the runs of a folder and of the folders in it.

    Args:
        folder: a folder of runs, or a run.

    Returns:
        A row for each run, sorted by task, data and best figure: its number of parameters, the minutes it trained, the
        best figure of its validations with the unit, its state (finished, interrupted, running or untrained), the local
        time at which it was last trained, and the command that trains it again. The state of a run that cannot be
        opened is the reason.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it holds no run.
    """
    if is_url(folder):
        raise ValueError(f"{shown(folder)}: expected a local folder, got a URL: name runs with `chainrule compare`")
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder; `chainrule train` makes runs in runs/")
    rows = [_row(path) for path in _run_folders(folder, _DEPTH)]
    if not rows:
        raise ValueError(f"{folder}: expected run directories, found none: name the folder that holds them")
    return Result(_COLUMNS, sorted(rows, key=_order))


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    if any((folder / name).exists() for name in (CONFIG, CHECKPOINT)):
        yield folder
    elif depth:
        for part in sorted(folder.iterdir()):
            if part.is_dir() and not part.name.startswith("."):
                yield from _run_folders(part, depth - 1)


def _row(path: Path) -> tuple[Any, ...]:
    from chainrule_app.tasks import open_run

    try:
        run = open_run(path)
        weights = path / WEIGHTS
        size = count_parameters(weights) if weights.is_file() else None
        seconds, (best, unit) = run.seconds_trained(), _best(run)
        state, command = _state(run), train_command(run)
    except (OSError, ValueError) as error:
        state = f"broken: {one_line(str(error).removeprefix(f'{path}/'))}"
        return (str(path), *(state if column.name == "state" else None for column in _COLUMNS[1:]))
    newest = max((path / name).stat().st_mtime for name in _DATED if (path / name).exists())
    date = datetime.fromtimestamp(int(newest))
    source = run.config.sources.get("source")
    data = run.facts.source.name if source is None and run.facts is not None else Path(source or "").name
    minutes = None if seconds is None else seconds / 60
    return str(path), run.name, run.config.model, data, size, minutes, best, unit, state, date, command


def _best(run: "Task[Any]") -> tuple[float | None, str | None]:
    if run.metric_name:
        records = run.metrics("validation")
        values = [record[run.metric_name] for record in records if record.get("best") and run.metric_name in record]
        return (values[-1], run.metric_name) if values else (None, None)
    entry = run.held_out()
    return (None, None) if entry is None else (entry.nats / entry.elements, entry.basis.per)  # imports no torch


def _state(run: "Task[Any]") -> str:
    if is_locked(run.path):
        return "running"
    checkpoint = run.path / CHECKPOINT
    if not checkpoint.is_file():
        return "untrained"
    record, duration = sealed_record(checkpoint), run.config.duration
    try:
        position = record["position"]
        step, stale, elapsed = position["step"], position["stale"], position["elapsed"]
        total = math.inf
        if duration.steps is not None or duration.epochs is not None:
            total = duration.steps or math.ceil((duration.epochs or 0.0) * record["steps_per_epoch"])
        ended = step >= total or position["ended_budget"] is not None
        ended |= run.training.patience is not None and stale >= run.training.patience
        if duration.most_seconds is not None:  # steps that were chosen for a budget, and end with it
            ended |= elapsed + (position["validation_seconds"] or 0.0) >= duration.most_seconds
    except (KeyError, TypeError):
        raise ValueError(f"{checkpoint}: expected the position of training, got another record: damaged") from None
    return "finished" if ended and position["validated"] == step else "interrupted"


def _order(row: Sequence[Any]) -> tuple[Any, ...]:
    """Sort by task and data, the better figure first; broken runs last."""
    path, task, _, data, _, _, best, unit, *_ = row
    rank = math.inf if best is None else best if unit.startswith(("nats", "error")) else -best
    return (task is None, task or "", data or "", unit or "", rank, path)


def history_of(records: Sequence[Mapping[str, Any]]) -> Result:
    """Turn metrics records into rows, one column per name."""
    names = list(dict.fromkeys(name for record in records for name in record))
    rows = ([record.get(name) for name in names] for record in records)
    return Result([Column(name) for name in names], rows, figure=learning_figure)
