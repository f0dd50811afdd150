"""Describe, list, check and compare runs: the verbs `info`, `report`, `check`, `runs` and `compare`."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from chainrule.printing import one_line
from chainrule_app.cli.render import line_width, show, show_report
from chainrule_app.cli.signature import RunPath
from chainrule_app.inputs import inputs_of
from chainrule_app.listing import runs as list_runs
from chainrule_app.printing import counted, dump_json, flags_of, format_duration, resume_command, shown, size_of
from chainrule_app.result_table import fitted
from chainrule_app.results import Column, Result
from chainrule_app.tasks import open_run
from chainrule_app.tasks.baseline import baseline_values, recorded_baseline
from chainrule_app.tasks.config import Switch
from chainrule_app.tasks.likelihood_record import LikelihoodRecord, why_not_ranked
from chainrule_app.tasks.options import Seed
from chainrule_app.tasks.output import checked_page
from chainrule_app.tasks.run_directory import METRICS, TRAINING_PAGE, WEIGHTS, bytes_on_disk
from chainrule_app.tasks.task import Task
from chainrule_app.tasks.train_command import likeness, train_command


def info(run: RunPath, /, *, json: Switch = False) -> None:
    """Describe a run: model, size, data, best validation figure, how to continue.

    Args:
        json: Print it as one JSON object.
    """
    facts, best = _gather(run)
    if json:
        print(dump_json(facts))
    else:
        _show(facts, [*run.introduce()], best, next(iter(run.next_steps()), ""), likeness(run.config))


def _gather(run: Task[Any]) -> tuple[dict[str, Any], str]:
    """Collect the facts of a run for JSON, and describe its best validation."""
    if (run.path / WEIGHTS).is_file():
        parameters = sum(weight.numel() for weight in run.model().parameters())
    else:
        parameters = run.check_size(None)  # built without memory
    config = run.config.to_json(run.name)
    metrics = run.metrics()
    best_records = [record for record in metrics if record.get("event") == "validation" and record.get("best")]
    best, best_line = _best(run, _Validation(best_records[-1])) if best_records else (None, "no validation yet")
    held_out = run.held_out()
    facts = {
        "run": str(run.path),
        "chainrule": config["chainrule"],
        "task": run.name,
        "model": config["model"],
        "recipe": run.recipe,
        "parameters": parameters,
        "bytes": bytes_on_disk(run.path),
        "data": config["data"],
        "facts": config["facts"],
        "training": config["training"],
        "chosen": flags_of(run.config.chosen()),
        "command": train_command(run),
        "step": max((record["step"] for record in metrics if record.get("event") == "step"), default=0),
        "best": best,
        "likelihood": None if held_out is None else held_out.values(),
        "measured": None if held_out is None else str(held_out),
        "continue": resume_command(run.path),
        "baseline": baseline_values(run.path),
        **run.more_facts(),
    }
    return facts, best_line


class _Validation(dict[str, Any]):
    """Record of metrics.jsonl, which may have been edited."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"{METRICS}: the best validation has no figure {name}: the file is damaged")


def _best(run: Task[Any], record: _Validation) -> tuple[dict[str, Any], str]:
    from chainrule.training import Evaluation

    elements, value = int(record["elements"]), record[run.metric_name] if run.metric_name else None
    if elements < 1:
        raise ValueError(f"{METRICS}: expected elements in the best validation, got {elements}: the file is damaged")
    evaluation = Evaluation(record["nats_per_element"] * elements, elements)
    figures, line = run.best(evaluation, value, int(record.get("rows", 0)))
    return figures | record, f"{line}, at step {record['step']:,}"


def _show(facts: dict[str, Any], data: list[str], best: str, following: str, again: str) -> None:
    """Print the facts of every run, with the first line about its `data` among them and the others below."""
    model, training = facts["model"], facts["training"]
    length = (
        counted(training["steps"], "step") if training["steps"] is not None else f"{training['epochs'] or 0:g} epochs"
    )
    if training["budget"] is not None:
        length = format_duration(training["budget"])
    options = ", ".join(f"{name} {value}" for name, value in model["options"].items() if value is not None)
    best_record = facts["best"] or {}
    shares = [
        f"{name.removeprefix('share_of_')} {value:.0%}"
        for name, value in best_record.items()
        if name.startswith("share_of_")
    ]
    lines = {
        "run": facts["run"],
        "model": f"{facts['recipe']} ({options})",
        "parameters": f"{facts['parameters']:,}",
        "on disk": ", ".join(f"{name} {size_of(size)}" for name, size in facts["bytes"].items()),
        "averaged": ", ".join(shares) + " of the mean" * bool(shares),
        "data": data[0],
        "training": f"{counted(facts['step'], 'step')}; asked for {length}",
        "chosen": facts["chosen"],
        "again": facts["command"],
        "": facts["command"] and f"({again})",
        "best": best,
        "baseline": str(recorded_baseline(Path(facts["run"])) or ""),
        "measured": facts["measured"],
        "next": following,
        "continue": facts["continue"],
    }
    for name, value in lines.items():
        if value:
            print(f"{name:<12} {one_line(value)}")
    for line in data[1:]:
        print(fitted(line, line_width()))


def report(run: RunPath, /, *, out: Path | None = None, json: Switch = False) -> None:
    """Write a page about the training of a run: learning curves, learning rate, gradients, speed, samples, data.

    Args:
        out: Page to write, a name ending in .html; training.html in the run directory by default.
        json: Print the figures as one JSON object.
    """
    page = checked_page(out, run.path, TRAINING_PAGE)
    show_report(run.report(), page, json=json)


