r"""Contexts and a match model, which predict the next bit, and the mixer of their predictions.

**Contexts** are parts of the past that predict the next byte. A context of a byte is a hash of a part of the preceding
text: the last 0 to 6 bytes (orders), the last words, bytes further back, and the column. Together with the known bits
of the byte it identifies a node of a binary tree of bits. A node stores a bit history and a probability, whose learning
rate falls with the length of the history. The nodes of half a byte share a bucket of 16. The first entry of a bucket
holds a check of the hash, so that contexts are rarely confused; of two possible buckets, the one with less history is
replaced.

The **match** model predicts the byte that followed the longest earlier occurrence of the last bytes. It predicts this
byte's bits with the success rate of matches of the same length so far, until a bit differs.

The **mixer** is a gated network of two layers of logistic neurons, each trained on its code length. The inputs x are
stretched probabilities. A neuron k of the first layer has a table of weight vectors, and a feature of the past (the
gate) selects one of them, w:

.. math:: p_k = \mathrm{squash}(w \cdot x), \qquad w \leftarrow w + \eta\, (y - p_k)\, x,

This is gradient descent on the cost of the bit y, since -∂/∂w of -ln p_k(y) is (y - p_k) x. The neuron of the second
layer mixes w_k · x in the same way. η falls as :math:`\eta_\infty + \eta_0 / (1 + t/\tau)` with the number of bits t.

Mahoney 2005; Mahoney, "Data compression explained", sections 4.3.2, 4.3.5 and 4.3.6; Veness et al. 2021, "Gated linear
networks"; Knoll, cmix.
"""

from typing import NamedTuple

import numpy as np

from chainrule.coding.adaptive._probabilities import (
    LIMIT,
    combine,
    counters,
    learn,
    probability,
    squash,
    stretch,
    towards,
)
from chainrule.kernels._machine_code import compiled

_EXACT = 4  # number of bits stored in order
_MOST = (48, 40, 16, 12, 10, 8, 8, 7)  # maximum of one count if the other is 0, 1, 2, ...
_REDUCED = (0, 1, 2, 3, 3, 4, 4, 5)  # new value of a count of 0, 1, 2, ... after the other bit
CONTEXTS = 14
CONTEXT_INPUTS = 4  # inputs of the mixer per context
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
def _find_buckets(contexts: Contexts, partial: int) -> None:
    """Find the buckets of half a byte, by the hashes, or by the hashes and the first half."""
    nodes, hashes, buckets = contexts.nodes, contexts.hashes, contexts.buckets
    for which in range(CONTEXTS):
        h = hashes[which] if partial == 1 else combine(hashes[which], partial)
        buckets[which] = _bucket(nodes, (which * (contexts.mask + 1) + (h & contexts.mask)) * BUCKET, h)


@compiled
def begin_contexts(contexts: Contexts) -> None:
    """Find the buckets of the first half of a byte, and the runs in its contexts."""
    _find_buckets(contexts, 1)
    nodes, buckets, run_at, run_of = contexts.nodes, contexts.buckets, contexts.run_at, contexts.run_of
    for which in range(CONTEXTS):
        run_at[which] = buckets[which]
        run_of[which] = nodes[buckets[which]] & 4095


@compiled
def begin_half(contexts: Contexts, partial: int) -> None:
    """Find the buckets of the second half of a byte."""
    _find_buckets(contexts, partial)


@compiled
def end_contexts(contexts: Contexts, byte: int) -> None:
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
def predict_from_contexts(contexts: Contexts, inputs: np.ndarray, node: int, partial: int, index: int) -> int:
    """Write the mixer's CONTEXT_INPUTS of each context; return the number of orders with a history."""
    nodes, learnt, runs = contexts.nodes, contexts.learnt, contexts.runs
    buckets, run_of = contexts.buckets, contexts.run_of
    matches = 0
    for which in range(CONTEXTS):
        packed = nodes[buckets[which] + node]
        history = packed & 1023
        first = which * CONTEXT_INPUTS
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
def update_contexts(contexts: Contexts, node: int, partial: int, index: int, bit: int) -> None:
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


MATCH_INPUTS = 2
MATCH_LENGTHS = 32  # number of length classes
_SHORTEST_MATCH = 5
_LONGEST_MATCH = 65535
_COMPARED = 32  # maximum number of bytes to compare for a new match
_MATCH_LIMIT = 1020


class Match(NamedTuple):
    """The current match."""

    places: np.ndarray  # (2^k,) position after the last occurrence of the bytes of each hash
    state: np.ndarray  # (2,) position of the expected byte, and length of the match, 0 for none
    learnt: np.ndarray  # (MATCH_LENGTHS,) counters of correct expectations


def make_match(places: int) -> Match:
    """Start without a match, with a table of `places`, a power of two, entries."""
    return Match(np.zeros(places, np.int32), np.zeros(2, np.int64), counters(np.full(MATCH_LENGTHS, 60000), 6))


