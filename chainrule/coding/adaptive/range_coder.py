r"""A binary arithmetic coder of 32 bits without carries.

The code is a number in [low, high]. A bit of probability p divides the interval in that proportion and keeps its part;
leading bytes that both ends share are written. A text of probability P ends in an interval of about that width, so that
:math:`-\log_2 P` bits name it. Mahoney, "Data compression explained", section 3.2.

Probabilities are integers in [1, 2^16); the interval holds at least 2 numbers, so that both parts are never empty.
"""

from typing import NamedTuple

import numpy as np

from chainrule.coding.adaptive.machine_code import compiled

_ALL = 0xFFFFFFFF


class Coder(NamedTuple):
    """The present interval, and the code.

    Attributes:
        code: bytes written, or to be read.
        state: (4,) low, high, bytes written or read, and the number that is read.
    """

    code: np.ndarray
    state: np.ndarray


def make_coder(code: np.ndarray) -> Coder:
    """The whole interval; `code` is read from, or has room for what is written."""
    return Coder(code, np.array([0, _ALL, 0, 0], np.int64))


@compiled
def begin_reading(coder: Coder) -> None:
    """Read the first 32 bits; bytes past the end are zeros."""
    for _ in range(4):
        _read(coder)


@compiled
def _read(coder: Coder) -> None:
    code, state = coder
    byte = code[state[2]] if state[2] < len(code) else 0
    state[3] = (state[3] << 8 & _ALL) | byte
    state[2] += 1


@compiled
def _middle(state: np.ndarray, p: int) -> int:
    return state[0] + ((state[1] - state[0]) * p >> 16)


@compiled
def _narrow(coder: Coder, middle: int, bit: int, reading: bool) -> None:
    code, state = coder
    if bit:
        state[1] = middle
    else:
        state[0] = middle + 1
    while (state[0] ^ state[1]) >> 24 == 0:
        if reading:
            _read(coder)
        else:
            code[state[2]] = state[1] >> 24
            state[2] += 1
        state[0] = state[0] << 8 & _ALL
        state[1] = (state[1] << 8 & _ALL) | 255


@compiled
def write_bit(coder: Coder, bit: int, p: int) -> None:
    """Write a bit; p is the probability of a one, 16 bits."""
    _narrow(coder, _middle(coder.state, p), bit, False)


@compiled
def read_bit(coder: Coder, p: int) -> int:
    """Read a bit that was written with the same p."""
    middle = _middle(coder.state, p)
    bit = int(coder.state[3] <= middle)
    _narrow(coder, middle, bit, True)
    return bit


@compiled
def end_writing(coder: Coder) -> int:
    """Write the fewest bytes that, followed by zeros, name a number in the interval; returns the length of the code."""
    code, state = coder
    for length in range(5):
        rest = (1 << 8 * (4 - length)) - 1
        number = state[0] + rest & ~rest
        if number <= state[1]:
            for k in range(length):
                code[state[2] + k] = number >> 24 - 8 * k & 255
            return state[2] + length
    return state[2] + 4
