"""Adaptive probability maps: how a probability turned out in a context, taken in place of the probability itself.

A map keeps, for each context, counters at 49 stretched probabilities half a nat apart; a probability between two of
them is interpolated and the nearer learns. A map that begins as the identity corrects what is systematically too sure
or not sure enough. Mahoney, "Data compression explained", section 4.3.3 (SSE; Shkarin's idea).
"""

import numpy as np

from chainrule.coding.adaptive._counters import counters, learn, probability
from chainrule.coding.adaptive._logistic import LIMIT, SQUASH
from chainrule.kernels._machine_code import compiled

_APART = 128
POINTS = 2 * (LIMIT + 1) // _APART + 1
_LIMIT = 255


def make_map(contexts: int) -> np.ndarray:
    """The identity in every context, (contexts * POINTS,)."""
    stretched = np.clip(np.arange(POINTS) * _APART - LIMIT - 1, -LIMIT, LIMIT)
    return counters(np.tile(SQUASH[stretched + LIMIT], contexts), 12)


@compiled
def row(table: np.ndarray, h: int) -> int:
    """The context that a hash falls to; the contexts of the table are a power of two."""
    return h & len(table) // POINTS - 1


@compiled
def refine(table: np.ndarray, context: int, stretched: int) -> int:
    """The probability, 16 bits, that a map gives in place of a stretched one."""
    place = stretched + LIMIT + 1
    at = context * POINTS + place // _APART
    share = place % _APART
    return (probability(table[at]) * (_APART - share) + probability(table[at + 1]) * share) // _APART


@compiled
def update(table: np.ndarray, context: int, stretched: int, bit: int) -> None:
    """Learn a bit at the nearer point."""
    learn(table, context * POINTS + (stretched + LIMIT + 1 + _APART // 2) // _APART, bit, _LIMIT)