@compiled
def find_match(match: Match, text: np.ndarray, position: int) -> None:
    """Extend the match by the byte before `position`, or search for another."""
    state = match.state
    if state[1] > 0 and text[state[0]] == text[position - 1]:
        state[0] += 1
        state[1] = min(state[1] + 1, _LONGEST_MATCH)
    else:
        state[1] = 0
    if position < _SHORTEST_MATCH:
        return
    h = 0
    for distance in range(1, _SHORTEST_MATCH + 1):
        h = combine(h, text[position - distance])
    h &= len(match.places) - 1
    if state[1] == 0 and match.places[h] > 0:
        candidate = match.places[h]
        length = 0
        while length < min(candidate, _COMPARED) and text[candidate - 1 - length] == text[position - 1 - length]:
            length += 1
        if length >= _SHORTEST_MATCH:
            state[0] = candidate
            state[1] = length
    match.places[h] = position


@compiled
def kind_of_length(match: Match) -> int:
    """Return the class of the length, in [0, MATCH_LENGTHS); 0 is no match."""
    length = match.state[1]
    if length < 16:
        return length
    if length < 32:
        return 16 + (length - 16 >> 2)
    kind = 20
    while length >= 64 and kind < MATCH_LENGTHS - 1:
        length >>= 1
        kind += 1
    return kind


@compiled
def expected_bit(match: Match, text: np.ndarray, partial: int, index: int) -> int:
    """Return the next expected bit; -1 without a match, or after a wrong bit in this byte."""
    if match.state[1] == 0:
        return -1
    expected = text[match.state[0]] | 256
    if expected >> (8 - index) != partial:
        return -1
    return expected >> (7 - index) & 1


@compiled
def predict_from_match(match: Match, inputs: np.ndarray, first: int, expected: int) -> None:
    """Write two inputs of the mixer: the stretched and the plain probability."""
    if expected < 0:
        inputs[first] = 0
        inputs[first + 1] = 0
        return
    p = probability(match.learnt[kind_of_length(match)])
    confidence = stretch(p)
    surplus = (p - 32768) >> 5
    inputs[first] = confidence if expected else -confidence
    inputs[first + 1] = surplus if expected else -surplus


@compiled
def update_match(match: Match, expected: int, bit: int) -> None:
    """Learn from the outcome of the expected bit."""
    if expected >= 0:
        learn(match.learnt, kind_of_length(match), int(expected == bit), _MATCH_LIMIT)


ONE = 1 << 16  # the weight 1
_RATE_BITS = 22  # error (16 bits) * input (8 bits) * rate (14 bits) -> weight (16 bits)


class Mixer(NamedTuple):
    """Weights, and the current inputs and outputs."""

    inputs: np.ndarray  # (N,) stretched probabilities
    weights: np.ndarray  # (rows, N) weights of the first layer, in multiples of 2^-16: all tables of all neurons
    rows: np.ndarray  # (K,) current row of each neuron
    outputs: np.ndarray  # (K,) stretched probabilities of the first layer
    last_weights: np.ndarray  # (rows, K) weights of the second layer
    last_row: np.ndarray  # (1,) its current row
    last_output: np.ndarray  # (1,) its stretched probability
    time: np.ndarray  # (1,) number of bits learnt
    rates: np.ndarray  # (5,) in multiples of 2^-14: η∞ and η0 of the first layer and of the second; and τ in bits


def make_mixer(beginning: np.ndarray, rows: int, neurons: int, last_rows: int, rates: tuple[int, ...]) -> Mixer:
    """Create a mixer of N inputs with initial weights `beginning` (N,), and an average as the second layer."""
    return Mixer(
        np.zeros(len(beginning), np.int32),
        np.tile(beginning, (rows, 1)).astype(np.int32),
        np.zeros(neurons, np.int64),
        np.zeros(neurons, np.int32),
        np.full((last_rows, neurons), ONE // neurons, np.int32),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.array(rates, np.int64),
    )


@compiled
def _dot(weights: np.ndarray, inputs: np.ndarray) -> int:
    total = 0
    for i in range(len(inputs)):
        total += weights[i] * inputs[i]
    return min(LIMIT, max(-LIMIT, total >> 16))


@compiled
def _descend(weights: np.ndarray, inputs: np.ndarray, output: int, bit: int, rate: int) -> None:
    step = np.int32(((bit << 16) - squash(output)) * rate)  # 32-bit factors, so that products are vectorised
    for i in range(len(inputs)):
        weights[i] += (inputs[i] * step + (1 << _RATE_BITS - 1)) >> _RATE_BITS


@compiled
def mix(mixer: Mixer) -> int:
    """Return the stretched probability of the inputs under the selected rows."""
    inputs, weights, rows, outputs = mixer.inputs, mixer.weights, mixer.rows, mixer.outputs
    for k in range(len(rows)):
        outputs[k] = _dot(weights[rows[k]], inputs)
    stretched = _dot(mixer.last_weights[mixer.last_row[0]], outputs)
    mixer.last_output[0] = stretched
    return stretched


@compiled
def update_mixer(mixer: Mixer, bit: int) -> None:
    """Take a step of gradient descent in the selected rows."""
    inputs, weights, rows, outputs, rates = mixer.inputs, mixer.weights, mixer.rows, mixer.outputs, mixer.rates
    falling = (rates[4] << 16) // (rates[4] + mixer.time[0])
    rate = rates[0] + (rates[1] * falling >> 16)
    for k in range(len(rows)):
        _descend(weights[rows[k]], inputs, outputs[k], bit, rate)
    rate = rates[2] + (rates[3] * falling >> 16)
    _descend(mixer.last_weights[mixer.last_row[0]], outputs, mixer.last_output[0], bit, rate)
    mixer.time[0] += 1
