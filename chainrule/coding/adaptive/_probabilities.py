r"""Integer arithmetic of probabilities: counters, the logistic function, hashes and adaptive probability maps.

A counter is an adaptive probability of a one, with a learning rate that falls with the number n of bits seen:

.. math:: p \leftarrow p + \frac{y - p}{n + 3/2}, \qquad n \leftarrow \min(n + 1, N)

For infinite N, p is the share of ones; a finite N forgets exponentially, at the rate 1/N. A 32-bit number holds p - 1/2
in 22 bits and n in 10, so that a table of zeros is a table of even odds.

.. math:: \mathrm{squash}(x) = \frac{1}{1 + e^{-x}}, \qquad \mathrm{stretch}(p) = \ln \frac{p}{1 - p}

A probability is an integer in (0, 2^16), a stretched one a multiple of 1/256 in [-12, 12]. Decimal arithmetic, which
rounds the same way on every machine, computes the lookup tables.

A map corrects a probability in a context. For each context it has counters at 49 stretched probabilities half a nat
apart, interpolates between them, and updates the nearer one. It starts as the identity and learns to correct systematic
errors. Mahoney, "Data compression explained", section 4.3.3 (SSE; Shkarin's idea).
"""

from decimal import Context, Decimal

import numpy as np

from chainrule.kernels._machine_code import compiled

_HALF = 1 << 21
_RATE = np.array([(65536 * 2) // (2 * n + 3) for n in range(1024)], np.int32)


def counters(probabilities: np.ndarray, count: int) -> np.ndarray:
    """Create counters from 16-bit probabilities, as if each had seen `count` bits."""
    return (((probabilities.astype(np.int64) << 6) - _HALF) << 10 | count).astype(np.int32)


@compiled
def probability(counter: int) -> int:
    """Return the 16-bit probability of a one, in [0, 2^16)."""
    return ((counter >> 10) + _HALF) >> 6


@compiled
def towards(p: int, bit: int, count: int) -> int:
    """Return p - 1/2 in 22 bits after another bit, given the `count` of earlier bits."""
    if bit:  # round away from the current value, so that it can reach certainty
        return p - ((p - (_HALF - 1)) * _RATE[count] >> 16)
    return p + ((-_HALF - p) * _RATE[count] >> 16)


@compiled
def learn(table: np.ndarray, index: int, bit: int, limit: int) -> None:
    """Update a counter of a table by a bit; `limit` is N < 1024."""
    counter = table[index]
    count = counter & 1023
    table[index] = towards(counter >> 10, bit, count) << 10 | min(count + 1, limit)


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
    """Return the 16-bit probability of a stretched one, clipped to [-LIMIT, LIMIT]."""
    return SQUASH[min(LIMIT, max(-LIMIT, x)) + LIMIT]


@compiled
def stretch(p: int) -> int:
    """Return the stretched form of a 16-bit probability, by its upper 12 bits."""
    return STRETCH[p >> 4]


@compiled
def combine(h: int, value: int) -> int:
    """Hash another hash and a number below 2^31 to 32 bits."""
    h = ((h + value + 1) * 0x2C1B3C6D) & 0xFFFFFFFF
    h ^= h >> 15
    h = (h * 0x297A2D39) & 0xFFFFFFFF
    return h ^ (h >> 14)


_APART = 128
POINTS = 2 * (LIMIT + 1) // _APART + 1
_LIMIT = 255


def make_map(contexts: int) -> np.ndarray:
    """Create the identity map in every context, (contexts * POINTS,)."""
    stretched = np.clip(np.arange(POINTS) * _APART - LIMIT - 1, -LIMIT, LIMIT)
    return counters(np.tile(SQUASH[stretched + LIMIT], contexts), 12)


@compiled
def row(table: np.ndarray, h: int) -> int:
    """Return the context of a hash; the number of contexts is a power of two."""
    return h & len(table) // POINTS - 1


@compiled
def refine(table: np.ndarray, context: int, stretched: int) -> int:
    """Return the 16-bit probability that a map assigns to a stretched one."""
    offset = stretched + LIMIT + 1
    at = context * POINTS + offset // _APART
    share = offset % _APART
    return (probability(table[at]) * (_APART - share) + probability(table[at + 1]) * share) // _APART


@compiled
def update(table: np.ndarray, context: int, stretched: int, bit: int) -> None:
    """Learn a bit at the nearer point."""
    learn(table, context * POINTS + (stretched + LIMIT + 1 + _APART // 2) // _APART, bit, _LIMIT)
