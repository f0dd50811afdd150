"""Diagonal normal distributions: the posterior and the prior of a latent code."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from chainrule.heads._head import TensorHead, at_least_float32, check_drawable, largest_exponent


class DiagonalNormal(TensorHead):
    r"""L independent normal numbers, drawn from an explicit generator, with gradients through the draws.

    .. math:: \log N(z; \mu, \sigma^2) = -\sum_j \left[ \frac{(z_j - \mu_j)^2}{2 \sigma_j^2} + \ln \sigma_j
        + \tfrac{1}{2} \ln 2\pi \right]

    Args:
        mean: (..., L) μ.
        log_scale: (..., L) ln σ, the logarithm of the standard deviation (not the variance).

    >>> code = DiagonalNormal(torch.tensor([1.0, 0.0]), torch.zeros(2))
    >>> code.kl()
    tensor(0.5000)
    """

    has_rsample = True

    def __init__(self, mean: Tensor, log_scale: Tensor):
        if mean.dim() < 1 or mean.shape != log_scale.shape:
            raise ValueError(
                f"mean, log_scale: expected two tensors of one shape (..., L), "
                f"got {tuple(mean.shape)} and {tuple(log_scale.shape)}"
            )
        self._mean, self.log_scale = at_least_float32(mean), at_least_float32(log_scale)
        super().__init__(mean.shape[:-1], mean.shape[-1:], validate_args=False)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return self._mean, self.log_scale

    @property
    def mean(self) -> Tensor:
        """μ, (..., L)."""
        return self._mean

    @property
    def stddev(self) -> Tensor:
        """σ, (..., L)."""
        return self.log_scale.exp()

    @property
    def variance(self) -> Tensor:
        """σ², (..., L)."""
        return (2 * self.log_scale).exp()

    @property
    def support(self) -> constraints.Constraint:
        return constraints.real_vector

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log-density, (...), nats; value (..., L) broadcasts against the parameters."""
        standard = (value - self._mean) * _inverse(self.log_scale)
        return -(0.5 * standard**2 + self.log_scale + 0.5 * math.log(2 * math.pi)).sum(-1)

    def rsample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw μ + σ ε with ε standard normal (Kingma and Welling 2014): gradients reach μ and σ."""
        shape = torch.Size(sample_shape) + self._mean.shape
        noise = torch.randn(shape, generator=generator, dtype=self._mean.dtype, device=self._mean.device)
        return torch.addcmul(self._mean, self.stddev, noise)

    @torch.no_grad()
    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw as `rsample` does, without gradients."""
        drawn = self.rsample(sample_shape, generator=generator)
        check_drawable(drawn.sum(), "mean, log_scale")
        return drawn

    def detached(self) -> "DiagonalNormal":
        """Return the same distribution with detached parameters."""
        return DiagonalNormal(self._mean.detach(), self.log_scale.detach())

    def kl_terms(self, prior: "DiagonalNormal | None" = None) -> Tensor:
        r"""Return the KL divergence to another diagonal normal (default N(0, I)), per number, (..., L), nats.

        .. math:: \tfrac{1}{2} \left( \mu^2 + \sigma^2 - 1 - \ln \sigma^2 \right)
        """
        # σ² - 1 - ln σ² as expm1(t) - t with t = ln σ²: accurate where σ is near 1.
        if prior is None:
            log_ratio, distance = 2 * self.log_scale, self._mean**2
        else:
            log_ratio = 2 * (self.log_scale - prior.log_scale)
            distance = ((self._mean - prior.mean) * _inverse(prior.log_scale)) ** 2
        return 0.5 * (distance + torch.expm1(log_ratio) - log_ratio)

    def kl(self, prior: "DiagonalNormal | None" = None) -> Tensor:
        """Return the sum of `kl_terms`, (...)."""
        return self.kl_terms(prior).sum(-1)

    def __repr__(self) -> str:
        return f"DiagonalNormal(batch_shape={tuple(self._batch_shape)}, L={self._event_shape[0]})"


def _inverse(log_scale: Tensor) -> Tensor:
    """Return 1/σ, clamped to a finite number so that 0 times it is 0, not NaN."""
    return (-log_scale).clamp(max=largest_exponent(log_scale.dtype)).exp()
