"""A text to a code and back: one loop for both, in which each bit is predicted, coded and learnt."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from chainrule.coding.adaptive import _predictor as model
from chainrule.kernels._machine_code import compiled, kept

_ALL = 0xFFFFFFFF
_SLACK = 64  # bytes: more than one byte of a text can cost
_AHEAD = 4  # bytes: the reader knows so many past those that it needs
_PIECE = 1 << 14  # bytes between two reports of progress, when Ctrl-C is heard too

Progress = Callable[[int], None]


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


@kept
@compiled
def _run(
    predictor: model.Predictor, coder: Coder, text: np.ndarray, piece: int, reading: bool, trace: np.ndarray
) -> int:
    """Code one piece of a text after another, or read it; returns the length of the code, -1 where it has no room.

    Args:
        predictor: as the pieces before left it.
        coder: likewise.
        text: all of it, written here in reading.
        piece: where this piece begins.
        reading: whether the code is read.
        trace: (8 len(text),) filled with the probabilities, unless it is empty.
    """
    if reading and piece == 0:
        begin_reading(coder)
    end = min(len(text), piece + _PIECE)
    for position in range(piece, end):
        if not reading and coder.state[2] + _SLACK > len(coder.code):
            return -1
        model.begin_byte(predictor, text, position)
        byte = text[position]
        for place in range(8):
            p = model.predict(predictor, text, position)
            if len(trace) > 0:
                trace[8 * position + place] = p
            if reading:
                bit = read_bit(coder, p)
            else:
                bit = byte >> (7 - place) & 1
                write_bit(coder, bit, p)
            model.learn(predictor, bit)
        text[position] = predictor.state[0] & 255
        model.end_byte(predictor, text[position], position)
    return end_writing(coder) if end == len(text) and not reading else 0


def _code(text: np.ndarray, code: np.ndarray, progress: Progress | None, *, reading: bool, trace: np.ndarray) -> int:
    predictor, coder, length = model.make_predictor(len(text)), make_coder(code), 0
    for piece in range(0, len(text), _PIECE):
        length = _run(predictor, coder, text, piece, reading, trace)
        if length < 0:
            break
        if reading and coder.state[2] > len(code) + _AHEAD:
            raise ValueError(f"data: expected the code of {len(text)} bytes, got one of fewer: it was cut or changed")
        if progress is not None:
            progress(min(len(text), piece + _PIECE))
    return length


def write(text: np.ndarray, progress: Progress | None = None) -> np.ndarray | None:
    """The code of a text; None where it would be longer than the text."""
    code = np.empty(len(text) + _SLACK, np.uint8)
    length = _code(text.copy(), code, progress, reading=False, trace=np.empty(0, np.uint16))
    return None if length < 0 or length > len(text) else code[:length]


def read(code: np.ndarray, length: int, progress: Progress | None = None) -> np.ndarray:
    """The text of so many bytes that has this code."""
    text = np.zeros(length, np.uint8)
    _code(text, code.copy(), progress, reading=True, trace=np.empty(0, np.uint16))
    return text


def probabilities(text: np.ndarray) -> np.ndarray:
    """The probability of a one that each bit of a text was coded with, (8 T,), in multiples of 2^-16."""
    trace = np.empty(8 * len(text), np.uint16)
    _code(text.copy(), np.empty(32 * len(text) + _SLACK, np.uint8), None, reading=False, trace=trace)
    return trace
