"""`chainrule info` on a run of a tagger."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.facts import gather, show
from chainrule.runs.tag import TagRun


def info(run: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Show what a run is: model, size, sentences, tags, best validation, how to continue.

    Args:
        run: The run directory.
        json: Print it as one JSON object.
    """
    opened = TagRun.open(run)
    tags = list(opened.vocabulary.tags)
    facts = gather(opened) | {"tags": tags}
    found, best = facts["facts"], facts["best"]
    held_out = found["dev"]["name"] if found["dev"] else f"{found['sentences']['valid']:,} of its sentences"
    scheme = f", spans in {found['scheme'].upper()}" if found["scheme"] else ""
    rows = {
        "data": f"{found['source']['name']}: {found['sentences']['train']:,} sentences to train on, "
        f"{found['words']['train']:,} words, {found['different_words']:,} different ones in lower case",
        "held out": f"{held_out}, {found['words']['valid']:,} words",
        "tags": f"{len(tags)} of column {found['column']}{scheme}: {' '.join(tags)}",
        "tag": f"chainrule tag {quoted(run)} FILE",
    }
    if best is not None:
        name, value = ("entity F1", best["f1"]) if found["scheme"] else ("accuracy", best["accuracy"])
        rows["best"] = f"{name} {value:.2%} ({best['nats_per_element']:.4f} nats per word) at step {best['step']:,}"
    show(facts, rows, json=json)
