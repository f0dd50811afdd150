"""The distribution of one integer without an upper end: a mixture of logistics, cut at the halves."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.nn.functional import logsigmoid

from chainrule.heads.location_scale_mixture import LocationScaleMixture
from chainrule.heads.logistic_bins import log_one_minus_exp, logistic_noise
from chainrule.heads.precision import largest_exponent

LARGEST = 2.0**53  # integers beyond it are not all numbers of float64


class IntegerLogisticMixture(LocationScaleMixture):
    r"""A mixture of K logistic densities over the integers, each with the mass of its bin of width 1.

    .. math:: p(x = v) = \sum_k \pi_k \left[ \sigma\left(\frac{v + \frac12 - \mu_k}{s_k}\right)
        - \sigma\left(\frac{v - \frac12 - \mu_k}{s_k}\right) \right]

    Where there is a smallest integer, its bin takes the whole tail below it. Unlike `DiscretizedLogisticMixture` there
    is no largest one, so that no integer beyond those of the training data is impossible.

    Args:
        logits: (..., K) real scores of the components, π = softmax(logits).
        means: (..., K) μ, in the unit of the integers.
        log_scales: (..., K) log s, in the same unit.
        low: (...) the smallest integer, −inf for none, broadcast against the batch shape; `None` for none anywhere.

    Raises:
        ValueError: the three differ in shape, or there is no component.

    >>> x = IntegerLogisticMixture(torch.zeros(1), torch.tensor([2.0]), torch.zeros(1), low=torch.tensor(0.0))
    >>> x.log_prob(torch.arange(-1, 3)).exp()
    tensor([0.0000, 0.1824, 0.1951, 0.2449])
    """

    def __init__(self, logits: Tensor, means: Tensor, log_scales: Tensor, low: Tensor | None = None):
        super().__init__(logits, means, log_scales)
        self.low = torch.full((), -torch.inf, dtype=self.means.dtype, device=means.device) if low is None else low

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """logits, means and log_scales, (..., K) each, and low, (...)."""
        return *super().parameters, self.low.expand(self._batch_shape)

    @property
    def support(self) -> constraints.Constraint:
        if bool((self.low == 0).all()):
            return constraints.nonnegative_integer
        return constraints.integer_interval(self.low.clamp_min(-LARGEST), LARGEST)

    def component_log_prob(self, value: Tensor) -> Tensor:
        value = value.to(self.means.dtype)
        inverse_scale = (-self.log_scales).clamp(max=largest_exponent(self.means.dtype)).exp()
        largest = torch.finfo(self.means.dtype).max * 2.0**-20
        distance = value.unsqueeze(-1) - self.means
        a, b = (((distance + half) * inverse_scale).clamp(-largest, largest) for half in (-0.5, 0.5))
        first = (value <= self.low).unsqueeze(-1)
        return logsigmoid(b) + (logsigmoid(-a) + log_one_minus_exp(-self.log_scales)).masked_fill(first, 0)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), nats; value (...) broadcast against the batch shape, −inf for other values."""
        return super().log_prob(value).masked_fill((value < self.low) | (value != value.floor()), -torch.inf)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw integers, in the floating type of the parameters, of shape sample_shape + batch shape."""
        means, log_scales = self._picked(sample_shape, generator, self.means, self.log_scales)
        noise = logistic_noise(means, generator)
        drawn = means + log_scales.clamp(max=largest_exponent(means.dtype)).exp() * noise
        return (drawn + 0.5).floor().clamp(-LARGEST, LARGEST).maximum(self.low.to(means))
