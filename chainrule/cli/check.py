"""`chainrule check`: the contract, on a trained model."""

import json as json_format
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

ROWS, ELEMENTS = 4, 32


def check(
    run: Path,
    /,
    *,
    seed: int = 0,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Check that a trained model keeps the contract: causality, total probability, step = forward and more.

    Runs on a piece of the run's own text. Exit status 0 if every check holds, 1 if one fails.

    Args:
        run: The run directory.
        seed: Of the perturbations and samples that the checks draw.
        json: Print one JSON object a check, with "name", "ok", "applies" and "detail".
    """
    from chainrule.cli.windows import own_window
    from chainrule.run import Run
    from chainrule.testing import check_model

    opened = Run.open(run)
    model = opened.model()
    x, lengths, _ = own_window(opened, ROWS, ELEMENTS)
    report = check_model(model, x, lengths=lengths, seed=seed)
    if json:
        for result in report.results:
            record = {"name": result.name, "ok": result.ok, "applies": result.applies, "detail": result.detail}
            print(json_format.dumps(record))
    else:
        print(report)
    return 0 if report.ok else 1
