"""Figures of rows of unequal length, by their distance to the row's last step."""

import math

import torch
from torch import Tensor

THRESHOLD = 0.01  # of its largest value, below which a gradient or an influence counts as gone


def gradient_norms(gradient: Tensor) -> Tensor:
    """Euclidean norms of gradients in rows that are finite, (..., M) → (...), float64, on the CPU.

    Infinite where the gradient overflowed: products of infinite numbers with zeros make it NaN from there on.

    >>> gradient_norms(torch.tensor([[3.0, 4.0], [torch.inf, 1.0], [torch.nan, 0.0]]))
    tensor([5., inf, inf], dtype=torch.float64)
    """
    norms = torch.linalg.vector_norm(gradient.cpu().double(), dim=-1)
    return norms.masked_fill(norms.isnan(), math.inf)


def by_distance(values: Tensor, lengths: Tensor) -> Tensor:
    """The mean over rows of the values k steps before each row's last, (B, T) → (T,), float64, on the CPU.

    NaN where no row is so long. Rows that are NaN are left out.

    >>> by_distance(torch.tensor([[1.0, 2.0, 4.0], [3.0, 6.0, 0.0]]), torch.tensor([3, 2]))
    tensor([5.0000, 2.5000, 1.0000], dtype=torch.float64)
    """
    values, lengths = values.cpu().double(), lengths.cpu()
    at = lengths.unsqueeze(1) - 1 - torch.arange(values.shape[1], device="cpu")
    there = values.gather(1, at.clamp(min=0)).masked_fill(at < 0, math.nan)
    return there.nanmean(0)


def reach(profile: Tensor) -> float:
    """The number of steps back from which a profile (T,) stays under 1% of its value at distance 0; else infinite.

    NaN where there is no gradient at distance 0.

    >>> reach(torch.tensor([1.0, 0.1, 0.001])), reach(torch.tensor([1.0, 0.5]))
    (2.0, inf)
    """
    return steps_above(profile, THRESHOLD * float(profile[0])) if profile[0] > 0 else math.nan


def steps_above(curve: Tensor, level: float) -> float:
    """The number of steps after which a curve (T,), NaN at its end, stays under a level; infinite if it never does."""
    known = curve[~curve.isnan()]
    above = torch.nonzero(known >= level).flatten()
    steps = int(above[-1]) + 1 if len(above) else 0
    return math.inf if steps == len(known) else float(steps)
