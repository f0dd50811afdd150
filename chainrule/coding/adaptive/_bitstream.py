"""Main loop of the adaptive compressor: predict, code and learn each bit."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from chainrule.coding.adaptive import _predictor as model
from chainrule.kernels._machine_code import compiled, kept

_ALL = 0xFFFFFFFF
_SLACK = 64  # bytes: more than any byte of a text can cost
_AHEAD = 4  # bytes that the decoder reads ahead
_PIECE = 1 << 14  # bytes between progress reports and checks for Ctrl-C

Progress = Callable[[int], None]


class Coder(NamedTuple):
    """Arithmetic coder: the current interval, and the code."""

    code: np.ndarray  # bytes to write or read
    state: np.ndarray  # (4,) low, high, number of bytes written or read, and the number being decoded


def make_coder(code: np.ndarray) -> Coder:
    """Start with the whole interval; `code` is the input, or a buffer for the output."""
    return Coder(code, np.array([0, _ALL, 0, 0], np.int64))


@compiled
def begin_reading(coder: Coder) -> None:
    """Read the first 32 bits; bytes beyond the end are zeros."""
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
    """Encode a bit; p is the 16-bit probability of a one."""
    _narrow(coder, _middle(coder.state, p), bit, False)


@compiled
def read_bit(coder: Coder, p: int) -> int:
    """Decode a bit that was encoded with the same p."""
    middle = _middle(coder.state, p)
    bit = int(coder.state[3] <= middle)
    _narrow(coder, middle, bit, True)
    return bit


@compiled
def end_writing(coder: Coder) -> int:
    """Write the fewest bytes that identify the interval if zeros follow; return the length of the code."""
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
    """Encode or decode a piece of a text, and fill a non-empty trace; return the code's length, -1 if too long."""
    if reading and piece == 0:
        begin_reading(coder)
    end = min(len(text), piece + _PIECE)
    for position in range(piece, end):
        if not reading and coder.state[2] + _SLACK > len(coder.code):
            return -1
        model.begin_byte(predictor, text, position)
        byte = text[position]
        for index in range(8):
            p = model.predict(predictor, text, position)
            if len(trace) > 0:
                trace[8 * position + index] = p
            if reading:
                bit = read_bit(coder, p)
            else:
                bit = byte >> (7 - index) & 1
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
    """Encode a text; None if the code would be longer."""
    code = np.empty(len(text) + _SLACK, np.uint8)
    length = _code(text.copy(), code, progress, reading=False, trace=np.empty(0, np.uint16))
    return None if length < 0 or length > len(text) else code[:length]


def read(code: np.ndarray, length: int, progress: Progress | None = None) -> np.ndarray:
    """Decode a text of `length` bytes."""
    text = np.zeros(length, np.uint8)
    _code(text, code.copy(), progress, reading=True, trace=np.empty(0, np.uint16))
    return text


def probabilities(text: np.ndarray) -> np.ndarray:
    """Return the coding probability of a one for each bit of a text, (8 T,), in multiples of 2^-16."""
    trace = np.empty(8 * len(text), np.uint16)
    _code(text.copy(), np.empty(32 * len(text) + _SLACK, np.uint8), None, reading=False, trace=trace)
    return trace
