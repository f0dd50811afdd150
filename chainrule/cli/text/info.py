"""`chainrule info` on a run on a text."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.facts import gather, show, size_of
from chainrule.runs.text import OPTION_OF, TextRun


def info(run: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Show what a run is: model, size, data, best validation figure, how to continue.

    Args:
        run: The run directory.
        json: Print it as one JSON object.
    """
    opened = TextRun.open(run)
    facts = gather(opened) | {"vocabulary_size": len(opened.vocabulary)}
    corpus, data, best, model = facts["facts"], facts["data"], facts["best"], facts["model"]
    options = ", ".join(
        f"{name} {value}"
        for name, value in model["options"].items()
        if value is not None and OPTION_OF.get(name, model["name"]) == model["name"]
    )
    held_out = corpus["validation"]["name"] if corpus["validation"] else f"last {data['validation_fraction']:.0%}"
    rows = {
        "model": f"{model['name']} ({options})",
        "data": f"{corpus['source']['name']} ({size_of(corpus['source']['bytes'])}), read as {data['reading']}",
        "split": f"{_count(corpus['train'])} to train on, {_count(corpus['valid'])} held out ({held_out})",
        "vocabulary": f"{facts['vocabulary_size']:,} symbols, level {data['level']}",
        "sample": f"chainrule sample {quoted(run)}",
    }
    if best is not None:
        rows["best"] = (
            f"{best['bits_per_element']:.4f} bits ({best['nats_per_element']:.4f} nats) per element, "
            f"perplexity {best['perplexity']:.4f}, at step {best['step']:,}"
        )
    show(facts, rows, json=json)


def _count(part: dict[str, int]) -> str:
    lines = f" in {part['lines']:,} lines" if part["lines"] else ""
    return f"{part['elements']:,} symbols{lines}"
