"""The distribution of one integer without an upper end: a mixture of logistics, cut at the halves."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.nn.functional import logsigmoid

from chainrule.heads._bisection import HALF_RANGE, code_integer
from chainrule.heads._head import Choose, largest_exponent
from chainrule.heads._location_scale_mixture import LocationScaleMixture
from chainrule.heads._logistic_bins import log_one_minus_exp, logistic_noise

LARGEST = HALF_RANGE  # 2^53: integers beyond it are not all numbers of float64


class IntegerLogisticMixture(LocationScaleMixture):
    r"""A mixture of K logistic densities over the integers, each with the mass of its bin of width 1.

    .. math:: p(x = v) = \sum_k \pi_k \left[ \sigma\left(\frac{v + \frac{1}{2} - \mu_k}{s_k}\right)
        - \sigma\left(\frac{v - \frac{1}{2} - \mu_k}{s_k}\right) \right]

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
        return self._component_log_mass(value, value)

    def log_mass(self, first: Tensor, last: Tensor) -> Tensor:
        """log p(first ≤ x ≤ last), nats; both (...) integers, broadcast against the batch shape. −inf of no integer.

        The whole tail beyond `LARGEST` is that number's.
        """
        first = first.to(self.means.dtype).maximum(self.low.to(self.means.dtype))
        last = last.to(self.means.dtype)
        empty = first > last
        terms = self.log_weights + self._component_log_mass(torch.minimum(first, last), last)
        return terms.logsumexp(-1).masked_fill(empty, -torch.inf)

    def _component_log_mass(self, first: Tensor, last: Tensor) -> Tensor:
        """log of the mass of the integers from `first` to `last` in each component, (..., K)."""
        dtype = self.means.dtype
        first, last = first.to(dtype), last.to(dtype)
        inverse_scale = (-self.log_scales).clamp(max=largest_exponent(dtype)).exp()
        largest = torch.finfo(dtype).max * 2.0**-20
        a, b = (
            ((end.unsqueeze(-1) - self.means + half) * inverse_scale).clamp(-largest, largest)
            for end, half in ((first, -0.5), (last, 0.5))
        )
        log_width = (last - first + 1).log().unsqueeze(-1) - self.log_scales
        open_below, open_above = (
            (first <= self.low).unsqueeze(-1),
            ((last >= LARGEST - 1) & (first < last)).unsqueeze(-1),
        )
        return (
            logsigmoid(b).masked_fill(open_above, 0)
            + logsigmoid(-a).masked_fill(open_below, 0)
            + log_one_minus_exp(log_width).masked_fill(open_below | open_above, 0)
        )

    def code(self, choose: Choose, value: Tensor | None = None) -> Tensor:
        """Write or read integers in [−2^53, 2^53) by halving intervals, in the floating type of the parameters."""
        return code_integer(self.log_mass, self._batch_shape, self.means, choose, value)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), nats; value (...) broadcast against the batch shape, −inf for other values."""
        value = value.long() if value.dtype == torch.bool else value  # a truth value is 0 or 1
        infinite = value.isinf()
        outside = infinite | (value < self.low) | (value != value.floor())
        return super().log_prob(value.masked_fill(infinite, 0)).masked_fill(outside, -torch.inf)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw integers, in the floating type of the parameters, of shape sample_shape + batch shape."""
        means, log_scales = self._picked(sample_shape, generator, self.means, self.log_scales)
        noise = logistic_noise(means, generator)
        drawn = means + log_scales.clamp(max=largest_exponent(means.dtype)).exp() * noise
        return (drawn + 0.5).floor().clamp(-LARGEST, LARGEST).maximum(self.low.to(means))
