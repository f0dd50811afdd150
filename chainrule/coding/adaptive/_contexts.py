"""Contexts: parts of the past that predict the next byte, and tables of the bits that followed them.

A context of a byte is a hash of a part of the preceding text: the last 0 to 6 bytes (orders), the last words, bytes
further back, and the column. Together with the known bits of the byte it identifies a node of a binary tree of bits. A
node stores a bit history and a probability, whose learning rate falls with the length of the history. The nodes of half
a byte share a bucket of 16. The first entry of a bucket holds a check of the hash, so that contexts are rarely
confused; of two possible buckets, the one with less history is replaced.

Mahoney 2005; Mahoney, "Data compression explained", sections 4.3.2 and 4.3.5.
"""

from typing import NamedTuple

import numpy as np

from chainrule.coding.adaptive._probabilities import combine, counters, learn, probability, stretch, towards
from chainrule.kernels._machine_code import compiled

_EXACT = 4  # number of bits stored in order
_MOST = (48, 40, 16, 12, 10, 8, 8, 7)  # maximum of one count if the other is 0, 1, 2, ...
_REDUCED = (0, 1, 2, 3, 3, 4, 4, 5)  # new value of a count of 0, 1, 2, ... after the other bit
CONTEXTS = 14
INPUTS = 4  # inputs of the mixer per context
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
    """Return the history after another bit."""
    if history.order is not None and len(history.order) < _EXACT:
        order = (*history.order, bit)
        return _History(order, order.count(0), order.count(1), bit)
    same, other = (history.ones, history.zeros) if bit else (history.zeros, history.ones)
    other = _REDUCED[min(other, len(_REDUCED) - 1)]
    same = min(same + 1, _MOST[min(other, len(_MOST) - 1)])
    return _History(None, other, same, 1) if bit else _History(None, same, other, 0)


def _histories() -> tuple[list[_History], list[tuple[int, int]]]:
    """Return all histories reachable from the empty one, and the indices of the two successors of each."""
    histories = [_History((), 0, 0, 0)]
    numbers = {histories[0]: 0}
    following = []
    for history in histories:  # the list grows during the loop
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
# Count of bits that sets a probability's rate after each history: longer histories have steadier contexts.
COUNT = np.clip(SEEN * SEEN // 4, SEEN, 1023)
# Initial 16-bit probability of a counter, by Laplace's rule with 0.4 instead of 1.
BEGINNING = np.array([(65536 * (10 * h.ones + 4)) // (10 * (h.zeros + h.ones) + 8) for h in _ALL], np.int32)


class Contexts(NamedTuple):
    """Tables of all contexts, and the current index of each."""

    mask: int  # number of buckets per context, minus one
    # (CONTEXTS * buckets * 16,) p - 1/2 in 22 bits and the index of the history in 10. The first entry of a bucket has
    # its check in 16 bits and the run in its context in 12: the repetitions and the byte
    nodes: np.ndarray
    learnt: np.ndarray  # (CONTEXTS * NUMBER,) counters of the bits that follow each history
    runs: np.ndarray  # (CONTEXTS * 16,) counters of the continuation of runs by length
    hashes: np.ndarray  # (CONTEXTS,) hashes of the current byte's contexts
    buckets: np.ndarray  # (CONTEXTS,) start of the current bucket of each context
    run_of: np.ndarray  # (CONTEXTS,) run in the current byte's context
    run_at: np.ndarray  # (CONTEXTS,) index of this run


def make_contexts(buckets: int) -> Contexts:
    """Create empty tables with `buckets`, a power of two, per context."""
    size = CONTEXTS * buckets * BUCKET
    return Contexts(
        buckets - 1,
        np.zeros(size, np.int32),
        counters(np.tile(BEGINNING, CONTEXTS), 6),
        counters(np.full(CONTEXTS * 16, 60000), 6),
        np.zeros(CONTEXTS, np.int64),
        np.zeros(CONTEXTS, np.int64),
        np.zeros(CONTEXTS, np.int64),
        np.zeros(CONTEXTS, np.int64),
    )


@compiled
def _bucket(nodes: np.ndarray, first: int, h: int) -> int:
    """Return the start of a hash's bucket; if neither candidate holds the hash, clear one of them."""
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
    """Find the buckets of half a byte, by the hashes, or by the hashes and the first half."""
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
    """Find the buckets of the second half of a byte."""
    _find(contexts, partial)


@compiled
def end_byte(contexts: Contexts, byte: int) -> None:
    """Record the byte that followed the contexts."""
    nodes, run_at, run_of = contexts.nodes, contexts.run_at, contexts.run_of
    for which in range(CONTEXTS):
        run = run_of[which]
        length = 1
        if run > 0 and (run & 255) == byte:
            length = min((run >> 8) + 1, _LONGEST_RUN)
        # The second half of a byte may have taken over the bucket; it does not use the run.
        nodes[run_at[which]] = (nodes[run_at[which]] & ~4095) | length << 8 | byte


@compiled
def predict(contexts: Contexts, inputs: np.ndarray, node: int, partial: int, index: int) -> int:
    """Write the mixer's INPUTS of each context; return the number of orders with a history."""
    nodes, learnt, runs = contexts.nodes, contexts.learnt, contexts.runs
    buckets, run_of = contexts.buckets, contexts.run_of
    matches = 0
    for which in range(CONTEXTS):
        packed = nodes[buckets[which] + node]
        history = packed & 1023
        first = which * INPUTS
        inputs[first] = 0
        inputs[first + 1] = 0
        inputs[first + 2] = 0
        inputs[first + 3] = 0
        if history > 0:
            matches += 1 <= which <= _ORDERS
            p = probability(learnt[which * NUMBER + history])
            inputs[first] = stretch(p)
            inputs[first + 1] = (p - 32768) >> 5
            inputs[first + 2] = stretch(probability(packed))
        run = run_of[which]
        expected = run & 255 | 256
        if run > 0 and expected >> (8 - index) == partial:
            confidence = stretch(probability(runs[which * 16 + (run >> 8)]))
            inputs[first + 3] = confidence if expected >> (7 - index) & 1 else -confidence
    return matches


@compiled
def update(contexts: Contexts, node: int, partial: int, index: int, bit: int) -> None:
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
        if run > 0 and expected >> (8 - index) == partial:
            came = int(expected >> (7 - index) & 1 == bit)
            learn(runs, which * 16 + (run >> 8), came, _RUN_LIMIT)
