"""Bounds of the likelihood of models with a latent code, with how far they would move if they were drawn again."""

from collections.abc import Iterator
from math import sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.latent import LatentModel

USUAL_SAMPLES = 100  # K, where nothing is said
MOST_SAMPLES = 1 << 20
_SEED = 4  # of the draws: the same data have the same bound


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


class BoundMeter:
    """Bounds of the negative log-likelihood of rows, and their sums: each lies above it in expectation.

    Args:
        model: in evaluation mode.
        samples: K of the importance-weighted bound.

    Attributes:
        rows: measured so far.
        nats: minus the importance-weighted bounds, each the mean of two estimates of K draws.
        elbo: minus the evidence lower bounds, each by one draw.
        kl: of the posteriors to the prior.
    """

    def __init__(self, model: "LatentModel", samples: int):
        import torch

        self._model, self.samples = model, samples
        self._device = next(model.parameters()).device
        self._generator = torch.Generator(self._device).manual_seed(_SEED)
        self.rows, self.nats, self.elbo, self.kl, self._squares = 0, 0.0, 0.0, 0.0, 0.0

    def measure(self, x: "Tensor", lengths: "Tensor | None" = None) -> Iterator[tuple[float, float, float]]:
        """Nats, ELBO and KL divergence of each row, computed from 2 K + 1 draws, and added to the sums.

        Args:
            x: (B, ...).
            lengths: (B,) real elements of each row, where rows may be shorter.
        """
        import torch

        model, samples, generator = self._model, self.samples, self._generator
        x, lengths = x.to(self._device), None if lengths is None else lengths.to(self._device)
        with torch.no_grad():
            first = -model.importance_bound(x, samples, generator, lengths=lengths).double()
            second = -model.importance_bound(x, samples, generator, lengths=lengths).double()
            elbo = -model.elbo(x, 1, generator, lengths=lengths).double()
            kl = model.kl(x, generator, lengths=lengths).double()
        nats = (first + second) / 2
        self.rows += len(nats)
        self.nats += float(nats.sum())
        self.elbo += float(elbo.sum())
        self.kl += float(kl.sum())
        # Half the difference of two estimates, squared, is an unbiased estimate of the variance of their mean.
        self._squares += float((((first - second) / 2) ** 2).sum())
        return zip(nats.tolist(), elbo.tolist(), kl.tolist(), strict=True)

    @property
    def standard_error(self) -> float:
        """Standard error of `nats` over the draws of codes; rows are drawn independently."""
        return sqrt(self._squares)

    def said(self, unit: str) -> str:
        """The means in words; `unit` is a row."""
        rows = self.rows
        return (
            f"at most {self.nats / rows:.3f} ± {self.standard_error / rows:.3f} nats per {unit} "
            f"(importance-weighted bound, K = {self.samples:,}); ELBO {self.elbo / rows:.3f}, "
            f"of which KL {self.kl / rows:.3f}"
        )
