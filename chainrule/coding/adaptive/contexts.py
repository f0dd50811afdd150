"""Contexts: the parts of the past that each predict the next byte, and the tables that remember what followed them.

Each context of a byte is a hash of a part of the text before it: its last 0 to 6 bytes (orders), its last words, bytes
further back, and the place in the line. With the bits of the byte that are known already it names one node of a binary
tree of bits; a node keeps a bit history and a counter (see `histories` and `counters`). The nodes of half a byte lie
together in a bucket of 16; the first place of a bucket holds a check of the hash, so that another context is seldom
taken for it, and of two buckets that a hash may use the one with less history gives way.

Mahoney 2005; Mahoney, "Data compression explained", sections 4.3.2 and 4.3.5.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from chainrule.coding.adaptive.counters import counters, learn, probability
from chainrule.coding.adaptive.hashing import combine
from chainrule.coding.adaptive.histories import BEGINNING, NEXT, NUMBER, SEEN
from chainrule.coding.adaptive.logistic import stretch

CONTEXTS = 15
INPUTS = 4  # of the mixer, from each context
BUCKET = 16
_ORDERS = 6
_LONGEST_RUN = 15
_HISTORY_LIMIT = 255
_COUNTER_LIMIT = 1020
_RUN_LIMIT = 255


class Contexts(NamedTuple):
    """Tables of all contexts, one after the other, and the place of each in them.

    Attributes:
        mask: buckets of a context, less one.
        histories: (CONTEXTS * buckets * 16,) numbers of bit histories, at the first place of a bucket its check.
        nodes: (CONTEXTS * buckets * 16,) counters, at the first place of a bucket the run in its context: the last byte
            that followed it, and in higher bits how often in a row.
        learnt: (CONTEXTS * NUMBER,) counters: what follows each history.
        runs: (CONTEXTS * 16,) counters: whether a run of some length goes on.
        hashes: (CONTEXTS,) of the present byte's contexts.
        buckets: (CONTEXTS,) where the present bucket of each begins.
        run_of: (CONTEXTS,) the run in the present byte's context.
        run_at: (CONTEXTS,) where it is kept.
    """

    mask: int
    histories: np.ndarray
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
        np.zeros(places, np.uint16),
        np.zeros(places, np.int32),
        counters(np.tile(BEGINNING, CONTEXTS), 6),
        counters(np.full(CONTEXTS * 16, 60000), 6),
        np.zeros(CONTEXTS, np.int64),
        np.zeros(CONTEXTS, np.int64),
        np.zeros(CONTEXTS, np.int64),
        np.zeros(CONTEXTS, np.int64),
    )


@njit
def _bucket(contexts: Contexts, which: int, h: int) -> int:
    """Where the bucket of a hash begins; one of the two that it may use is emptied where neither holds it."""
    check = max(1, h >> 16)
    first = (which * (contexts.mask + 1) + (h & contexts.mask)) * BUCKET
    second = first ^ BUCKET
    if contexts.histories[first] == check:
        return first
    if contexts.histories[second] == check:
        return second
    if SEEN[contexts.histories[first + 1]] > SEEN[contexts.histories[second + 1]]:
        first = second
    contexts.histories[first : first + BUCKET] = 0
    contexts.nodes[first : first + BUCKET] = 0
    contexts.histories[first] = check
    return first


@njit
def begin_byte(contexts: Contexts) -> None:
    """Find the buckets of the first half of a byte, and the runs in its contexts."""
    for which in range(CONTEXTS):
        at = _bucket(contexts, which, contexts.hashes[which])
        contexts.buckets[which] = at
        contexts.run_at[which] = at
        contexts.run_of[which] = contexts.nodes[at]


@njit
def begin_half(contexts: Contexts, partial: int) -> None:
    """Find the buckets of the second half of a byte, whose first half is known."""
    for which in range(CONTEXTS):
        contexts.buckets[which] = _bucket(contexts, which, combine(contexts.hashes[which], partial))


@njit
def end_byte(contexts: Contexts, byte: int) -> None:
    """Note which byte followed the contexts."""
    for which in range(CONTEXTS):
        run = contexts.run_of[which]
        length = run >> 8
        if length > 0 and (run & 255) == byte:
            length = min(length + 1, _LONGEST_RUN)
        else:
            length = 1
        # The bucket may have been given to the second half of a byte meanwhile; then its run is only a bad guess.
        contexts.nodes[contexts.run_at[which]] = length << 8 | byte


@njit
def predict(contexts: Contexts, inputs: np.ndarray, node: int, partial: int, place: int) -> int:
    """Write the inputs of the mixer; returns how many of the orders have been in their context before.

    Args:
        contexts: the tables.
        inputs: stretched probabilities, INPUTS of each context.
        node: in [1, 16), the bits known of this half of the byte behind a one.
        partial: the bits known of the byte behind a one.
        place: how many they are.
    """
    known = 0
    for which in range(CONTEXTS):
        at = contexts.buckets[which] + node
        history = contexts.histories[at]
        first = which * INPUTS
        if history == 0:
            inputs[first] = 0
            inputs[first + 1] = 0
            inputs[first + 2] = 0
        else:
            known += 1 <= which <= _ORDERS
            p = probability(contexts.learnt[which * NUMBER + history])
            inputs[first] = stretch(p)
            inputs[first + 1] = (p - 32768) >> 5
            inputs[first + 2] = stretch(probability(contexts.nodes[at]))
        run = contexts.run_of[which]
        expected = run & 255 | 256
        if run > 0 and expected >> (8 - place) == partial:
            confidence = stretch(probability(contexts.runs[which * 16 + (run >> 8)]))
            inputs[first + 3] = confidence if expected >> (7 - place) & 1 else -confidence
        else:
            inputs[first + 3] = 0
    return known


@njit
def update(contexts: Contexts, node: int, partial: int, place: int, bit: int) -> None:
    """Learn a bit in every context."""
    for which in range(CONTEXTS):
        at = contexts.buckets[which] + node
        history = contexts.histories[at]
        learn(contexts.learnt, which * NUMBER + history, bit, _HISTORY_LIMIT)
        contexts.histories[at] = NEXT[history, bit]
        learn(contexts.nodes, at, bit, _COUNTER_LIMIT)
        run = contexts.run_of[which]
        expected = run & 255 | 256
        if run > 0 and expected >> (8 - place) == partial:
            learn(contexts.runs, which * 16 + (run >> 8), (expected >> (7 - place) & 1) == bit, _RUN_LIMIT)
