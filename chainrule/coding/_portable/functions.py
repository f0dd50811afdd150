"""exp, log and related functions in float64, built from operations that IEEE 754 defines to the last bit.

These are addition, multiplication, division and the square root; the exp of mathematical libraries differs in the last
bits.
"""

import math

import torch
from torch import Tensor

_LN2_HIGH, _LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10  # the first ends in 21 zero bits
_LARGEST, _SMALLEST = 709.0, -700.0  # beyond these, exp is infinite or 0
_EXP = [1 / math.factorial(n) for n in range(11, -1, -1)]
_EXPM1_NEAR = 0.35
_LARGE = 1e18  # sqrt(1 + _LARGE) rounds to sqrt(_LARGE)
_ATANH = [2 / n for n in range(17, 0, -2)]
_ERFC = [0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196,
         1.00002368, -1.26551223]  # fmt: skip
_SIN = [(-1) ** n / math.factorial(2 * n + 1) for n in range(8, -1, -1)]
_COS = [(-1) ** n / math.factorial(2 * n) for n in range(8, -1, -1)]
_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)


def exp(x: Tensor) -> Tensor:
    """Return e^x, with relative error 1e-14; 0 below −700."""
    clamped = x.clamp(_SMALLEST, _LARGEST)
    power = (clamped * (1 / math.log(2))).round_()
    rest = (clamped - power * _LN2_HIGH).sub_(power * _LN2_LOW)
    result = _polynomial(_EXP, rest).mul_(_two_to(power))
    return (
        result.masked_fill_(x < _SMALLEST, 0).masked_fill_(x > _LARGEST, torch.inf).masked_fill_(x.isnan(), torch.nan)
    )


def expm1(x: Tensor) -> Tensor:
    """Return e^x − 1 without loss of digits near 0."""
    near = x.clamp(-_EXPM1_NEAR, _EXPM1_NEAR)
    return torch.where(x.abs() < _EXPM1_NEAR, _polynomial(_EXP[:-1], near).mul_(near), exp(x).sub_(1))


def log(x: Tensor) -> Tensor:
    """Return the natural logarithm; −inf at 0, NaN below."""
    mantissa, exponent = torch.frexp(x)
    small = mantissa < math.sqrt(0.5)
    mantissa, exponent = torch.where(small, mantissa * 2, mantissa), exponent.double() - small.double()
    ratio = (mantissa - 1) / (mantissa + 1)
    result = _polynomial(_ATANH, ratio * ratio).mul_(ratio).add_(exponent * _LN2_LOW).add_(exponent * _LN2_HIGH)
    result = result.masked_fill_(x == 0, -torch.inf).masked_fill_(x == torch.inf, torch.inf)
    return result.masked_fill_((x < 0) | x.isnan(), torch.nan)


def log1p(x: Tensor) -> Tensor:
    """Return log(1 + x) without loss of digits near 0 (Kahan)."""
    whole = 1 + x
    lost = (whole - 1).masked_fill(whole == 1, 1)
    near = whole.isfinite() & (whole != 0)
    return torch.where(whole == 1, x, log(whole) * torch.where(near, x / lost, 1.0))


def sigmoid(x: Tensor) -> Tensor:
    """Return 1 / (1 + e^−x)."""
    return 1 / exp(-x).add_(1)


def tanh(x: Tensor) -> Tensor:
    """Return (1 − e^−2|x|) / (1 + e^−2|x|), with the sign of x."""
    falling = expm1(x.abs().mul_(-2))
    return torch.where(x < 0, falling, -falling) / (falling + 2)


def asinh(x: Tensor) -> Tensor:
    """Return log(x + √(x² + 1)), odd in x and without loss of digits near 0."""
    size = x.abs()
    square = (size * size).clamp(max=_LARGE)
    near = log1p(size + square / ((square + 1).sqrt() + 1))
    result = torch.where(size * size > _LARGE, log(size) + math.log(2), near)
    return torch.where(x < 0, -result, result)


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + e^x)."""
    return x.clamp(min=0) + log1p(exp(-x.abs()))


def log_erfc(x: Tensor) -> Tensor:
    """Return log(1 − erf(x)), with relative error 1.2e-7 of 1 − erf(x) (Press et al. 1992, section 6.2)."""
    size = x.abs()
    t = 1 / (size / 2 + 1)
    tail = log(t) + (_polynomial(_ERFC, t) - size * size)
    return torch.where(x < 0, log(2 - exp(tail)), tail)


def sin(x: Tensor) -> Tensor:
    """Return the sine of an angle below a million."""
    return _turned(x, 0)


def cos(x: Tensor) -> Tensor:
    """Return the cosine of an angle below a million."""
    return _turned(x, 1)


def _turned(x: Tensor, quarters: int) -> Tensor:
    """Return sin(x + quarters · π/2)."""
    count = (x * (2 / math.pi)).round()
    rest = x
    for part in _HALF_PI:
        rest = rest - count * part
    square = rest * rest
    quarter = (count.long() + quarters) % 4
    result = torch.where(quarter % 2 == 0, _polynomial(_SIN, square) * rest, _polynomial(_COS, square))
    return torch.where(quarter >= 2, -result, result)


def _polynomial(coefficients: list[float], x: Tensor) -> Tensor:
    """Evaluate by Horner's rule, in separate products and sums that no processor can fuse."""
    result = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result.mul_(x).add_(coefficient)
    return result


def _two_to(power: Tensor) -> Tensor:
    """Return 2^n of whole numbers from −1022 to 1023, from the bits of the exponent."""
    return (power.long() + 1023).bitwise_left_shift_(52).view(torch.float64)
