"""Statistics by the distance to a row's last step."""

import math

import torch
from torch import Tensor

THRESHOLD = 0.01  # share of its largest value below which a gradient or an influence counts as vanished


def gradient_norms(gradient: Tensor) -> Tensor:
    """Return Euclidean norms of gradients, (..., M) → (...), float64 on the CPU; infinite if they overflowed.

    After an overflow, products of infinity and zero make the gradient NaN.

    >>> gradient_norms(torch.tensor([[3.0, 4.0], [torch.inf, 1.0], [torch.nan, 0.0]]))
    tensor([5., inf, inf], dtype=torch.float64)
    """
    norms = torch.linalg.vector_norm(gradient.cpu().double(), dim=-1)
    return norms.masked_fill(norms.isnan(), math.inf)


def by_distance(values: Tensor, lengths: Tensor) -> Tensor:
    """Average values k steps before each row's last step over rows, (B, T) → (T,), float64 on the CPU.

    NaN values are ignored; distances that no row has give NaN.
    """
    values, lengths = values.cpu().double(), lengths.cpu()
    at = lengths.unsqueeze(1) - 1 - torch.arange(values.shape[1], device="cpu")
    there = values.gather(1, at.clamp(min=0)).masked_fill(at < 0, math.nan)
    return there.nanmean(0)


def reach(profile: Tensor) -> float:
    """Return the steps after which a profile (T,) stays below 1% of its value at distance 0, or infinity.

    NaN if the value at distance 0 is not positive.
    """
    return steps_above(profile, THRESHOLD * float(profile[0])) if profile[0] > 0 else math.nan


def steps_above(curve: Tensor, level: float) -> float:
    """Return the steps after which a curve (T,), padded with NaN, stays below a level, or infinity."""
    values = curve[~curve.isnan()]
    above = torch.nonzero(values >= level).flatten()
    steps = int(above[-1]) + 1 if len(above) else 0
    return math.inf if steps == len(values) else float(steps)
