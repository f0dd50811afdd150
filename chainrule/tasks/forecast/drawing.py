"""Paths drawn from a trained forecaster."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from chainrule.models.forecaster import Forecaster

Floats = npt.NDArray[np.float64]
_TOGETHER = 1 << 14  # paths drawn side by side


def draw_paths(
    model: "Forecaster",
    values: Floats,
    features: Floats,
    origins: Sequence[int],
    past: int,
    horizon: int,
    paths: int,
    seed: int,
) -> Floats:
    """Forecasts of all series from each origin.

    Args:
        model: the trained model.
        values: (T, S).
        features: (N, F) covariates, as far as the last forecast goes.
        origins: rows at which forecasts begin.
        past: rows before each that it is made from; fewer where there are not so many.
        horizon: H.
        paths: n draws of each.
        seed: of the draws.

    Returns:
        (n, O, S, H).
    """
    import torch

    from chainrule.data.series import window_context
    from chainrule.decoding.sample_paths import sample_paths

    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    past, series = min(past, min(origins)), values.shape[1]
    places = [(origin, number) for origin in origins for number in range(series)]
    block = max(_TOGETHER // paths, 1)
    drawn = []
    for start in range(0, len(places), block):
        context = window_context(values, features, places[start : start + block], past, horizon)
        drawn.append(sample_paths(model, context, paths=paths, length=horizon, generator=generator).cpu())
    result: Floats = torch.cat(drawn).view(len(origins), series, paths, horizon).movedim(2, 0).double().numpy()
    return result
