"""Functions of Student's t that torch lacks: a ratio of gamma functions, and the tail."""

import math

import torch
from torch import Tensor

_MOST_FRACTIONS = 3000  # terms of a continued fraction, some √ν of which count


def log_gamma_ratio(x: Tensor) -> Tensor:
    r"""Return :math:`\log \Gamma(x + \tfrac{1}{2}) - \log \Gamma(x) - \tfrac{1}{2} \log x` for x > 0, to rounding.

    For large x the three terms cancel: from 10 on this sums the asymptotic series in 1/x (Tricomi and Erdélyi 1951),
    whose first omitted term is below 4e-14.

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


def student_tail(z: Tensor, degrees: Tensor) -> Tensor:
    r"""Return P(T > z) of Student's t for z >= 0, by the continued fraction of the incomplete beta function I.

    .. math:: P(T > z) = \tfrac{1}{2} I_x\left(\tfrac{\nu}{2}, \tfrac{1}{2}\right), \qquad
        x = \frac{\nu}{\nu + z^2}, \qquad I_x(a, b) = 1 - I_{1-x}(b, a)

    Lentz's method (DLMF 8.17.22); of x and 1 − x the one for which it converges fast.

    >>> student_tail(torch.tensor([0.0, 1.0, 1e3]), torch.tensor(1.0))
    tensor([5.0000e-01, 2.5000e-01, 3.1831e-04])
    """
    square = (z / degrees.sqrt()).square()
    x, rest = 1 / (1 + square), square / (1 + square)
    half = torch.full_like(x, 0.5)
    a, b = torch.broadcast_tensors(degrees / 2, half)
    log_beta = math.log(math.pi) / 2 - log_gamma_ratio(a) - a.log() / 2
    log_front = -a * square.log1p() + (rest.clamp_min(torch.finfo(x.dtype).tiny).log() / 2) - log_beta
    swapped = x > (a + 1) / (a + b + 2)
    a, b, x = torch.where(swapped, b, a), torch.where(swapped, a, b), torch.where(swapped, rest, x)
    share = (log_front - a.log()).exp() * _beta_fraction(a, b, x)
    return torch.where(swapped, 1 - share, share) / 2


def _beta_fraction(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """Return the continued fraction of I_x(a, b), DLMF 8.17.22, all of one shape."""
    d = 1 / (1 - (a + b) * x / (a + 1))
    c, found = torch.ones_like(x), d
    for m in range(1, _MOST_FRACTIONS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        factor = torch.ones_like(x)
        for term in (even, odd):
            d, c = 1 / (1 + term * d), 1 + term / c
            factor = factor * d * c
        found = found * factor
        if bool(((factor - 1).abs() <= 2 * torch.finfo(x.dtype).eps).all()):
            break
    return found