def check(run: RunPath, /, *, seed: Seed = 0, json: Switch = False) -> int:
    """Check that a trained model keeps the contract: causality, total probability, step = forward and more.

    For a classifier or tagger, check total probability, independence of rows from each other and from padding, and
    more. For a model with a latent code, check that its bounds are valid, and more. Uses a part of the run's own data.
    Exits with status 0 if every check holds, 1 if one fails.

    Args:
        seed: Seed of the perturbations and samples that the checks draw.
        json: Print one JSON object per check, with "name", "ok", "applies" and "detail".
    """
    report = run.check(seed=seed)
    if not json:
        print(report)
    for result in report.results if json else ():
        names = ("name", "ok", "applies", "detail")
        print(dump_json({name: getattr(result, name) for name in names}))
    return 0 if report.ok else 1


def runs(folder: Path = Path("runs"), /, *, json: Switch = False, csv: Switch = False) -> None:
    """List the runs of a folder: task, model, data, size, minutes, best figure, state.

    Args:
        folder: Folder with runs in it or in its subfolders.
        json: Print one JSON object per run.
        csv: Print the table as CSV.
    """
    show(list_runs(folder), json=json, csv=csv)


_DATA = 12  # characters of a digest
Line = tuple[dict[str, Any], LikelihoodRecord | None]


def compare(*runs: Path, data: Path | None = None, json: Switch = False, device: str = "auto") -> None:
    """Compare runs: size, time trained, likelihood in the same units, and how it was measured.

    The likelihood is measured on held-out data at the best validation, or on a file. Runs are ranked, best first, only
    if unit, condition, tokens, base measure and data agree; otherwise a line names the difference. A bound lies above
    the true figure, so a model with a bound may be better than its rank.

    Args:
        runs: Run directories, of any tasks.
        data: A file or folder to score with every run; the held-out data of each run if not given.
        json: Print one JSON object per run.
        device: Where to compute: auto, cpu, cuda or mps.
    """
    if not runs:
        raise ValueError("RUN: expected at least one run directory, got none")
    lines = [_measured(open_run(run), data, device) for run in runs]
    why = why_not_ranked([entry for _, entry in lines if entry is not None])
    if not why:
        lines.sort(key=lambda line: float("inf") if line[1] is None else line[1].nats_per_element)
    show(_compared(lines, why), json=json)


def _measured(run: Task[Any], data: Path | None, device: str) -> Line:
    """Return the facts of a run for JSON, and its measured likelihood if there is one."""
    weights = run.path / WEIGHTS
    if not weights.is_file():
        raise FileNotFoundError(f"{weights}: no weights yet: expected runs that were trained")
    entry = run.held_out() if data is None else _scored(run, data, device)
    values = {
        "run": shown(run.path),
        "task": run.name,
        "model": run.recipe,
        "parameters": sum(weight.numel() for weight in run.model().parameters()),
        "seconds": run.seconds_trained(),
    }
    return values, entry


def _scored(run: Any, data: Path, device: str) -> LikelihoodRecord:
    if not hasattr(run, "score"):
        raise ValueError(f"--data: {run.path} is a run of the task {run.name}, which scores no files: leave it out")
    with inputs_of(run) as inputs:
        path = inputs.source(data, "data")
        scores = run.score(path, run.Scoring(), device=device)
        for _ in scores.stream():  # the likelihood needs all rows
            pass
        assert scores.likelihood is not None
        return replace(scores.likelihood(), data=str(run.fingerprint(path)["sha256"]))


_COLUMNS = (
    Column("rank", heading="#"),
    Column("run"),
    Column("task"),
    Column("model"),
    Column("parameters"),
    Column("seconds", 0, heading="trained, s"),
    Column("nats", 4),
    Column("standard_error", 4, heading="±"),
    Column("bits", 4),
    Column("bits_per_byte", 4, heading="bits/byte"),
    Column("error", 6),
    Column("measured"),
    Column("of"),
    Column("data"),
    Column("likelihood", shown=False),
)


def _compared(lines: list[Line], why: str) -> Result:
    rows = [
        _row(values, entry, None if why or entry is None else index) for index, (values, entry) in enumerate(lines, 1)
    ]
    columns = [column for column in _COLUMNS if any(row.get(column.name) is not None for row in rows)]

    def notes() -> Iterator[str]:
        if not why and any(entry is not None and entry.basis.kind == "bound" for _, entry in lines):
            yield "A bound lies above the true figure: the model may be better than its rank."

    cells = ([row.get(column.name) for column in columns] for row in rows)
    return Result(columns, cells, about={"not_ranked": why} if why else {}, notes=notes)


def _row(values: dict[str, Any], entry: LikelihoodRecord | None, rank: int | None) -> dict[str, Any]:
    if entry is None:
        return values | {"measured": "no validation yet"}
    is_nats, error = entry.basis.quantity == "nats", entry.standard_error
    return values | {
        "rank": rank,
        "nats": entry.nats_per_element if is_nats else None,
        "standard_error": None if error is None else error / entry.elements,
        "bits": entry.bits_per_element if is_nats else None,
        "bits_per_byte": entry.bits_per_byte,
        "error": None if is_nats else entry.nats_per_element,
        "measured": entry.basis.how,
        "of": entry.basis.subject,
        "data": entry.data[:_DATA],
        "likelihood": entry.values(),
    }
