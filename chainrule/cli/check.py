"""`chainrule check`: the contract, on a trained model."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.base import AutoregressiveModel

    Looked = tuple[AutoregressiveModel, Tensor, Tensor | None]

ROWS, ELEMENTS = 4, 32


def check(
    run: Path,
    /,
    *,
    seed: int = 0,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Check that a trained model keeps the contract: causality, total probability, step = forward and more.

    Runs on a piece of the run's own data. Exit status 0 if every check holds, 1 if one fails.

    Args:
        run: The run directory.
        seed: Of the perturbations and samples that the checks draw.
        json: Print one JSON object a check, with "name", "ok", "applies" and "detail".
    """
    from chainrule.run import kind_of
    from chainrule.testing import check_model

    model, x, lengths = (_of_table if kind_of(run) == "table" else _of_text)(run)
    report = check_model(model, x, lengths=lengths, seed=seed)
    if json:
        for result in report.results:
            record = {"name": result.name, "ok": result.ok, "applies": result.applies, "detail": result.detail}
            print(json_format.dumps(record))
    else:
        print(report)
    return 0 if report.ok else 1


def _of_text(path: Path) -> "Looked":
    from chainrule.cli.windows import own_window
    from chainrule.run import Run

    run = Run.open(path)
    x, lengths, _ = own_window(run, ROWS, ELEMENTS)
    return run.model(), x, lengths


def _of_table(path: Path) -> "Looked":
    from chainrule.cli.table_verbs import own_rows
    from chainrule.table_run import TableRun

    run = TableRun.open(path)
    return run.model(), own_rows(run, ROWS), None
