"""A text to a code and back: one loop for both, in which each bit is predicted, coded and learnt."""

import numpy as np
from numba import njit

from chainrule.coding.adaptive import predictor as model
from chainrule.coding.adaptive.machine_code import kept
from chainrule.coding.adaptive.range_coder import Coder, begin_reading, end_writing, make_coder, read_bit, write_bit

_SLACK = 64  # bytes: more than one byte of a text can cost


@kept
@njit
def _run(predictor: model.Predictor, coder: Coder, text: np.ndarray, reading: bool, trace: np.ndarray) -> int:
    """Code a text, or read it; returns the length of the code, -1 where it has no room.

    Args:
        predictor: nothing learnt yet.
        coder: at its beginning.
        text: bytes, written here in reading.
        reading: whether the code is read.
        trace: (8 len(text),) filled with the probabilities, unless it is empty.
    """
    if reading:
        begin_reading(coder)
    for position in range(len(text)):
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
    return 0 if reading else end_writing(coder)


def write(text: np.ndarray) -> np.ndarray | None:
    """The code of a text; None where it would be longer than the text."""
    code = np.empty(len(text) + _SLACK, np.uint8)
    length = _run(model.make_predictor(len(text)), make_coder(code), text.copy(), False, np.empty(0, np.uint16))
    return None if length < 0 or length > len(text) else code[:length]


def read(code: np.ndarray, length: int) -> np.ndarray:
    """The text of so many bytes that has this code."""
    text = np.zeros(length, np.uint8)
    _run(model.make_predictor(length), make_coder(code.copy()), text, True, np.empty(0, np.uint16))
    return text


def probabilities(text: np.ndarray) -> np.ndarray:
    """The probability of a one that each bit of a text was coded with, (8 T,), in multiples of 2^-16."""
    trace = np.empty(8 * len(text), np.uint16)
    code = np.empty(32 * len(text) + _SLACK, np.uint8)
    _run(model.make_predictor(len(text)), make_coder(code), text.copy(), False, trace)
    return trace
