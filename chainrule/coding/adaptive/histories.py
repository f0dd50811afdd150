"""Bit histories: the bits seen so far in a context, as a small finite state.

A history remembers the first bits of a context exactly, in order; later the numbers n0 and n1 of zeros and ones and the
last bit. A bit that contradicts many others shows that the context changed, so it makes most of them forgotten. How
probable a one is after a history is not assumed but learnt, in a table of counters (indirect modelling).

Mahoney 2005, "Adaptive weighing of context models for lossless data compression"; the state machine follows the idea of
PAQ8 and ZPAQ, not their tables.
"""

from typing import NamedTuple

import numpy as np

_EXACT = 4  # bits that are kept in order
_MOST = (48, 40, 16, 12, 10, 8, 8, 7)  # the most that one count may be where the other is 0, 1, 2, ...
_KEPT = (0, 1, 2, 3, 3, 4, 4, 5)  # that is left of a count of 0, 1, 2, ... when the other bit comes


class _History(NamedTuple):
    order: tuple[int, ...] | None
    zeros: int
    ones: int
    last: int


def _after(history: _History, bit: int) -> _History:
    """The history one bit later."""
    if history.order is not None and len(history.order) < _EXACT:
        order = (*history.order, bit)
        return _History(order, order.count(0), order.count(1), bit)
    same, other = (history.ones, history.zeros) if bit else (history.zeros, history.ones)
    other = _KEPT[min(other, len(_KEPT) - 1)]
    same = min(same + 1, _MOST[min(other, len(_MOST) - 1)])
    return _History(None, other, same, 1) if bit else _History(None, same, other, 0)


def _histories() -> tuple[list[_History], list[tuple[int, int]]]:
    """All histories that can be reached from the empty one, and the numbers of the two that follow each."""
    histories = [_History((), 0, 0, 0)]
    numbers = {histories[0]: 0}
    following = []
    for history in histories:  # which grows meanwhile
        pair = _after(history, 0), _after(history, 1)
        for new in pair:
            if new not in numbers:
                numbers[new] = len(histories)
                histories.append(new)
        following.append((numbers[pair[0]], numbers[pair[1]]))
    return histories, following


_ALL, _STEPS = _histories()
NUMBER = len(_ALL)
NEXT = np.array(_STEPS, np.uint16)  # (NUMBER, 2)
SEEN = np.array([history.zeros + history.ones for history in _ALL], np.int32)
# Bits that a probability counts after a history, which set its rate: the longer the history, the steadier its context.
COUNT = np.clip(SEEN * SEEN // 4, SEEN, 1023)
# The probability that a counter begins with, Laplace's rule with 0.4 in place of 1, as 16 bits.
BEGINNING = np.array([(65536 * (10 * h.ones + 4)) // (10 * (h.zeros + h.ones) + 8) for h in _ALL], np.int32)
