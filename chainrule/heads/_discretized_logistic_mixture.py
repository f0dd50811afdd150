"""The distribution of one of many ordered levels: a mixture of logistics, cut into bins."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from chainrule.heads._categorical import Categorical
from chainrule.heads._head import largest_exponent
from chainrule.heads._location_scale_mixture import LocationScaleMixture
from chainrule.heads._logistic_bins import log_bin_mass, logistic_noise, standard_edges


class DiscretizedLogisticMixture(LocationScaleMixture):
    r"""A mixture of K logistic densities over the integers 0, …, L−1 (Salimans et al. 2017, PixelCNN++).

    The bins of the L integers divide [−1, 1] evenly, and the outer two reach to infinity:

    .. math:: p(x = v) = \sum_k \pi_k \left[ \sigma\left(\frac{b_v - \mu_k}{s_k}\right)
        - \sigma\left(\frac{a_v - \mu_k}{s_k}\right) \right], \qquad a_v = \frac{2v}{L} - 1, \quad b_v = a_{v+1}

    with :math:`a_0 = -\infty` and :math:`b_{L-1} = \infty`. It takes three numbers a component whatever L is, and knows
    that neighbouring levels are alike; a `Categorical` takes L numbers and does not.

    In float32 the log-mass has its six digits if L is a power of two (the edges of bins are then exact). The authors'
    code has units in which levels are 2/255 apart: the same family, with numbers 256/255 times as large.

    Args:
        logits: (..., K) real scores of the components, π = softmax(logits).
        means: (..., K) μ, where [−1, 1] spans the levels.
        log_scales: (..., K) log s in the same units; −4 is a scale of 2.3 levels of 256.
        levels: L.

    Raises:
        ValueError: the three differ in shape, or there is no component, or there are fewer than 2 levels.

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
        """Every level, (L, 1, ...), or (L, ...) of the batch shape, expanded."""
        values = torch.arange(self.levels, device=self.logits.device).view(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    def component_log_prob(self, value: Tensor) -> Tensor:
        return log_bin_mass(value.to(self.means.dtype).unsqueeze(-1), self.means, self.log_scales, self.levels)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), nats; value (...) broadcast against the batch shape, −inf for other values."""
        return super().log_prob(value).masked_fill(outside(value, self.levels), -torch.inf)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw integers of shape sample_shape + batch shape: a component, a number from it, and that number's bin."""
        means, log_scales = self._picked(sample_shape, generator, self.means, self.log_scales)
        noise = logistic_noise(means, generator)
        drawn = means + log_scales.clamp(max=largest_exponent(means.dtype)).exp() * noise
        value = ((drawn + 1) * (self.levels / 2)).floor().clamp(0, self.levels - 1)
        # Rounding may put a draw into the next bin; decide by the edges that log_prob uses.
        lower, upper = standard_edges(value, means, log_scales, self.levels)
        value = value - (noise < lower).to(value) + (noise >= upper).to(value)
        return value.clamp(0, self.levels - 1).long()

    def categorical(self) -> Categorical:
        """The same distribution as a table of its L probabilities."""
        return Categorical(self.log_prob(self.enumerate_support(expand=False)).movedim(0, -1))


def check_levels(levels: int) -> None:
    """Reject too few levels."""
    if levels < 2:
        raise ValueError(f"levels: expected at least 2, got {levels}")


def outside(value: Tensor, levels: int) -> Tensor:
    """True where a value is not an integer in [0, levels), booleans of its shape."""
    if value.dtype == torch.bool:
        return torch.zeros_like(value)
    if value.is_floating_point():
        return (value < 0) | (value > levels - 1) | (value != value.floor())
    value = value.long()  # in a narrow type the number of levels may be another number
    return (value < 0) | (value > levels - 1)
