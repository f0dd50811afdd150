"""The distribution of one real number with heavy tails: a mixture of Student's t."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from chainrule.heads._head import at_least_float32, largest_exponent
from chainrule.heads._location_scale_mixture import LocationScaleMixture


class StudentTMixture(LocationScaleMixture):
    r"""A mixture of K Student's t densities with a place, a scale and degrees of freedom each.

    .. math:: p(x) = \sum_k \pi_k \frac{\Gamma(\frac{\nu_k + 1}{2})}
        {\Gamma(\frac{\nu_k}{2}) \sqrt{\pi \nu_k}\, s_k}
        \left(1 + \frac{1}{\nu_k} \left(\frac{x - \mu_k}{s_k}\right)^2\right)^{-(\nu_k + 1) / 2}

    Far from the rest its density falls as a power of x, not as :math:`e^{-x^2}`: one outlier costs little, and pulls
    little. As ν grows it becomes a `GaussianMixture`. It is a density, in nats, and depends on the unit of x.

    `from_parameters` reads outputs of a network (..., 4K): logits, means, log-scales, and a with ν = 2 + softplus(a).
    With more than two degrees of freedom the variance is finite, and so are averages of draws.

    Args:
        logits: (..., K) real scores of the components, π = softmax(logits).
        means: (..., K) μ.
        log_scales: (..., K) log s.
        degrees: (..., K) ν > 0.

    Raises:
        ValueError: shapes differ, or there is no component.

    >>> x = StudentTMixture(torch.zeros(1), torch.zeros(1), torch.zeros(1), torch.tensor([3.0]))
    >>> x.log_prob(torch.tensor([0.0, 10.0])), x.variance
    (tensor([-1.0009, -8.0731]), tensor(3.))
    >>> StudentTMixture.from_parameters(torch.zeros(5, StudentTMixture.num_parameters(2)))
    StudentTMixture(batch_shape=(5,), K=2)
    """

    support = constraints.real
    component_size = 4

    def __init__(self, logits: Tensor, means: Tensor, log_scales: Tensor, degrees: Tensor):
        super().__init__(logits, means, log_scales)
        if degrees.shape != logits.shape:
            raise ValueError(f"degrees: expected the shape of logits {tuple(logits.shape)}, got {tuple(degrees.shape)}")
        self.degrees = at_least_float32(degrees)

    @classmethod
    def _split(cls, outputs: Tensor) -> tuple[Tensor, ...]:
        *parameters, raw = super()._split(outputs)
        return *parameters, 2 + torch.nn.functional.softplus(at_least_float32(raw))

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """logits, means, log_scales and degrees, (..., K) each, in at least float32."""
        return self.logits, self.means, self.log_scales, self.degrees

    @property
    def mean(self) -> Tensor:
        """NaN where a component has no mean, ν <= 1."""
        means = torch.where(self.degrees > 1, self.means, torch.nan)
        return self._weighted(means)

    @property
    def variance(self) -> Tensor:
        """Infinite where a component's is, ν <= 2; NaN where there is no mean."""
        excess = torch.where(self.degrees > 2, self.degrees / (self.degrees - 2), torch.inf)
        spread = (self.means - self.mean.unsqueeze(-1)).square()
        return self._weighted((2 * self.log_scales).exp() * excess + spread)

    def component_log_prob(self, value: Tensor) -> Tensor:
        half = self.degrees / 2
        peak = log_gamma_ratio(half) - math.log(2 * math.pi) / 2
        largest = torch.finfo(self.means.dtype).max ** 0.5 / 2  # below 1 degree, division takes the square out again
        tail = (half + 0.5) * (self._standard(value) / self.degrees.sqrt()).clamp(-largest, largest).square().log1p()
        return peak - tail - self.log_scales.clamp_min(-largest_exponent(self.means.dtype))

    @torch.no_grad()
    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw real numbers of shape sample_shape + batch shape: by the polar method of Bailey (1994), exactly."""
        means, log_scales, degrees = self._picked(sample_shape, generator, *self.parameters[1:])
        radius, angle = (torch.rand_like(means, generator=generator) for _ in range(2))
        radius = (1 - radius).log() * (-2 / degrees)  # 1 - u: never the logarithm of 0
        standard = (degrees * torch.expm1(radius)).sqrt() * (2 * math.pi * angle).cos()
        return means + log_scales.clamp(max=largest_exponent(means.dtype)).exp() * standard


def log_gamma_ratio(x: Tensor) -> Tensor:
    r""":math:`\log \Gamma(x + \tfrac{1}{2}) - \log \Gamma(x) - \tfrac{1}{2} \log x` for x > 0, to rounding.

    For large x the three terms cancel: from 10 on it is summed as its asymptotic series in 1/x (Tricomi and Erdélyi
    1951), whose first term left out is below 4e-14 there.

    >>> log_gamma_ratio(torch.tensor([0.5, 1e8]))
    tensor([-2.2579e-01, -1.2500e-09])
    """
    small = x.clamp(max=10.0)
    direct = torch.lgamma(small + 0.5) - torch.lgamma(small) - small.log() / 2
    inverse = x.clamp(min=10.0).reciprocal()
    square = inverse.square()
    series = 17 / 14336 - 31 / 18432 * square
    series = inverse * (-1 / 8 + square * (1 / 192 + square * (-1 / 640 + square * series)))
    return torch.where(x < 10, direct, series)
