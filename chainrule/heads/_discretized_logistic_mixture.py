"""Mixtures of logistics over ordered levels: each level has the mass of its bin."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.nn.functional import logsigmoid

from chainrule.heads._categorical import Categorical
from chainrule.heads._head import largest_exponent
from chainrule.heads._location_scale_mixture import LocationScaleMixture


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
    first, last = value <= 0, value >= levels - 1
    log_width = math.log(2 / levels) - log_scales
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
