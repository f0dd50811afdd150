"""Mixtures of logistics over integers: of a range, discretised, or all."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.nn.functional import logsigmoid

from chainrule.heads._categorical import Categorical
from chainrule.heads._head import Choose, at_least_float32, largest_exponent
from chainrule.heads._real_mixtures import LocationScaleMixture
from chainrule.modes import wide, widest


class DiscretizedLogisticMixture(LocationScaleMixture):
    r"""A mixture of K logistic densities over the integers 0, …, L−1 (Salimans et al. 2017, PixelCNN++).

    The bins of the L integers divide [−1, 1] evenly, and the outer two reach to infinity:

    .. math:: p(x = v) = \sum_k \pi_k \left[ \sigma\left(\frac{b_v - \mu_k}{s_k}\right)
        - \sigma\left(\frac{a_v - \mu_k}{s_k}\right) \right], \qquad a_v = \frac{2v}{L} - 1, \quad b_v = a_{v+1}

    with :math:`a_0 = -\infty` and :math:`b_{L-1} = \infty`. It has three parameters per component for any L, and
    neighbouring levels get similar probabilities; a `Categorical` has L independent parameters.

    In float32 the log-mass has six correct digits if L is a power of two, because the bin edges are then exact. In the
    authors' code levels are 2/255 apart: the same family, with parameters larger by a factor of 256/255.

    Args:
        logits: (..., K) real scores of the components, π = softmax(logits).
        means: (..., K) μ in units in which the levels span [−1, 1].
        log_scales: (..., K) log s in the same units; −4 is a scale of 2.3 levels if L = 256.
        levels: number of levels L.

    >>> x = DiscretizedLogisticMixture(torch.zeros(1), torch.zeros(1), torch.zeros(1), levels=4)
    >>> x.log_prob(torch.arange(4)).exp()
    tensor([0.3775, 0.1225, 0.1225, 0.3775])
    """

    has_enumerate_support = True

    def __init__(self, logits: Tensor, means: Tensor, log_scales: Tensor, levels: int = 256):
        check_levels(levels)
        self.levels = levels
        super().__init__(logits, means, log_scales)

    @property
    def settings(self) -> tuple[Any, ...]:
        return (self.levels,)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self.levels - 1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return every level, (L, 1, ...), or (L, ...) expanded to the batch shape."""
        values = torch.arange(self.levels, device=self.logits.device).view(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    def component_log_prob(self, value: Tensor) -> Tensor:
        return log_bin_mass(value.to(self.means.dtype).unsqueeze(-1), self.means, self.log_scales, self.levels)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p(value), nats; value (...) broadcasts against the batch shape. −inf for other values."""
        return super().log_prob(value).masked_fill(outside(value, self.levels), -torch.inf)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw integers of shape sample_shape + batch shape: a component, a number from it, and the bin it falls in."""
        means, log_scales = self._draw_component(sample_shape, generator, self.means, self.log_scales)
        noise = logistic_noise(means, generator)
        drawn = means + log_scales.clamp(max=largest_exponent(means.dtype)).exp() * noise
        value = ((drawn + 1) * (self.levels / 2)).floor().clamp(0, self.levels - 1)
        # Rounding may move a draw into the next bin: compare it with the edges that log_prob uses.
        lower, upper = standard_edges(value, means, log_scales, self.levels)
        value = value - (noise < lower).to(value) + (noise >= upper).to(value)
        return value.clamp(0, self.levels - 1).long()

    def categorical(self) -> Categorical:
        """Return the same distribution as a table of L probabilities."""
        return Categorical(self.log_prob(self.enumerate_support(expand=False)).movedim(0, -1))


def check_levels(levels: int) -> None:
    """Reject too few levels."""
    if levels < 2:
        raise ValueError(f"levels: expected at least 2, got {levels}")


_FINEST = 3.5


def bounded_log_scales(outputs: Tensor, width: float) -> Tensor:
    r"""Return log-scales from a network's outputs o, at least e^−3.5 of the `width` of a level, in float32 or wider.

    .. math:: \log s = \log(e^o + w\, e^{-3.5})

    A logistic of the smallest scale has all but 1e-7 of its mass within a level. Narrower ones would gain nothing, and
    the gradient of a mean is up to 1 / s.
    """
    outputs = at_least_float32(outputs)
    return torch.logaddexp(outputs, outputs.new_full((), math.log(width) - _FINEST))


def outside(value: Tensor, levels: int) -> Tensor:
    """Return booleans, true where a value is not an integer in [0, levels)."""
    if value.dtype == torch.bool:
        return torch.zeros_like(value)
    if value.is_floating_point():
        return (value < 0) | (value > levels - 1) | (value != value.floor())
    value = value.long()  # in a narrow dtype such as int8 `levels` would overflow
    return (value < 0) | (value > levels - 1)


def bin_centres(value: Tensor, levels: int) -> Tensor:
    """Return the centres of the bins of integers in [0, levels); `value` is of a floating dtype.

    >>> bin_centres(torch.arange(4.0), levels=4)
    tensor([-0.7500, -0.2500,  0.2500,  0.7500])
    """
    return (2 * value + 1) / levels - 1


def standard_edges(value: Tensor, means: Tensor, log_scales: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """Return (edge − μ) / s of the lower and the upper edge of each bin, clamped so that sums stay finite."""
    # 2v / L - 1 is exact in binary if L is a power of two: only the difference from the mean is rounded.
    # The upper edge of a bin equals the lower edge of the next bin bit for bit: a narrow mixture on an edge sums to 1.
    lower, upper = (edge * (2 / levels) - 1 for edge in (value, value + 1))
    inverse_scale = (-log_scales).clamp(max=largest_exponent(means.dtype)).exp()
    largest = torch.finfo(means.dtype).max * 2.0**-20
    return (
        ((lower - means) * inverse_scale).clamp(-largest, largest),
        ((upper - means) * inverse_scale).clamp(-largest, largest),
    )


def log_bin_mass(value: Tensor, means: Tensor, log_scales: Tensor, levels: int) -> Tensor:
    r"""Return the log-mass of a logistic in the bin of an integer, nats; the outer bins include the whole tails.

    With a and b the standardised edges of the bin, this form avoids cancellation:

    .. math:: \log(\sigma(b) - \sigma(a)) = \log \sigma(b) + \log \sigma(-a) + \log(1 - e^{-(b - a)})

    The last bin omits the first term, the first bin the second term, and both omit the third.
    """
    a, b = standard_edges(value, means, log_scales, levels)
    return _log_difference(a, b, math.log(2 / levels) - log_scales, value <= 0, value >= levels - 1)


def _log_difference(a: Tensor, b: Tensor, log_width: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Return log(σ(b) − σ(a)) from log(b − a); `first` and `last` intervals include the whole tail."""
    return (
        logsigmoid(b).masked_fill(last, 0)
        + logsigmoid(-a).masked_fill(first, 0)
        + log_one_minus_exp(log_width).masked_fill(first | last, 0)
    )


def log_one_minus_exp(log_width: Tensor) -> Tensor:
    """Return log(1 − e^{−δ}) from log δ; in float64 it equals log δ below e^-40, and 0 above e^5."""
    width = log_width.clamp(-40, 5).exp()
    return torch.where(log_width < -40, log_width, (-torch.expm1(-width)).log())


def logistic_noise(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw from the standard logistic density, in the shape and dtype of `like`."""
    uniform = torch.rand_like(like, generator=generator).clamp_min(torch.finfo(like.dtype).eps / 4)
    return uniform.log() - (-uniform).log1p()


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
        open_below, open_above = first <= self.low, (last >= HALF_RANGE - 1) & (first < last)
        return _log_difference(a, b, log_width, open_below.unsqueeze(-1), open_above.unsqueeze(-1))

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
