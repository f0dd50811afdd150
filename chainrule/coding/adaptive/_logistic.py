r"""The logistic function and its inverse, in integers.

.. math:: \mathrm{squash}(x) = \frac{1}{1 + e^{-x}}, \qquad \mathrm{stretch}(p) = \ln \frac{p}{1 - p}

A probability is an integer in (0, 2^16), a stretched one a multiple of 1/256 in [-12, 12]. The tables are made by
decimal arithmetic, which rounds the same way on every machine, and used by lookup.
"""

from decimal import Context, Decimal

import numpy as np

from chainrule.kernels._machine_code import compiled

LIMIT = 12 * 256 - 1  # the largest stretched probability, in multiples of 1/256


def _squash_table() -> np.ndarray:
    decimals = Context(prec=12)
    upper = []
    for x in range(LIMIT + 1):
        odds = decimals.exp(Decimal(-x) / 256)
        upper.append(min(65535, int(decimals.divide(Decimal(65536), 1 + odds).to_integral_value())))
    return np.array([65536 - p for p in upper[:0:-1]] + upper, np.uint16)


SQUASH = _squash_table()
# The inverse at the middle of each of 4,096 equal intervals.
STRETCH = (np.searchsorted(SQUASH, np.arange(4096) * 16 + 8) - LIMIT).astype(np.int16)


@compiled
def squash(x: int) -> int:
    """The 16-bit probability of a stretched one, clipped to [-LIMIT, LIMIT]."""
    return SQUASH[min(LIMIT, max(-LIMIT, x)) + LIMIT]


@compiled
def stretch(p: int) -> int:
    """The stretched form of a 16-bit probability, to 12 of its bits."""
    return STRETCH[p >> 4]
