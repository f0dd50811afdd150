"""Bounds of the likelihood of models with a latent code, with how far they would move if they were drawn again."""

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from chainrule.latent import LatentModel

USUAL_SAMPLES = 100  # K, where nothing is said
MOST_SAMPLES = 1 << 20


def checked_samples(samples: int | None) -> int:
    """K of the importance-weighted bound.

    Raises:
        ValueError: it is below 1, or beyond all use.
    """
    chosen = USUAL_SAMPLES if samples is None else samples
    if not 1 <= chosen <= MOST_SAMPLES:
        raise ValueError(f"--samples: expected a whole number from 1 to {MOST_SAMPLES:,}, got {chosen}")
    return chosen


def refuse_samples(samples: int | None, model: str) -> None:
    """Raise ValueError for draws that a model whose likelihood is exact does not need."""
    if samples is not None:
        raise ValueError(f"--samples: the likelihood of a {model} is exact, nothing is drawn: leave it out")


@dataclass(frozen=True)
class RowBounds:
    """Bounds of rows, (B,) each, nats of the negative log-likelihood: each lies above it in expectation.

    Args:
        nats: minus the importance-weighted bound, the mean of two estimates of K draws each.
        error: half the difference of the two: the square is an unbiased estimate of the variance of their mean.
        elbo: minus the evidence lower bound, by one draw.
        kl: of the posterior to the prior.
    """

    nats: "Tensor"
    error: "Tensor"
    elbo: "Tensor"
    kl: "Tensor"


def row_bounds(
    model: "LatentModel", x: "Tensor", samples: int, generator: "torch.Generator", *, lengths: "Tensor | None" = None
) -> RowBounds:
    """Bounds of x (B, ...), computed from 2 K + 1 draws a row.

    Args:
        model: in evaluation mode.
        x: on its device.
        samples: K.
        generator: of the draws.
        lengths: (B,) real elements of each row, where rows may be shorter.
    """
    import torch

    with torch.no_grad():
        first = -model.importance_bound(x, samples, generator, lengths=lengths).double()
        second = -model.importance_bound(x, samples, generator, lengths=lengths).double()
        elbo = -model.elbo(x, 1, generator, lengths=lengths).double()
        kl = model.kl(x, generator, lengths=lengths).double()
    return RowBounds((first + second) / 2, (first - second) / 2, elbo, kl)


class BoundTotal:
    """Sums of the bounds of many rows."""

    def __init__(self) -> None:
        self.rows, self.nats, self.elbo, self.kl, self._squares = 0, 0.0, 0.0, 0.0, 0.0

    def add(self, bounds: RowBounds) -> None:
        """Add the bounds of a batch."""
        self.rows += len(bounds.nats)
        self.nats += float(bounds.nats.sum())
        self.elbo += float(bounds.elbo.sum())
        self.kl += float(bounds.kl.sum())
        self._squares += float((bounds.error**2).sum())

    @property
    def standard_error(self) -> float:
        """Of `nats`, over the draws of codes: rows are drawn independently."""
        return sqrt(self._squares)

    def said(self, unit: str, samples: int) -> str:
        """The means in words; `unit` is a row."""
        rows = self.rows
        return (
            f"at most {self.nats / rows:.3f} ± {self.standard_error / rows:.3f} nats per {unit} "
            f"(importance-weighted bound, K = {samples:,}); ELBO {self.elbo / rows:.3f}, "
            f"of which KL {self.kl / rows:.3f}"
        )
