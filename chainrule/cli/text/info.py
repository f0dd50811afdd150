"""`chainrule info` on a run on a text."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.facts import gather, show, size_of
from chainrule.cli.text.text_figures import describe, text_figures
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
    if best is not None:
        figures = text_figures(best["nats_per_element"] * corpus["valid"]["elements"], corpus["valid"])
        best.update(figures)
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
            f"{_perplexity(best)}, at step {best['step']:,}"
        )
        rows["per text"] = describe(figures)
    show(facts, rows, json=json)


def _perplexity(best: dict[str, Any]) -> str:
    return "perplexity " + ("beyond 1e308" if best["perplexity"] is None else f"{best['perplexity']:.4f}")


def _count(part: dict[str, int]) -> str:
    lines = f" in {part['lines']:,} lines" if part["lines"] else ""
    return f"{part['elements']:,} symbols{lines}"
