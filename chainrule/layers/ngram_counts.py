"""Counts of the n-grams of a text, order by order, each n-gram known by its number."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NgramCounts:
    """The distinct n-grams of one order k >= 2, in order of their keys; the number of an n-gram is its place.

    Args:
        keys: m·V + v of the n-gram that is the one of order k − 1 with number m, its context, and symbol v after it.
        counts: how often each is there.
        shorter: the number of the n-gram of order k − 1 that is left without the first symbol.
    """

    keys: Integers
    counts: Integers
    shorter: Integers


def count_ngrams(text: Integers, vocab_size: int, order: int) -> Iterator[NgramCounts]:
    """The n-grams of order 2, 3, ... up to `order`, or as long as there are any.

    An n-gram crosses no beginning of a line: the symbol V, which stands before one, is in its first place at most.
    A symbol has itself for its number.

    Args:
        text: symbols in [0, V], V where a line begins.
        vocab_size: V.
        order: 2 or more.

    >>> pairs, triples = count_ngrams(np.array([0, 1, 0, 1, 1]), vocab_size=2, order=3)
    >>> pairs.keys.tolist(), pairs.counts.tolist()  # 01, 10 and 11
    ([1, 2, 3], [2, 1, 1])
    >>> triples.keys.tolist(), triples.shorter.tolist()  # 010, 011 and 101 are the pairs 10, 11 and 01 after a symbol
    ([0, 1, 3], [1, 2, 0])
    """
    numbers = text  # at each place, of the n-gram of the order before that ends there; -1 where none does
    inside = text[1:] != vocab_size
    for _ in range(2, order + 1):
        ends = np.flatnonzero(inside & (numbers[:-1] >= 0)) + 1
        if not len(ends):
            return
        keys, counts, firsts, places, own = _distinct(numbers[ends - 1] * vocab_size + text[ends], ends)
        yield NgramCounts(keys, counts, numbers[firsts])
        numbers = np.full(len(text), -1)
        numbers[places] = own


def _distinct(keys: Integers, places: Integers) -> tuple[Integers, Integers, Integers, Integers, Integers]:
    """The distinct keys, how often each is there and a place of it; all places, and which of the keys is at each."""
    bits = int(places[-1]).bit_length()
    if int(keys.max()).bit_length() + bits < 64:  # one sort of numbers is many times as fast as one of their order
        both = np.sort(keys << bits | places)
        keys, places = both >> bits, both & (1 << bits) - 1
    else:
        order = np.argsort(keys, kind="stable")
        keys, places = keys[order], places[order]
    new = np.append(True, keys[1:] != keys[:-1])
    begins = np.flatnonzero(new)
    return keys[begins], np.diff(np.append(begins, len(keys))), places[begins], places, np.cumsum(new) - 1
