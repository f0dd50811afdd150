r"""Adaptive probabilities of a one: counters that begin fast and end slow.

.. math:: p \leftarrow p + \frac{y - p}{n + 3/2}, \qquad n \leftarrow \min(n + 1, N)

With N without end p is the share of ones seen; a finite N forgets exponentially, at the rate 1/N. One number of 32 bits
holds p - 1/2 in 22 bits and n in 10, so that a table of zeros is a table of even odds.
"""

import numpy as np

from chainrule.kernels._machine_code import compiled

_HALF = 1 << 21
_RATE = np.array([(65536 * 2) // (2 * n + 3) for n in range(1024)], np.int32)


def counters(probabilities: np.ndarray, count: int) -> np.ndarray:
    """A table that begins with 16-bit probabilities, as if `count` bits had been seen in each."""
    return (((probabilities.astype(np.int64) << 6) - _HALF) << 10 | count).astype(np.int32)


@compiled
def probability(counter: int) -> int:
    """The 16-bit probability of a one, in [0, 2^16)."""
    return ((counter >> 10) + _HALF) >> 6


@compiled
def towards(p: int, bit: int, count: int) -> int:
    """p - 1/2 in 22 bits after a bit, `count` bits having been seen before."""
    if bit:  # rounded away from the present value, so that it never comes to rest short of certainty
        return p - ((p - (_HALF - 1)) * _RATE[count] >> 16)
    return p + ((-_HALF - p) * _RATE[count] >> 16)


@compiled
def learn(table: np.ndarray, index: int, bit: int, limit: int) -> None:
    """Move a counter of a table towards a bit; `limit` is N < 1024."""
    counter = table[index]
    count = counter & 1023
    table[index] = towards(counter >> 10, bit, count) << 10 | min(count + 1, limit)
