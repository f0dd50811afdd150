"""What `chainrule info` tells of any run."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from chainrule.cli.command_line import flags_of, resume_command
from chainrule.cli.display import dump_json, one_line
from chainrule.cli.durations import format_duration
from chainrule.runs.config import RunConfig
from chainrule.runs.run import METRICS, WEIGHTS, Run


def chosen_flags(config: RunConfig) -> str:
    """The flags that name every option that was settled for the user, with its value; empty where none was."""
    values = asdict(config.options) | asdict(config.training)
    return flags_of({name: values[name] for name in config.facts.get("chosen", {}).get("options", ())})


def gather(run: Run[Any]) -> dict[str, Any]:
    """All that is known of a run of any kind, ready for JSON."""
    model = run.model() if (run.path / WEIGHTS).is_file() else run.new_model(0)
    config = run.config.to_json(run.KIND)
    metrics = run.metrics()
    validations = [record for record in metrics if record.get("event") == "validation"]
    kept = [record for record in validations if record.get("best")]
    return {
        "run": str(run.path),
        "chainrule": config["chainrule"],
        "kind": run.KIND,
        "model": config["model"],
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "bytes": run.bytes_on_disk(),
        "data": config["data"],
        "facts": config["facts"],
        "training": config["training"],
        "chosen": chosen_flags(run.config),
        "step": max((record["step"] for record in metrics if record.get("event") == "step"), default=0),
        "best": _Validation(kept[-1]) if kept else None,
        "continue": resume_command(run.path),
    }


class _Validation(dict[str, Any]):
    """A record of metrics.jsonl, which someone may have changed."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"{METRICS}: the best validation has no figure {name}: the file is damaged")


def show(facts: dict[str, Any], rows: dict[str, str], more: Iterable[str] = (), *, json: bool) -> None:
    """Print facts as JSON, or as rows: the kind's own among those that every run has.

    Args:
        facts: what `gather` returns, and the kind's own.
        rows: the kind's own rows by name; `model` and `best` replace the usual ones.
        more: lines to print below.
        json: print `facts` as one JSON object.
    """
    if json:
        print(dump_json(facts))
        return
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
        "continue": facts["continue"],
    }
    for name, value in (first | {name: rows[name] for name in rows if name not in last} | last | rows).items():
        print(f"{name:<12} {one_line(value)}")
    for line in more:
        print(line)


def size_of(size: float) -> str:
    """Bytes in a unit that keeps them short.

    >>> size_of(1234567)
    '1.23 MB'
    """
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def _asked(training: dict[str, Any]) -> str:
    if training["budget"] is not None:
        return format_duration(training["budget"])
    return f"{training['steps']:,} steps" if training["steps"] is not None else f"{training['epochs']:g} epochs"
