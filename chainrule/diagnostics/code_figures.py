"""The code of a model with latent variables, over some data: how much of it is used, and where inputs lie in it."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

ACTIVE = 0.01  # variance of a dimension's mean over the data, above which it is in use (Burda et al. 2016)
LEAST_KL = 0.1  # nats, below which nothing worth speaking of passes through the code


@dataclass(frozen=True)
class CodeFigures:
    r"""The codes of N inputs, L dimensions each.

    A dimension j is active where the mean of its code varies with the input,
    :math:`\mathrm{Var}_x(\mu_j(x)) > 0.01` (Burda et al. 2016).

    Args:
        means: (N, L) the mean of each code, or the code of an autoencoder.
        kl: (L,) KL(q(z_j|x) ‖ p(z_j)), the mean over the inputs, nats; `None` for an autoencoder.
    """

    means: Tensor
    kl: Tensor | None

    @property
    def variance(self) -> Tensor:
        """(L,) of the means over the inputs."""
        return self.means.var(0, correction=0)

    @property
    def active(self) -> list[int]:
        """The active dimensions: those with most KL first, or where there is none those that vary most."""
        variance = self.variance
        order = (variance if self.kl is None else self.kl).argsort(descending=True)
        return [dimension for dimension in order.tolist() if variance[dimension] > ACTIVE]

    @property
    def total_kl(self) -> float:
        """Nats of all dimensions."""
        return 0.0 if self.kl is None else float(self.kl.sum())

    @property
    def collapsed(self) -> bool:
        """Whether the decoder was left without a code: no dimension is active, or all together hold next to nothing."""
        return not self.active or (self.kl is not None and self.total_kl < LEAST_KL)

    def plane(self) -> tuple[Tensor, tuple[float, float]]:
        """The codes on their first two principal components, (N, 2), and the share of the variance of each."""
        centred = (self.means - self.means.mean(0)).double()
        _, values, directions = torch.linalg.svd(centred, full_matrices=False)
        shares = [*(values**2 / (values**2).sum().clamp_min(1e-30)).tolist(), 0.0, 0.0]
        directions = torch.cat([directions, torch.zeros(2, directions.shape[1], dtype=torch.float64)])[:2]
        # The sign of a component is arbitrary: its largest weight is positive, so that the same codes look the same.
        signs = directions.gather(1, directions.abs().argmax(1, keepdim=True)).sign()
        return (centred @ (directions * signs).t()).float(), (shares[0], shares[1])


def pooled_figures(codes: Iterable[tuple[Tensor, Tensor | None]]) -> CodeFigures:
    """The figures of codes that come in batches.

    Args:
        codes: the means (B, L) of a batch and its KL a dimension (B, L), `None` for an autoencoder.

    Raises:
        ValueError: there are none.
    """
    pairs = list(codes)
    if not pairs:
        raise ValueError("codes: expected at least one batch, got none")
    terms = [kl for _, kl in pairs if kl is not None]
    kl = torch.cat(terms).double().mean(0) if terms else None
    return CodeFigures(torch.cat([means for means, _ in pairs]), kl)
