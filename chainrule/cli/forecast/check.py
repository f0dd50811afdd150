"""`chainrule check` on a run on series."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

ROWS, STEPS = 4, 8


def check(run: Path, /, *, seed: int = 0, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Check that a trained forecaster keeps the contract, on rows of the run's own that were held out.

    Exit status 0 if every check holds, 1 if one fails.

    Args:
        run: The run directory.
        seed: Of the perturbations and samples that the checks draw.
        json: Print one JSON object a check, with "name", "ok", "applies" and "detail".
    """
    from chainrule.cli.contract import check_contract
    from chainrule.data.series import window_batch
    from chainrule.runs.forecast import ForecastRun

    opened = ForecastRun.open(run)
    series, steps = opened.series(), min(STEPS, opened.data.horizon)
    origins = [len(series.values) - steps - number for number in range(ROWS)]
    places = [(origin, number % series.values.shape[1]) for number, origin in enumerate(origins)]
    past = min(opened.longest_lag, min(origins))
    batch = window_batch(series.values, series.features, places, past, steps)
    return check_contract(opened.model(), batch.x, batch.context, seed=seed, json=json)
