"""Sums and products of matrices that are exact, so that the order of their additions is of no importance."""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torch import Tensor

DIGITS = 53  # of float64
_KEPT, _FEWEST = 256, 1024  # number of matrices cached as integers, and the fewest elements of one
_LEAST_POWER = -1000  # its inverse is still finite
Whole = tuple[Tensor, int]


class ExactSums:
    r"""Sums of numbers rounded to whole multiples of a power of two, with so few digits that float64 holds every sum.

    .. math:: \sum_{k=1}^{K} a_k b_k: \qquad a_k \approx 2^i A_k, \quad b_k \approx 2^j B_k, \quad
        K \max_k |A_k| \max_k |B_k| \le 2^{53}

    All partial sums of the integers :math:`A_k B_k` are then exact, and a vendor's product of matrices gives the same
    bits, however it orders and fuses its operations. The digits are shared: for K = 512 each factor keeps 22 of them
    below the largest number of its matrix, about as many as float32 has.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, tuple[Tensor, Whole]] = OrderedDict()

    def product(self, multiply: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor, terms: int) -> Tensor:
        """A bilinear function of two tensors, as `multiply` computes it, with at most so many terms in each sum."""
        digits = DIGITS - max(terms - 1, 1).bit_length()
        (a_whole, a_power), (b_whole, b_power) = self._whole(a, digits // 2), self._whole(b, digits - digits // 2)
        return multiply(a_whole, b_whole).mul_(2.0 ** (a_power + b_power)).to(a.dtype)

    def total(self, x: Tensor, dim: Any = None, *, keepdim: bool = False) -> Tensor:
        """The sum over some axes, all of them by default."""
        axes = list(range(x.dim())) if dim is None or dim == [] else dim
        whole, power = _rounded(x, DIGITS - max(x.numel() - 1, 1).bit_length())
        return whole.sum(axes, keepdim=keepdim).mul_(2.0**power).to(x.dtype)

    def running(self, x: Tensor, dim: int) -> Tensor:
        """The sums of the elements up to each one along an axis."""
        whole, power = _rounded(x, DIGITS - max(x.shape[dim] - 1, 1).bit_length())
        return whole.cumsum(dim).mul_(2.0**power).to(x.dtype)

    def _whole(self, x: Tensor, digits: int) -> Whole:
        """The whole numbers of a matrix; kept, because weights come again at every step."""
        if x.numel() < _FEWEST:
            return _rounded(x, digits)
        # A kept tensor lives, so that no other can have its place in memory; writing to it changes its version.
        key = (x.data_ptr(), x._version, x.dtype, x.shape, x.stride(), digits)
        if key not in self._kept:
            self._kept[key] = x, _rounded(x, digits)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key][1]


def _rounded(x: Tensor, digits: int) -> Whole:
    """Whole numbers below 2^digits, and the power of two that they are multiples of."""
    largest = float(x.abs().max()) if x.numel() else 0.0
    power = max(math.frexp(largest)[1] - digits, _LEAST_POWER) if 0 < largest < math.inf else 0
    return (x.double() * 2.0**-power).round_(), power
