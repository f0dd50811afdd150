"""`chainrule info`: what a run is and how to go on with it."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule.cli.command_line import quoted, resume_command
from chainrule.cli.durations import format_duration
from chainrule.config import OPTION_OF

if TYPE_CHECKING:
    from chainrule.run import Run


def info(run: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Show what a run is: model, size, data, vocabulary, best validation figure, how to continue.

    Args:
        run: The run directory.
        json: Print it as one JSON object.
    """
    from chainrule.run import Run, kind_of

    if kind_of(run) == "table":
        _show_table(run, json=json)
        return
    opened = Run.open(run)
    facts = gather(opened)
    if json:
        print(json_format.dumps(facts, ensure_ascii=False))
        return
    for name, value in _rows(opened, facts):
        print(f"{name:<12} {value}")


def gather(run: "Run") -> dict[str, Any]:
    """All that is known of a run, ready for JSON."""
    model = run.model() if (run.path / "model.safetensors").is_file() else run.new_model(0)
    config = run.config.to_json()
    validations = [record for record in run.metrics() if record.get("event") == "validation"]
    steps = [record["step"] for record in run.metrics() if record.get("event") == "step"]
    return {
        "run": str(run.path),
        "chainrule": config["chainrule"],
        "model": config["model"],
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "bytes": run.bytes_on_disk(),
        "data": config["data"],
        "corpus": config["corpus"],
        "vocabulary_size": len(run.vocabulary),
        "training": config["training"],
        "step": max(steps, default=0),
        "best": min(validations, key=lambda record: record["nats_per_element"], default=None),
        "continue": resume_command(run.path),
    }


def _rows(run: "Run", facts: dict[str, Any]) -> list[tuple[str, str]]:
    corpus, data, best = facts["corpus"], facts["data"], facts["best"]
    model = facts["model"]
    options = ", ".join(
        f"{name} {value}"
        for name, value in model["options"].items()
        if value is not None and OPTION_OF.get(name, model["name"]) == model["name"]
    )
    held_out = corpus["validation"]["name"] if corpus["validation"] else f"last {data['validation_fraction']:.0%}"
    return [
        ("run", facts["run"]),
        ("model", f"{model['name']} ({options})"),
        ("parameters", f"{facts['parameters']:,}"),
        ("on disk", ", ".join(f"{name} {_bytes(size)}" for name, size in facts["bytes"].items())),
        ("data", f"{corpus['source']['name']} ({_bytes(corpus['source']['bytes'])}), read as {data['reading']}"),
        ("split", f"{_count(corpus['train'])} to train on, {_count(corpus['valid'])} held out ({held_out})"),
        ("vocabulary", f"{facts['vocabulary_size']:,} symbols, level {data['level']}"),
        ("training", f"{facts['step']:,} steps; asked for {_asked(facts['training'])}"),
        ("best", "no validation yet" if best is None else _figures(best)),
        ("continue", facts["continue"]),
        ("sample", f"chainrule sample {quoted(run.path)}"),
    ]


def _show_table(path: Path, *, json: bool) -> None:
    from chainrule.cli.table_training import columns_table
    from chainrule.cli.table_verbs import table_facts
    from chainrule.table_run import TableRun

    facts = table_facts(TableRun.open(path)) | {"continue": resume_command(path)}
    if json:
        print(json_format.dumps(facts, ensure_ascii=False))
        return
    table, data, model, best = (facts[name] for name in ("table", "data", "model", "best"))
    held_out = table["validation"]["name"] if table["validation"] else f"{data['validation_fraction']:.0%}, drawn"
    rows = [
        ("run", facts["run"]),
        ("model", f"{model['name']} ({', '.join(f'{name} {value}' for name, value in model['options'].items())})"),
        ("parameters", f"{facts['parameters']:,}"),
        ("on disk", ", ".join(f"{name} {_bytes(size)}" for name, size in facts["bytes"].items())),
        ("data", f"{table['source']['name']} ({_bytes(table['source']['bytes'])}), {len(table['columns'])} columns"),
        ("split", f"{table['rows']['train']:,} rows to train on, {table['rows']['valid']:,} held out ({held_out})"),
        ("training", f"{facts['step']:,} steps; asked for {_asked(facts['training'])}"),
        (
            "best",
            "no validation yet"
            if best is None
            else f"{best['nats_per_row']:.4f} nats per row of the held-out rows, at step {best['step']:,}",
        ),
        ("continue", facts["continue"]),
        ("sample", f"chainrule sample {quoted(path)} -n 16"),
    ]
    for name, value in rows:
        print(f"{name:<12} {value}")
    print("columns", *columns_table(table), sep="\n  ")


def _figures(best: dict[str, Any]) -> str:
    return (
        f"{best['bits_per_element']:.4f} bits ({best['nats_per_element']:.4f} nats) per element, "
        f"perplexity {best['perplexity']:.4f}, at step {best['step']:,}"
    )


def _asked(training: dict[str, Any]) -> str:
    if training["budget"] is not None:
        return format_duration(training["budget"])
    return f"{training['steps']:,} steps" if training["steps"] is not None else f"{training['epochs']:g} epochs"


def _count(part: dict[str, int]) -> str:
    lines = f" in {part['lines']:,} lines" if part["lines"] else ""
    return f"{part['elements']:,} symbols{lines}"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
