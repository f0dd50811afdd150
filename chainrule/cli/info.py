"""`chainrule info RUN`: describe a run."""

from typing import Any

from chainrule.cli.offered import offered
from chainrule.tasks.display import Switch, dump_json, format_duration, one_line, resume_command, size_of
from chainrule.tasks.ladder import chosen_flags
from chainrule.tasks.run_directory import METRICS, WEIGHTS, bytes_on_disk
from chainrule.tasks.task import Task


@offered(Task)
def info(run: Task[Any], /, *, json: Switch = False) -> None:
    """Show what a run is: model, size, data, best validation figure, how to continue.

    Args:
        json: Print it as one JSON object.
    """
    facts = gather(run)
    rows = run.describe(facts)
    if json:
        print(dump_json(facts))
    else:
        show(facts, rows)


def gather(run: Task[Any]) -> dict[str, Any]:
    """All that is known of a run, ready for JSON."""
    model = run.model() if (run.path / WEIGHTS).is_file() else run.new_model(0)
    config = run.config.to_json(run.name)
    metrics = run.metrics()
    validations = [record for record in metrics if record.get("event") == "validation"]
    kept = [record for record in validations if record.get("best")]
    held_out = run.held_out()
    return {
        "run": str(run.path),
        "chainrule": config["chainrule"],
        "task": run.name,
        "model": config["model"],
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "bytes": bytes_on_disk(run.path),
        "data": config["data"],
        "facts": config["facts"],
        "training": config["training"],
        "chosen": chosen_flags(run.config),
        "step": max((record["step"] for record in metrics if record.get("event") == "step"), default=0),
        "best": _Validation(kept[-1]) if kept else None,
        "likelihood": None if held_out is None else held_out.values(),
        "measured": None if held_out is None else str(held_out),
        "continue": resume_command(run.path),
    }


class _Validation(dict[str, Any]):
    """A record of metrics.jsonl, which someone may have changed."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"{METRICS}: the best validation has no figure {name}: the file is damaged")


def show(facts: dict[str, Any], rows: dict[str, str]) -> None:
    """Print facts as rows: the task's own among those that every run has.

    Args:
        facts: returned by `gather`.
        rows: the task's own by name; `model` and `best` replace the usual ones, and a row without a name is a line.
    """
    model = facts["model"]
    options = ", ".join(f"{name} {value}" for name, value in model["options"].items() if value is not None)
    first = {
        "run": facts["run"],
        "model": f"{model['name']} ({options})",
        "parameters": f"{facts['parameters']:,}",
        "on disk": ", ".join(f"{name} {size_of(size)}" for name, size in facts["bytes"].items()),
    }
    last = {
        "training": f"{facts['step']:,} steps; asked for {_asked(facts['training'])}",
        **({"chosen": facts["chosen"]} if facts["chosen"] else {}),
        "best": "no validation yet",
        **({"measured": facts["measured"]} if facts["measured"] else {}),
        "continue": facts["continue"],
    }
    lines = rows.get("", "")
    rows = {name: text for name, text in rows.items() if name}
    for name, value in (first | {name: rows[name] for name in rows if name not in last} | last | rows).items():
        print(f"{name:<12} {one_line(value)}")
    if lines:
        print(lines)


def _asked(training: dict[str, Any]) -> str:
    if training["budget"] is not None:
        return format_duration(training["budget"])
    return f"{training['steps']:,} steps" if training["steps"] is not None else f"{training['epochs']:g} epochs"
