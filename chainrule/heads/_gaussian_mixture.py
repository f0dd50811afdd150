"""The distribution of one real number: a mixture of normal densities."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from chainrule.heads._head import largest_exponent
from chainrule.heads._location_scale_mixture import LocationScaleMixture
from chainrule.kernels._transforms import values_are_known

HALVINGS = 2200  # of a quantile's bracket at most: from the largest number of float64 to the smallest


class GaussianMixture(LocationScaleMixture):
    r"""A mixture of K normal densities on the real line (Bishop 1994, mixture density networks).

    .. math:: p(x) = \sum_k \pi_k \, \mathcal{N}(x \mid \mu_k, s_k^2), \qquad
        \log p(x) = \operatorname{logsumexp}_k \left[ \log \pi_k - \tfrac{1}{2} \left(\frac{x - \mu_k}{s_k}\right)^2
        - \log s_k - \tfrac{1}{2} \log 2\pi \right]

    It is a density, in nats, and depends on the unit of x: of x / c the log-density is larger by log c. With a
    component on a repeated value and its scale going to 0 the likelihood grows without end: data with atoms need
    another head, or noise.

    Args:
        logits: (..., K) real scores of the components, π = softmax(logits).
        means: (..., K) μ.
        log_scales: (..., K) log s.

    Raises:
        ValueError: the three differ in shape, or there is no component.

    >>> x = GaussianMixture(torch.zeros(2), torch.tensor([-1.0, 1.0]), torch.zeros(2))
    >>> x.log_prob(torch.tensor(0.0)), x.mean, x.variance
    (tensor(-1.4189), tensor(0.), tensor(2.))
    >>> x.cdf(torch.tensor(0.0)), x.icdf(torch.tensor(0.9))
    (tensor(0.5000), tensor(1.8495))
    """

    support = constraints.real

    @property
    def mean(self) -> Tensor:
        return (self.log_weights.exp() * self.means).sum(-1)

    @property
    def variance(self) -> Tensor:
        spread = (self.means - self.mean.unsqueeze(-1)).square()
        return self._weighted((2 * self.log_scales).exp() + spread)

    def component_log_prob(self, value: Tensor) -> Tensor:
        log_scales = self.log_scales.clamp_min(-largest_exponent(self.means.dtype))
        return -self._standard(value).square() / 2 - log_scales - math.log(2 * math.pi) / 2

    def cdf(self, value: Tensor) -> Tensor:
        """P(X <= value); value (...), broadcast against the batch shape."""
        return (self.log_weights.exp() * torch.special.ndtr(self._standard(value))).sum(-1)

    def log_mass(self, low: Tensor, high: Tensor) -> Tensor:
        """log P(low < X <= high), nats; both (...), broadcast against the batch shape, −inf and inf among them."""
        a, b = self._standard(low), self._standard(high)
        # In the upper half the two tails beyond are subtracted, not two numbers near 1.
        upper = a > 0
        a, b = torch.where(upper, -b, a), torch.where(upper, -a, b)
        below, all_below = torch.special.log_ndtr(a), torch.special.log_ndtr(b)
        terms = all_below + torch.log(-torch.expm1((below - all_below).clamp(max=0)))
        return (self.log_weights + terms).logsumexp(-1)

    @torch.no_grad()
    def icdf(self, value: Tensor) -> Tensor:
        """The quantile x at which `cdf` reaches a probability, by bisection; no gradient.

        The quantile of a mixture lies between the smallest and the largest of its components' quantiles.

        Args:
            value: (...) probabilities, broadcast against the batch shape; 0 and 1 give −inf and inf.

        Raises:
            ValueError: a value is no probability.
        """
        if values_are_known(value) and not bool(((value >= 0) & (value <= 1)).all()):
            raise ValueError(f"value: expected probabilities in [0, 1], got {value.min()} to {value.max()}")
        largest = largest_exponent(self.means.dtype)
        scales = self.log_scales.clamp(-largest, largest).exp()
        quantiles = self.means + scales * torch.special.ndtri(value.unsqueeze(-1))
        low, high = quantiles.amin(-1), quantiles.amax(-1)
        epsilon, narrowest = torch.finfo(high.dtype).eps, scales.amin(-1)
        for _ in range(HALVINGS):
            if not bool((high - low > epsilon * (high.abs() + narrowest)).any()):  # infinite ones count as reached
                break
            middle = (low + high) / 2
            below = self.cdf(middle) < value
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return high

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw real numbers of shape sample_shape + batch shape."""
        means, log_scales = self._picked(sample_shape, generator, self.means, self.log_scales)
        scales = log_scales.clamp(max=largest_exponent(means.dtype)).exp()
        return means + scales * torch.randn_like(means, generator=generator)
