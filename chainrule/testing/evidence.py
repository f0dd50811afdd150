"""Whether numbers that should average to nothing do."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SIGNIFICANCE = 1e-7  # chance that one family of tests accuses a sound model


@dataclass(frozen=True)
class Surprise:
    """The most unlikely of several sums."""

    index: int
    seen: float
    expected: float
    deviation: float


def surprise(seen: Tensor, expected: Tensor, variance: Tensor, largest: float) -> Surprise | None:
    r"""The worst of K sums that chance explains too badly; `None` where it explains them all.

    Each sum adds terms whose expectation, given everything before, is known: S = seen - expected is a martingale, and
    Freedman's inequality (1975) bounds :math:`P(|S| \ge a) \le 2 \exp(-a^2 / (2 (V + b a / 3)))` with V the sum of the
    conditional variances and b the largest term. It holds for any number of terms, however rare the event.

    Args:
        seen, expected, variance: (K,).
        largest: b.
    """
    deviation = (seen - expected).abs()
    exponent = deviation**2 / (2 * (variance + largest * deviation / 3)).clamp_min(1e-300)
    worst = int(exponent.argmax())
    if not float(exponent[worst]) > math.log(2 * len(seen) / SIGNIFICANCE):
        return None
    return Surprise(worst, float(seen[worst]), float(expected[worst]), float(variance[worst].sqrt()))


def far_from_zero(terms: Tensor) -> float | None:
    """How many standard errors the mean of N terms with conditional expectation 0 is from 0, where chance is no excuse.

    terms: (N,) in [-1, 1]; N in the hundreds at least, for the normal approximation.
    """
    deviation = terms.std().clamp_min(1e-12) / len(terms) ** 0.5
    errors = float(terms.mean() / deviation)
    # 1 / sqrt(N) guards against a spread that a few hundred equal terms understate.
    allowed = math.sqrt(2 * math.log(2 / SIGNIFICANCE))
    return errors if abs(errors) > allowed + 1 and float(terms.mean().abs()) > len(terms) ** -0.5 else None


def uneven_ranks(ranks: Tensor, size: int) -> bool:
    """Whether ranks (N,), each uniform on 0..size-1 by right, are not."""
    counts = torch.bincount(ranks, minlength=size).double()
    expected = torch.full_like(counts, len(ranks) / size)
    return surprise(counts, expected, expected * (1 - 1 / size), 1.0) is not None
