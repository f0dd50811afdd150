"""Match model: predicts the byte that followed the longest earlier occurrence of the last bytes.

It predicts this byte's bits with the success rate of matches of the same length so far, until a bit differs. Mahoney,
"Data compression explained", section 4.3.6.
"""

from typing import NamedTuple

import numpy as np

from chainrule.coding.adaptive._probabilities import combine, counters, learn, probability, stretch
from chainrule.kernels._machine_code import compiled

INPUTS = 2
LENGTHS = 32  # number of length classes
_SHORTEST = 5
_LONGEST = 65535
_COMPARED = 32  # maximum number of bytes to compare for a new match
_LIMIT = 1020


class Match(NamedTuple):
    """The current match."""

    places: np.ndarray  # (2^k,) position after the last occurrence of the bytes of each hash
    state: np.ndarray  # (2,) position of the expected byte, and length of the match, 0 for none
    learnt: np.ndarray  # (LENGTHS,) counters of correct expectations


def make_match(places: int) -> Match:
    """Start without a match, with a table of `places`, a power of two, entries."""
    return Match(np.zeros(places, np.int32), np.zeros(2, np.int64), counters(np.full(LENGTHS, 60000), 6))


@compiled
def find(match: Match, text: np.ndarray, position: int) -> None:
    """Extend the match by the byte before `position`, or search for another."""
    state = match.state
    if state[1] > 0 and text[state[0]] == text[position - 1]:
        state[0] += 1
        state[1] = min(state[1] + 1, _LONGEST)
    else:
        state[1] = 0
    if position < _SHORTEST:
        return
    h = 0
    for distance in range(1, _SHORTEST + 1):
        h = combine(h, text[position - distance])
    h &= len(match.places) - 1
    if state[1] == 0 and match.places[h] > 0:
        candidate = match.places[h]
        length = 0
        while length < min(candidate, _COMPARED) and text[candidate - 1 - length] == text[position - 1 - length]:
            length += 1
        if length >= _SHORTEST:
            state[0] = candidate
            state[1] = length
    match.places[h] = position


@compiled
def kind_of_length(match: Match) -> int:
    """Return the class of the length, in [0, LENGTHS); 0 is no match."""
    length = match.state[1]
    if length < 16:
        return length
    if length < 32:
        return 16 + (length - 16 >> 2)
    kind = 20
    while length >= 64 and kind < LENGTHS - 1:
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
def predict(match: Match, inputs: np.ndarray, first: int, expected: int) -> None:
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
def update(match: Match, expected: int, bit: int) -> None:
    """Learn from the outcome of the expected bit."""
    if expected >= 0:
        learn(match.learnt, kind_of_length(match), int(expected == bit), _LIMIT)
