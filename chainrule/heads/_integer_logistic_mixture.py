"""Mixtures of logistics over all integers, and exact coding of integers by bisection."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.nn.functional import logsigmoid

from chainrule._modes import wide, widest
from chainrule.heads._discretized_logistic_mixture import log_one_minus_exp, logistic_noise
from chainrule.heads._head import Choose, largest_exponent
from chainrule.heads._location_scale_mixture import LocationScaleMixture

BITS = 54
HALF_RANGE = 2.0 ** (BITS - 1)  # float64 holds every integer in [-2^53, 2^53)


class IntegerLogisticMixture(LocationScaleMixture):
    r"""A mixture of K logistic densities over the integers, each with the mass of its bin of width 1.

    .. math:: p(x = v) = \sum_k \pi_k \left[ \sigma\left(\frac{v + \frac{1}{2} - \mu_k}{s_k}\right)
        - \sigma\left(\frac{v - \frac{1}{2} - \mu_k}{s_k}\right) \right]

    If there is a smallest integer, its bin includes the whole tail below it. Unlike `DiscretizedLogisticMixture` it has
    no largest integer: numbers beyond the training data keep a positive probability.

    Args:
        logits: (..., K) real scores of the components, π = softmax(logits).
        means: (..., K) μ, in the unit of the integers.
        log_scales: (..., K) log s, in the same unit.
        low: (...) smallest integers, −inf for no bound, broadcast against the batch shape; `None` for no bound at all.

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
        return constraints.integer_interval(self.low.clamp_min(-HALF_RANGE), HALF_RANGE)

    def component_log_prob(self, value: Tensor) -> Tensor:
        return self._component_log_mass(value, value)

    def log_mass(self, first: Tensor, last: Tensor) -> Tensor:
        """Return log p(first ≤ x ≤ last), nats, of integers (...) that broadcast; −inf for an empty interval.

        The mass of the tail beyond 2^53 counts for 2^53.
        """
        first = first.to(self.means.dtype).maximum(self.low.to(self.means.dtype))
        last = last.to(self.means.dtype)
        empty = first > last
        terms = self.log_weights + self._component_log_mass(torch.minimum(first, last), last)
        return terms.logsumexp(-1).masked_fill(empty, -torch.inf)

    def _component_log_mass(self, first: Tensor, last: Tensor) -> Tensor:
        """Return the log-mass of the integers from `first` to `last` in each component, (..., K)."""
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
            ((last >= HALF_RANGE - 1) & (first < last)).unsqueeze(-1),
        )
        return (
            logsigmoid(b).masked_fill(open_above, 0)
            + logsigmoid(-a).masked_fill(open_below, 0)
            + log_one_minus_exp(log_width).masked_fill(open_below | open_above, 0)
        )

    def code(self, choose: Choose, value: Tensor | None = None) -> Tensor:
        """Encode or decode integers in [−2^53, 2^53) by bisection, in the floating dtype of the parameters."""
        return code_integer(self.log_mass, self._batch_shape, self.means, choose, value)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p(value), nats; value (...) broadcasts against the batch shape. −inf for other values."""
        value = value.long() if value.dtype == torch.bool else value  # booleans have no floor()
        infinite = value.isinf()
        outside = infinite | (value < self.low) | (value != value.floor())
        return super().log_prob(value.masked_fill(infinite, 0)).masked_fill(outside, -torch.inf)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw integers, in the floating dtype of the parameters, of shape sample_shape + batch shape."""
        means, log_scales = self._draw_component(sample_shape, generator, self.means, self.log_scales)
        noise = logistic_noise(means, generator)
        drawn = means + log_scales.clamp(max=largest_exponent(means.dtype)).exp() * noise
        return (drawn + 0.5).floor().clamp(-HALF_RANGE, HALF_RANGE).maximum(self.low.to(means))


def code_integer(
    log_mass: Callable[[Tensor, Tensor], Tensor],
    rows: torch.Size,
    like: Tensor,
    choose: Choose,
    value: Tensor | None = None,
    *,
    skipped: Tensor | None = None,
) -> Tensor:
    r"""Encode integers (B,), or decode them if `value` is `None`, by halving the interval around each 54 times.

    .. math:: p(v) = p(I_0) \prod_{j=1}^{54} p(I_j \mid I_{j-1}),
        \qquad I_0 \supset I_1 \supset \ldots \supset I_{54} = \{v\}

    where each interval is a half of the previous one, and :math:`I_0 = [-2^{53}, 2^{53})` has probability 1.

    log_mass: function of the first and last integers (B,) that returns log-masses; like: tensor with the dtype and the
    device of the result; skipped: (B,) booleans, rows whose choices have only one outcome.

    >>> from chainrule.heads import IntegerLogisticMixture
    >>> x = IntegerLogisticMixture(torch.zeros(1, 1), torch.full((1, 1), 7.0), torch.zeros(1, 1))
    >>> bits = torch.zeros(1)
    >>> def choose(probabilities, symbols):
    ...     bits.sub_(probabilities.gather(1, symbols.unsqueeze(1)).log2().squeeze(1))
    ...     return symbols
    >>> x.code(choose, torch.tensor([7.0])), bits, -x.log_prob(torch.tensor([7.0])) / torch.tensor(2.0).log()
    (tensor([7.]), tensor([2.0296]), tensor([2.0296]))
    """
    first = torch.full(rows, -HALF_RANGE, dtype=widest(like.device), device=like.device)
    size = 2 * HALF_RANGE
    for _ in range(BITS):
        size /= 2
        middle = first + size
        below, above = log_mass(first, middle - 1), log_mass(middle, middle + (size - 1))
        upper = wide((above - torch.logaddexp(below, above)).exp()).nan_to_num(0.5)
        if skipped is not None:
            upper = upper.masked_fill(skipped, 0)
        half = choose(torch.stack([1 - upper, upper], -1), None if value is None else (value >= middle).long())
        first = torch.where(half == 1, middle, first)
    return first.to(like.dtype)
