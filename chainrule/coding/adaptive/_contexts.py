"""Contexts: the parts of the past that each predict the next byte, and the tables that remember what followed them.

Each context of a byte is a hash of a part of the text before it: its last 0 to 6 bytes (orders), its last words, bytes
further back, and the place in the line. With the bits of the byte that are known already it names one node of a binary
tree of bits; a node keeps a bit history and a probability, whose rate falls with the bits that the history has seen.
The nodes of half a byte lie together in a bucket of 16; the first place of a bucket holds a check of the hash, so that
another context is seldom taken for it, and of two buckets that a hash may use the one with less history gives way.

Mahoney 2005; Mahoney, "Data compression explained", sections 4.3.2 and 4.3.5.
"""

from typing import NamedTuple

import numpy as np

from chainrule.coding.adaptive._counters import counters, learn, probability, towards
from chainrule.coding.adaptive._hashing import combine
from chainrule.coding.adaptive._logistic import stretch
from chainrule.kernels._machine_code import compiled

_EXACT = 4  # bits that are kept in order
_MOST = (48, 40, 16, 12, 10, 8, 8, 7)  # the most that one count may be where the other is 0, 1, 2, ...
_KEPT = (0, 1, 2, 3, 3, 4, 4, 5)  # that is left of a count of 0, 1, 2, ... when the other bit comes
CONTEXTS = 14
INPUTS = 4  # of the mixer, from each context
BUCKET = 16
_ORDERS = 6
_LONGEST_RUN = 15
_HISTORY_LIMIT = 255
_RUN_LIMIT = 255


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


class Contexts(NamedTuple):
    """Tables of all contexts, one after the other, and the place of each in them.

    Attributes:
        mask: buckets of a context, less one.
        nodes: (CONTEXTS * buckets * 16,) p - 1/2 in 22 bits and the number of the history in 10. At the first place of
            a bucket its check in 16 bits and the run in its context in 12: how often in a row, and which byte.
        learnt: (CONTEXTS * NUMBER,) counters of the bits that follow each history.
        runs: (CONTEXTS * 16,) counters: whether a run of some length goes on.
        hashes: (CONTEXTS,) of the present byte's contexts.
        buckets: (CONTEXTS,) where the present bucket of each begins.
        run_of: (CONTEXTS,) the run in the present byte's context.
        run_at: (CONTEXTS,) where it is kept.
    """

    mask: int
    nodes: np.ndarray
    learnt: np.ndarray
    runs: np.ndarray
    hashes: np.ndarray
    buckets: np.ndarray
    run_of: np.ndarray
    run_at: np.ndarray


def make_contexts(buckets: int) -> Contexts:
    """Empty tables of a power of two of buckets for each context."""
    places = CONTEXTS * buckets * BUCKET
    return Contexts(
        buckets - 1,
        np.zeros(places, np.int32),
        counters(np.tile(BEGINNING, CONTEXTS), 6),
        counters(np.full(CONTEXTS * 16, 60000), 6),
        np.zeros(CONTEXTS, np.int64),
        np.zeros(CONTEXTS, np.int64),
        np.zeros(CONTEXTS, np.int64),
        np.zeros(CONTEXTS, np.int64),
    )


@compiled
def _bucket(nodes: np.ndarray, first: int, h: int) -> int:
    """Where the bucket of a hash begins; one of the two that it may use is emptied where neither holds it."""
    check = max(1, h >> 16)
    second = first ^ BUCKET
    if nodes[first] >> 12 == check:
        return first
    if nodes[second] >> 12 == check:
        return second
    if SEEN[nodes[first + 1] & 1023] > SEEN[nodes[second + 1] & 1023]:
        first = second
    nodes[first : first + BUCKET] = 0
    nodes[first] = check << 12
    return first


