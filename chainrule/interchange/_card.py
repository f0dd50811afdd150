"""The README.md of an exported folder: what the model is, how well it does, on which data, and how to load it."""

from pathlib import Path
from typing import Any

from chainrule._app.tasks.task import Task
from chainrule._printing import one_line


def model_card(
    run: Task[Any], *, library: str, load: str, language: str = "python", notes: tuple[str, ...] = ()
) -> str:
    """Markdown with the front matter that the Hugging Face Hub reads."""
    about = {"facts": None}
    facts = {name: text for name, text in run.describe(about).items() if name}
    best = run.held_out()
    model = run.model()
    rows = {
        "task": run.name,
        "model": run.config.model,
        "parameters": f"{sum(weight.numel() for weight in model.parameters()):,}",
        **facts,
    }
    options = {
        name: value for name, value in run.config.to_json(run.name)["model"]["options"].items() if value is not None
    }
    figures = {}
    if best is not None:
        is_nats = best.basis.quantity == "nats"
        name = f"{'bits' if is_nats else best.basis.quantity} per {best.basis.unit}"
        figures = {name: f"{best.bits_per_element if is_nats else best.nats_per_element:.4f} ({best.basis.how})"}
        if is_nats and best.bits_per_byte is not None:
            figures["bits per byte"] = f"{best.bits_per_byte:.4f}"
        figures["measured on"] = f"{best.elements:,} held-out elements, data {best.data[:12]}"
    tags = "\n".join(f"- {tag}" for tag in ("chainrule", run.name, run.config.model))
    task = "pipeline_tag: text-generation\n" if run.name == "text" else ""
    parts = [
        f"---\nlibrary_name: {library}\n{task}tags:\n{tags}\n---\n",
        f"# {_cell(Path(run.path).resolve().name)}\n",
        f"A model of the task {run.name}, trained with chainrule.\n",
        _table(rows),
        "## Figures\n",
        _table(figures) if figures else "No validation was recorded.\n",
        "## Options\n",
        _table({name: str(value) for name, value in options.items()}),
        "## Load it\n",
        f"```{language}\n{load}\n```\n",
        *(f"{note}\n" for note in notes),
    ]
    return "\n".join(parts)


def _table(rows: dict[str, str]) -> str:
    lines = ["| | |", "|---|---|", *(f"| {_cell(name)} | {_cell(text)} |" for name, text in rows.items())]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text that ends no cell and begins no markup."""
    plain = one_line(text)
    for mark in "\\`|<>[]*_#":
        plain = plain.replace(mark, f"\\{mark}")
    return plain
