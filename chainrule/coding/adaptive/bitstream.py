"""A text to a code and back: one loop for both, in which each bit is predicted, coded and learnt."""

from collections.abc import Callable

import numpy as np

from chainrule.coding.adaptive import predictor as model
from chainrule.coding.adaptive.machine_code import compiled, kept
from chainrule.coding.adaptive.range_coder import Coder, begin_reading, end_writing, make_coder, read_bit, write_bit

_SLACK = 64  # bytes: more than one byte of a text can cost
_AHEAD = 4  # bytes: the reader knows so many past those that it needs
_PIECE = 1 << 14  # bytes between two reports of progress, when Ctrl-C is heard too

Progress = Callable[[int], None]


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
