"""`chainrule info` on a run of a translator."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.facts import gather, show
from chainrule.cli.translate.train import counted, names_of
from chainrule.runs.translate import TranslateRun


def info(run: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Show what a run is: model, size, pairs, vocabularies, best validation, how to continue.

    Args:
        run: The run directory.
        json: Print it as one JSON object.
    """
    opened = TranslateRun.open(run)
    facts = gather(opened)
    found, best = facts["facts"], facts["best"]
    held_out = f" ({found['dev_source']['name']})" if found["dev_source"] else ""
    rows = {
        "data": f"{names_of(found)}: {counted(found, 'train')}",
        "held out": f"{counted(found, 'valid')}{held_out}",
        "vocabulary": f"level {opened.data.level}: {found['symbols']['source']:,} symbols of the source, "
        f"{found['symbols']['target']:,} of the target",
        "translate": f"chainrule translate {quoted(run)} FILE",
    }
    if best is not None:
        rows["best"] = (
            f"BLEU {best['bleu']:.2f} ({best['nats_per_element']:.4f} nats per symbol) at step {best['step']:,}"
        )
    show(facts, rows, json=json)
