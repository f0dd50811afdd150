"""The mass that a logistic density gives to one of L bins of the line."""

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from chainrule.heads._head import largest_exponent


def bin_centres(value: Tensor, levels: int) -> Tensor:
    """The middles of the bins of integers in [0, levels), in the type of `value`, floating.

    >>> bin_centres(torch.arange(4.0), levels=4)
    tensor([-0.7500, -0.2500,  0.2500,  0.7500])
    """
    return (2 * value + 1) / levels - 1


def standard_edges(value: Tensor, means: Tensor, log_scales: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """(edge − μ) / s of the lower and the upper edge of a bin.

    Where a number is too large for its type it is held at the largest that sums of many can bear.
    """
    # 2v / L - 1 is exact in binary where L is a power of two: the one rounding is that of the difference from the mean.
    # The upper edge of a bin is the lower one of the next to the last bit: a narrow mixture on an edge sums to 1.
    lower, upper = (edge * (2 / levels) - 1 for edge in (value, value + 1))
    inverse_scale = (-log_scales).clamp(max=largest_exponent(means.dtype)).exp()
    largest = torch.finfo(means.dtype).max * 2.0**-20
    return (
        ((lower - means) * inverse_scale).clamp(-largest, largest),
        ((upper - means) * inverse_scale).clamp(-largest, largest),
    )


def log_bin_mass(value: Tensor, means: Tensor, log_scales: Tensor, levels: int) -> Tensor:
    r"""log of the mass of a logistic in the bin of an integer, nats; the outer bins take the whole tails.

    With a and b the edges of the bin, standardised, no two numbers of a size are subtracted:

    .. math:: \log(\sigma(b) - \sigma(a)) = \log \sigma(b) + \log \sigma(-a) + \log(1 - e^{-(b - a)})

    The first term is absent in the last bin, the second in the first one, the third in both.

    Args:
        value: integers in [0, levels), floating type; broadcast against the others.
        means: μ, in units in which the bins divide [−1, 1].
        log_scales: log s, in the same units.
        levels: L, the number of bins.
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
    """log(1 − e^{−δ}) of log δ; below e^-40 it is log δ, and above e^5 it is 0, to the last digit of float64."""
    width = log_width.clamp(-40, 5).exp()
    return torch.where(log_width < -40, log_width, (-torch.expm1(-width)).log())


def logistic_noise(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draws of the standard logistic density, of the shape and type of `like`."""
    uniform = torch.rand_like(like, generator=generator).clamp_min(torch.finfo(like.dtype).eps / 4)
    return uniform.log() - (-uniform).log1p()
