"""Which parts of the past are contexts of the next byte: words and lines are followed, and hashed."""

from typing import NamedTuple

import numpy as np

from chainrule.coding.adaptive.hashing import combine
from chainrule.coding.adaptive.machine_code import compiled


class Past(NamedTuple):
    """Words and lines before the present byte.

    Attributes:
        words: (3,) hashes of the present word's letters and of the two words before; no word is 0.
        letters: (1,) number of letters of the present word.
        lines: (2,) where the present line and the one before begin.
    """

    words: np.ndarray
    letters: np.ndarray
    lines: np.ndarray


def make_past() -> Past:
    """The past of the first byte."""
    return Past(np.zeros(3, np.int64), np.zeros(1, np.int64), np.zeros(2, np.int64))


@compiled
def _kind(byte: int) -> int:
    """Kinds of bytes: capital, small letter, digit, space, line end, other mark, control, beyond ASCII."""
    if byte >= 128:
        return 7
    if 97 <= byte <= 122:
        return 1
    if 65 <= byte <= 90:
        return 0
    if 48 <= byte <= 57:
        return 2
    if byte == 32:
        return 3
    if byte == 10:
        return 4
    return 5 if byte > 32 else 6


@compiled
def note_byte(past: Past, byte: int, position: int) -> None:
    """Take the byte at a position into words and lines; letters of both cases are the same."""
    kind = _kind(byte)
    if kind <= 1 or kind == 7:
        past.words[0] = combine(past.words[0], byte | 32 if kind == 0 else byte)
        past.letters[0] += 1
    elif past.letters[0] > 0:
        past.words[2] = past.words[1]
        past.words[1] = past.words[0]
        past.words[0] = 0
        past.letters[0] = 0
    if kind == 4:
        past.lines[1] = past.lines[0]
        past.lines[0] = position + 1


@compiled
def _before(text: np.ndarray, position: int, distance: int) -> int:
    return text[position - distance] if position >= distance else 0


@compiled
def hash_past(past: Past, text: np.ndarray, position: int, hashes: np.ndarray) -> None:
    """Write the hashes of all contexts of the byte at a position."""
    orders = 0
    for order in range(7):
        if order > 0:
            orders = combine(orders, _before(text, position, order))
        hashes[order] = combine(orders, order)
    last = _before(text, position, 1)
    between = last if past.letters[0] == 0 else 0
    word = combine(past.words[0], between)
    hashes[7] = combine(word, 7)
    hashes[8] = combine(combine(word, past.words[1] & 0x7FFFFFFF), 8)
    hashes[9] = combine(combine(word, past.words[2] & 0x7FFFFFFF), 9)
    hashes[10] = combine(_before(text, position, 2) << 8 | _before(text, position, 3), 10)
    kinds = 0
    for distance in range(1, 9):
        kinds = kinds << 3 | _kind(_before(text, position, distance))
    hashes[11] = combine(combine(kinds, last), 11)
    column = position - past.lines[0]
    above = past.lines[1] + column
    over = text[above] if above < past.lines[0] else 10
    hashes[12] = combine(over << 8 | last, 12)
    hashes[13] = combine(min(column, 255) << 8 | over, 13)
