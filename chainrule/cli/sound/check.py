"""`chainrule check` on a run on sounds."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

ROWS, SAMPLES = 3, 24


def check(run: Path, /, *, seed: int = 0, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Check that a trained model of sounds keeps the contract, on the beginnings of held-out clips.

    Exit status 0 if every check holds, 1 if one fails.

    Args:
        run: The run directory.
        seed: Of the perturbations and samples that the checks draw.
        json: Print one JSON object a check, with "name", "ok", "applies" and "detail".
    """
    import numpy as np
    import torch

    from chainrule.cli.contract import check_contract
    from chainrule.runs.sound import SoundRun

    opened = SoundRun.open(run)
    sounds = opened.sounds()
    starts, stops = sounds.valid.line_bounds(np.arange(min(ROWS, sounds.valid.line_count)))
    lengths = np.minimum(stops - starts, SAMPLES)
    x = np.full((len(starts), lengths.max()), sounds.levels.silence)
    for padded, row in zip(x, sounds.valid.rows(starts, starts + lengths), strict=True):
        padded[: len(row)] = row
    context = None if sounds.valid_labels is None else torch.from_numpy(sounds.valid_labels[: len(x)])
    return check_contract(opened.model(), torch.from_numpy(x), context, torch.from_numpy(lengths), seed=seed, json=json)
