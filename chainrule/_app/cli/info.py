"""`chainrule info RUN`, `report RUN`, `check RUN` and `runs [DIR]`: describe runs, and test a model."""

from pathlib import Path
from typing import Any

from chainrule._app.cli.render import show, show_report
from chainrule._app.cli.signature import Seed, verb_for
from chainrule._app.listing import runs as list_runs
from chainrule._app.tasks.capabilities import Checks
from chainrule._app.tasks.display import Switch, Verb, counted, dump_json, format_duration, resume_command, size_of
from chainrule._app.tasks.output import checked_page
from chainrule._app.tasks.run_directory import METRICS, TRAINING_PAGE, WEIGHTS, bytes_on_disk
from chainrule._app.tasks.task import Task
from chainrule._printing import one_line


@verb_for(Task)
def info(run: Task[Any], /, *, json: Switch = False) -> None:
    """Describe a run: model, size, data, best validation figure, how to continue.

    Args:
        json: Print it as one JSON object.
    """
    facts, best = _gather(run)
    rows = run.describe(facts)
    if json:
        print(dump_json(facts))
    else:
        _show(facts, rows, best, next(iter(run.next_steps()), ""))


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
        "chosen": run.config.chosen_flags(),
        "step": max((record["step"] for record in metrics if record.get("event") == "step"), default=0),
        "best": best,
        "likelihood": None if held_out is None else held_out.values(),
        "measured": None if held_out is None else str(held_out),
        "continue": resume_command(run.path),
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


def _show(facts: dict[str, Any], rows: dict[str, str], best: str, following: str) -> None:
    """Print the facts of every run, with the task's `rows` about the data among them."""
    model, training = facts["model"], facts["training"]
    length = (
        counted(training["steps"], "step") if training["steps"] is not None else f"{training['epochs'] or 0:g} epochs"
    )
    if training["budget"] is not None:
        length = format_duration(training["budget"])
    options = ", ".join(f"{name} {value}" for name, value in model["options"].items() if value is not None)
    lines = {
        "run": facts["run"],
        "model": f"{facts['recipe']} ({options})",
        "parameters": f"{facts['parameters']:,}",
        "on disk": ", ".join(f"{name} {size_of(size)}" for name, size in facts["bytes"].items()),
        **{name: text for name, text in rows.items() if name},
        "training": f"{counted(facts['step'], 'step')}; asked for {length}",
        "chosen": facts["chosen"],
        "best": best,
        "measured": facts["measured"],
        "next": following,
        "continue": facts["continue"],
    }
    for name, value in lines.items():
        if value:
            print(f"{name:<12} {one_line(value)}")
    if rows.get(""):
        print(rows[""])


@verb_for(Task)
def report(run: Task[Any], /, *, out: Path | None = None, json: Switch = False) -> None:
    """Write a page about the training of a run: learning curves, learning rate, gradients, speed, samples, data.

    Args:
        out: Page to write, a name ending in .html; training.html in the run directory by default.
        json: Print the figures as one JSON object.
    """
    page = checked_page(out, run.path, TRAINING_PAGE)
    show_report(run.report(), page, json=json)


@verb_for(Checks)
def check(run: Checks, /, *, seed: Seed = 0, json: Switch = False) -> int:
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


def runs_verb(task: type[Task[Any]]) -> Verb:
    """List runs, of any tasks."""
    return runs


def runs(folder: Path = Path("runs"), /, *, json: Switch = False, csv: Switch = False) -> None:
    """List the runs of a folder: task, model, data, size, minutes, best figure, state.

    Args:
        folder: Folder with runs in it or in its subfolders.
        json: Print one JSON object per run.
        csv: Print the table as CSV.
    """
    show(list_runs(folder), json=json, csv=csv)


runs_verb.__doc__ = runs.__doc__
