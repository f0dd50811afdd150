"""`chainrule check` on a run on a table."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

ROWS = 4


def check(run: Path, /, *, seed: int = 0, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Check that a trained model of a table keeps the contract, on rows of the run's own that were held out.

    Exit status 0 if every check holds, 1 if one fails.

    Args:
        run: The run directory.
        seed: Of the perturbations and samples that the checks draw.
        json: Print one JSON object a check, with "name", "ok", "applies" and "detail".
    """
    import torch

    from chainrule.cli.contract import check_contract
    from chainrule.runs.table import TableRun

    opened = TableRun.open(run)
    rows = torch.from_numpy(opened.table().valid[:ROWS].copy())
    return check_contract(opened.model(), rows, seed=seed, json=json)
