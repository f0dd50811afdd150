r"""exp, tanh, the logistic sigmoid and wider numbers for compiled loops.

numba leaves `math.exp` as a call of the C library for every number, and a loop around it is not vectorised. In float32
these are polynomials, without a branch or a call, which LLVM computes for eight numbers at a time (with AVX2). Their
error is below 2 units in the last place over all float32; NaN stays NaN, and infinities have their limits. In float64
they are the C library's.

The polynomials and their ranges are from Cephes (Moshier 1992): :math:`e^x = 2^n e^r` with
:math:`n = \mathrm{round}(x / \ln 2)`.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

# Products and sums may fuse. Nothing more: reordered sums would undo the rounding to n, and NaN must pass.
_FUSED = {"fastmath": {"contract"}, "error_model": "numpy"}

_LOG2_E = np.float32(1.44269504088896341)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_ROUND = np.float32(12582912.0)  # 1.5 · 2²³: a float32 near it has no digits after the point
_ROUND_BITS = np.int32(0x4B400000)
_LEAST, _MOST = np.float32(-104.0), np.float32(88.8)  # beyond them e^x is 0 and infinite
_ONE, _TWO = np.float32(1), np.float32(2)
_E2, _E3, _E4, _E5, _E6, _E7 = (
    np.float32(c)
    for c in (5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4)
)
_T3, _T5, _T7, _T9, _T11 = (
    np.float32(c) for c in (-3.33332819422e-1, 1.33314422036e-1, -5.37397155531e-2, 2.06390887954e-2, -5.70498872745e-3)
)
_SMALL = np.float32(0.625)


def exp(x: Any) -> Any:
    """e^x of a float32 or float64, in compiled code."""
    return np.exp(x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^−x) of a float32 or float64, in compiled code."""
    return 1 / (1 + np.exp(-x))


def tanh(x: Any) -> Any:
    """Compute the hyperbolic tangent of a float32 or float64, in compiled code."""
    return np.tanh(x)


@overload(exp, jit_options=_FUSED)
def _exp(x: Any) -> Callable[[Any], Any]:
    def exact(x: Any) -> Any:
        return math.exp(x)

    def polynomial(x: Any) -> Any:
        bounded = min(max(x, _LEAST), _MOST)
        shifted = np.float32(bounded * _LOG2_E + _ROUND)
        n = np.int32(shifted.view(np.int32) - _ROUND_BITS)
        whole = shifted - _ROUND
        r = (bounded - whole * _LN2_HIGH) - whole * _LN2_LOW
        p = ((((_E7 * r + _E6) * r + _E5) * r + _E4) * r + _E3) * r + _E2
        y = (p * (r * r) + r) + _ONE
        # 2^n in two factors, as n may be beyond the exponents of float32.
        half = np.int32(n >> 1)
        first = np.int32((half + 127) << 23).view(np.float32)
        second = np.int32((n - half + 127) << 23).view(np.float32)
        result = y * first * second
        return result if x == x else x  # NaN stays

    return polynomial if x == types.float32 else exact


@overload(sigmoid, jit_options=_FUSED)
def _sigmoid(x: Any) -> Callable[[Any], Any]:
    def exact(x: Any) -> Any:
        return 1 / (1 + math.exp(-x))

    def quotient(x: Any) -> Any:
        z = exp(-abs(x))  # no part of it overflows
        return (z if x < 0 else _ONE) / (_ONE + z)

    return quotient if x == types.float32 else exact


@overload(tanh, jit_options=_FUSED)
def _tanh(x: Any) -> Callable[[Any], Any]:
    def exact(x: Any) -> Any:
        return math.tanh(x)

    def in_two_parts(x: Any) -> Any:
        s = x * x
        near = ((((_T11 * s + _T9) * s + _T7) * s + _T5) * s + _T3) * s * x + x
        size = abs(x)
        far = _ONE - _TWO / (exp(_TWO * size) + _ONE)
        return near if size < _SMALL else (-far if x < 0 else far)

    return in_two_parts if x == types.float32 else exact


@intrinsic
def widened(_: Any, x: Any) -> Any:
    """Return a number as it is, and the float16 whose bits a uint16 has as a float32, in compiled code."""
    if x != types.uint16:
        return x(x), lambda context, builder, signature, values: values[0]

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fpext(builder.bitcast(values[0], ir.HalfType()), ir.FloatType())

    return types.float32(x), codegen