@compiled
def _find(contexts: Contexts, partial: int) -> None:
    """Find the buckets of half a byte: of the hashes alone, or of the hashes and the half that is known."""
    nodes, hashes, buckets = contexts.nodes, contexts.hashes, contexts.buckets
    for which in range(CONTEXTS):
        h = hashes[which] if partial == 1 else combine(hashes[which], partial)
        buckets[which] = _bucket(nodes, (which * (contexts.mask + 1) + (h & contexts.mask)) * BUCKET, h)


@compiled
def begin_byte(contexts: Contexts) -> None:
    """Find the buckets of the first half of a byte, and the runs in its contexts."""
    _find(contexts, 1)
    nodes, buckets, run_at, run_of = contexts.nodes, contexts.buckets, contexts.run_at, contexts.run_of
    for which in range(CONTEXTS):
        run_at[which] = buckets[which]
        run_of[which] = nodes[buckets[which]] & 4095


@compiled
def begin_half(contexts: Contexts, partial: int) -> None:
    """Find the buckets of the second half of a byte, whose first half is known."""
    _find(contexts, partial)


@compiled
def end_byte(contexts: Contexts, byte: int) -> None:
    """Note which byte followed the contexts."""
    nodes, run_at, run_of = contexts.nodes, contexts.run_at, contexts.run_of
    for which in range(CONTEXTS):
        run = run_of[which]
        length = 1
        if run > 0 and (run & 255) == byte:
            length = min((run >> 8) + 1, _LONGEST_RUN)
        # The bucket may have been given to the second half of a byte meanwhile, which has no use for a run.
        nodes[run_at[which]] = (nodes[run_at[which]] & ~4095) | length << 8 | byte


@compiled
def predict(contexts: Contexts, inputs: np.ndarray, node: int, partial: int, place: int) -> int:
    """Write the inputs of the mixer; returns how many of the orders have been in their context before.

    Args:
        contexts: the tables.
        inputs: stretched probabilities, INPUTS of each context.
        node: in [1, 16), the bits known of this half of the byte behind a one.
        partial: the bits known of the byte behind a one.
        place: how many they are.
    """
    nodes, learnt, runs = contexts.nodes, contexts.learnt, contexts.runs
    buckets, run_of = contexts.buckets, contexts.run_of
    known = 0
    for which in range(CONTEXTS):
        packed = nodes[buckets[which] + node]
        history = packed & 1023
        first = which * INPUTS
        inputs[first] = 0
        inputs[first + 1] = 0
        inputs[first + 2] = 0
        inputs[first + 3] = 0
        if history > 0:
            known += 1 <= which <= _ORDERS
            p = probability(learnt[which * NUMBER + history])
            inputs[first] = stretch(p)
            inputs[first + 1] = (p - 32768) >> 5
            inputs[first + 2] = stretch(probability(packed))
        run = run_of[which]
        expected = run & 255 | 256
        if run > 0 and expected >> (8 - place) == partial:
            confidence = stretch(probability(runs[which * 16 + (run >> 8)]))
            inputs[first + 3] = confidence if expected >> (7 - place) & 1 else -confidence
    return known


@compiled
def update(contexts: Contexts, node: int, partial: int, place: int, bit: int) -> None:
    """Learn a bit in every context."""
    nodes, learnt, runs = contexts.nodes, contexts.learnt, contexts.runs
    buckets, run_of = contexts.buckets, contexts.run_of
    for which in range(CONTEXTS):
        at = buckets[which] + node
        history = nodes[at] & 1023
        learn(learnt, which * NUMBER + history, bit, _HISTORY_LIMIT)
        nodes[at] = towards(nodes[at] >> 10, bit, COUNT[history]) << 10 | NEXT[history, bit]
        run = run_of[which]
        expected = run & 255 | 256
        if run > 0 and expected >> (8 - place) == partial:
            came = int(expected >> (7 - place) & 1 == bit)
            learn(runs, which * 16 + (run >> 8), came, _RUN_LIMIT)
