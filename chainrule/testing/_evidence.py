"""Significance tests of means and counts."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from chainrule.testing._subject import Violation

SIGNIFICANCE = 1e-7  # probability that one family of tests rejects a correct model
ERRORS = 5.5  # standard errors up to which a mean is accepted: 4e-8 for a normal mean, with room for skewed ones


class Surprise(NamedTuple):
    """The most unlikely of several sums."""

    event: int
    seen: float
    expected: float
    deviation: float


def surprise(seen: Tensor, expected: Tensor, variance: Tensor, largest: float) -> Surprise | None:
    r"""Return the sum, of K, that deviates most significantly from its expectation; `None` if no deviation is.

    The terms of each sum have known conditional expectations: S = seen - expected is a martingale, and Freedman's
    inequality (1975) bounds :math:`P(|S| \ge a) \le 2 \exp(-a^2 / (2 (V + b a / 3)))` with V the sum of the conditional
    variances and b the largest term. It holds for any number of terms and for rare events.
    """
    deviation = (seen - expected).abs()
    exponent = deviation**2 / (2 * (variance + largest * deviation / 3)).clamp_min(1e-300)
    worst = int(exponent.argmax())
    if not float(exponent[worst]) > math.log(2 * len(seen) / SIGNIFICANCE):
        return None
    return Surprise(worst, float(seen[worst]), float(expected[worst]), float(variance[worst].sqrt()))


def far_from_zero(terms: Tensor) -> float | None:
    """Return the standard errors from 0 to the mean of hundreds of terms in [-1, 1]; `None` if not significant."""
    deviation = terms.std().clamp_min(1e-12) / len(terms) ** 0.5
    errors = float(terms.mean() / deviation)
    # 1 / sqrt(N) guards against an underestimated spread, as of a few hundred equal terms.
    allowed = math.sqrt(2 * math.log(2 / SIGNIFICANCE))
    return errors if abs(errors) > allowed + 1 and float(terms.mean().abs()) > len(terms) ** -0.5 else None


def uneven_ranks(ranks: Tensor, size: int) -> bool:
    """Test ranks (N,) for a significant deviation from the uniform distribution on 0..size-1."""
    counts = torch.bincount(ranks, minlength=size).double()
    expected = torch.full_like(counts, len(ranks) / size)
    return surprise(counts, expected, expected * (1 - 1 / size), 1.0) is not None


class Average(NamedTuple):
    """Mean over draws, with its standard error."""

    mean: Tensor
    error: Tensor

    @classmethod
    def of(cls, draws: Tensor) -> "Average":
        """Average over the first axis."""
        return cls(draws.mean(0), draws.std(0) / len(draws) ** 0.5)

    def require(self, expected: "Tensor | Average", message: str, *, below: bool = False) -> None:
        """Raise `Violation` if the gap is significant (only an excess if `below`); formats row, seen, expected."""
        other, error = (expected.mean, expected.error) if isinstance(expected, Average) else (expected, 0.0)
        gap = self.mean - other
        allowed = ERRORS * (self.error**2 + error**2).sqrt() + 1e-8 * (1 + other.abs())
        wrong = ~((gap if below else gap.abs()) <= allowed)
        if wrong.any():
            at = tuple(int(index) for index in wrong.nonzero()[0])
            raise Violation(
                message.format(row=at[0], seen=f"{float(self.mean[at]):.6g}", expected=f"{float(other[at]):.6g}")
            )
