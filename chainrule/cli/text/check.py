"""`chainrule check`: the contract, on a trained model."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

ROWS, ELEMENTS = 4, 32


def check(run: Path, /, *, seed: int = 0, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Check that a trained model keeps the contract: causality, total probability, step = forward and more.

    Runs on a piece of the run's own data. Exit status 0 if every check holds, 1 if one fails.

    Args:
        run: The run directory.
        seed: Of the perturbations and samples that the checks draw.
        json: Print one JSON object a check, with "name", "ok", "applies" and "detail".
    """
    from chainrule.cli.contract import check_contract
    from chainrule.cli.text.windows import own_window
    from chainrule.runs.text import TextRun

    opened = TextRun.open(run)
    x, lengths, _ = own_window(opened, ROWS, ELEMENTS)
    return check_contract(opened.model(), x, lengths=lengths, seed=seed, json=json)
