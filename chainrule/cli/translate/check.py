"""`chainrule check` on a run of a translator."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

_ROWS, _LENGTH = 4, 12


def check(run: Path, /, *, seed: int = 0, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Test on a few held-out sentences that the trained model keeps the contract of a model of sequences.

    Args:
        run: The run directory.
        seed: Of the choices of the checks.
        json: Print one JSON object a check.
    """
    import numpy as np

    from chainrule.cli.contract import check_contract
    from chainrule.runs.translate import TranslateRun

    opened = TranslateRun.open(run)
    held_out = opened.pairs.valid
    batch = held_out.batch(np.arange(min(_ROWS, len(held_out))))
    assert batch.lengths is not None
    return check_contract(
        opened.model(), batch.x[:, :_LENGTH], batch.context, batch.lengths.clamp(max=_LENGTH), seed=seed, json=json
    )
