"""The match model: the longest earlier place where the last bytes occurred, and the byte that followed it there.

It predicts that byte's bits one by one, as surely as matches of that length came true so far, and is silent from the
first bit that differs. Mahoney, "Data compression explained", section 4.3.6.
"""

from typing import NamedTuple

import numpy as np

from chainrule.coding.adaptive._counters import counters, learn, probability
from chainrule.coding.adaptive._hashing import combine
from chainrule.coding.adaptive._logistic import stretch
from chainrule.kernels._machine_code import compiled

INPUTS = 2
LENGTHS = 32  # kinds of lengths
_SHORTEST = 5
_LONGEST = 65535
_LOOKED_AT = 32  # bytes that are compared when a match is found
_LIMIT = 1020


class Match(NamedTuple):
    """The present match.

    Attributes:
        places: (2^k,) where the bytes of each hash occurred last, the position after them.
        state: (2,) the position of the expected byte, and the length of the match, 0 for none.
        learnt: (LENGTHS,) counters: whether the expected bit comes.
    """

    places: np.ndarray
    state: np.ndarray
    learnt: np.ndarray


def make_match(places: int) -> Match:
    """No match, and a table of a power of two of places."""
    return Match(np.zeros(places, np.int32), np.zeros(2, np.int64), counters(np.full(LENGTHS, 60000), 6))


@compiled
def find(match: Match, text: np.ndarray, position: int) -> None:
    """Go on with the match after the byte before `position`, or look for another."""
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
        while length < min(candidate, _LOOKED_AT) and text[candidate - 1 - length] == text[position - 1 - length]:
            length += 1
        if length >= _SHORTEST:
            state[0] = candidate
            state[1] = length
    match.places[h] = position


@compiled
def kind_of_length(match: Match) -> int:
    """The length in steps that grow with it, in [0, LENGTHS); 0 is no match."""
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
def expected_bit(match: Match, text: np.ndarray, partial: int, place: int) -> int:
    """The next bit that the match expects; -1 without a match, or where it was wrong in this byte."""
    if match.state[1] == 0:
        return -1
    expected = text[match.state[0]] | 256
    if expected >> (8 - place) != partial:
        return -1
    return expected >> (7 - place) & 1


@compiled
def predict(match: Match, inputs: np.ndarray, first: int, expected: int) -> None:
    """Write two inputs of the mixer: the stretched probability, and the plain one."""
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
    """Learn whether the expected bit came."""
    if expected >= 0:
        learn(match.learnt, kind_of_length(match), int(expected == bit), _LIMIT)
