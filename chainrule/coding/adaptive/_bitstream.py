"""The adaptive compressor: a predictor of the next bit, from all models, and the loop that codes and learns bits."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from chainrule.coding.adaptive import _models as models
from chainrule.coding.adaptive import _probabilities as refinement
from chainrule.coding.adaptive._models import CONTEXTS
from chainrule.coding.adaptive._probabilities import combine, squash
from chainrule.kernels._machine_code import compiled, kept

_FIRST_MATCH_INPUT = CONTEXTS * models.CONTEXT_INPUTS
_BIAS = _FIRST_MATCH_INPUT + models.MATCH_INPUTS
# Gates of the mixer's neurons: length of the match; known bits of the byte; last byte; orders with a history and index
# of the bit; letters of the word and index of the bit.
_ROWS = (models.MATCH_LENGTHS, 256, 256, 64, 64)
_GATE_1 = _ROWS[0]
_GATE_2 = _GATE_1 + _ROWS[1]
_GATE_3 = _GATE_2 + _ROWS[2]
_GATE_4 = _GATE_3 + _ROWS[3]
_RATES = (24, 300, 16, 100, 4096)
_MAPS = 1 << 16  # maximum number of contexts of a map
_LARGEST, _SMALLEST = 1 << 18, 1 << 10  # limits of the buckets per context


class Past(NamedTuple):
    """Words and lines before the current byte."""

    words: np.ndarray  # (3,) hashes of the current word's letters and of the two previous words; 0 without a word
    letters: np.ndarray  # (1,) number of letters in the current word
    lines: np.ndarray  # (2,) start of the current and the previous line


def make_past() -> Past:
    """Create the empty past."""
    return Past(np.zeros(3, np.int64), np.zeros(1, np.int64), np.zeros(2, np.int64))


@compiled
def _kind(byte: int) -> int:
    """Classify a byte: capital, small letter, digit, space, line end, other mark, control, beyond ASCII."""
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
    """Update words and lines by the byte at a position; case is ignored."""
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
    """Compute the hashes of all contexts of the byte at a position."""
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


class Predictor(NamedTuple):
    """State of the whole model."""

    contexts: models.Contexts  # contexts, match, mixer: the models
    match: models.Match
    mixer: models.Mixer
    past: Past  # words and lines before the current byte
    maps: np.ndarray  # refinement by a hash of the previous byte and the known bits of the current one
    far_maps: np.ndarray  # the same with the two previous bytes
    # (6,) known bits of the byte after a leading one, the same of its half, their number; the bit that the match
    # expects; rows of the two maps
    state: np.ndarray


def make_predictor(length: int) -> Predictor:
    """Create an untrained predictor for a text of `length` bytes."""
    buckets = min(_LARGEST, max(_SMALLEST, 1 << length.bit_length()))
    beginning = np.zeros(_BIAS + 1)
    beginning[:_FIRST_MATCH_INPUT] = np.tile([0.12, 0.0, 0.05, 0.05], CONTEXTS)
    beginning[_FIRST_MATCH_INPUT] = 0.2
    return Predictor(
        models.make_contexts(buckets),
        models.make_match(buckets),
        models.make_mixer((beginning * models.ONE).astype(np.int32), sum(_ROWS), len(_ROWS), 256, _RATES),
        make_past(),
        refinement.make_map(min(_MAPS, 4 * buckets)),
        refinement.make_map(min(_MAPS, 4 * buckets)),
        np.zeros(6, np.int64),
    )


@compiled
def begin_byte(predictor: Predictor, text: np.ndarray, position: int) -> None:
    """Prepare for the bits of the byte at a position."""
    hash_past(predictor.past, text, position, predictor.contexts.hashes)
    models.begin_contexts(predictor.contexts)
    models.find_match(predictor.match, text, position)
    predictor.state[0] = 1
    predictor.state[1] = 1
    predictor.state[2] = 0


@compiled
def predict(predictor: Predictor, text: np.ndarray, position: int) -> int:
    """Return the 16-bit probability that the next bit is a one, never 0."""
    mixer, state = predictor.mixer, predictor.state
    partial, node, index = state[0], state[1], state[2]
    matches = models.predict_from_contexts(predictor.contexts, mixer.inputs, node, partial, index)
    state[3] = models.expected_bit(predictor.match, text, partial, index)
    models.predict_from_match(predictor.match, mixer.inputs, _FIRST_MATCH_INPUT, state[3])
    mixer.inputs[_BIAS] = 256
    last = text[position - 1] if position > 0 else 0
    before = text[position - 2] if position > 1 else 0
    mixer.rows[0] = models.kind_of_length(predictor.match) if state[3] >= 0 else 0
    mixer.rows[1] = _GATE_1 + partial
    mixer.rows[2] = _GATE_2 + last
    mixer.rows[3] = _GATE_3 + matches * 8 + index
    mixer.rows[4] = _GATE_4 + min(predictor.past.letters[0], 7) * 8 + index
    mixer.last_row[0] = partial
    stretched = models.mix(mixer)
    state[4] = refinement.row(predictor.maps, combine(last << 8 | partial, 1))
    state[5] = refinement.row(predictor.far_maps, combine(before << 16 | last << 8 | partial, 2))
    refined = refinement.refine(predictor.maps, state[4], stretched)
    far = refinement.refine(predictor.far_maps, state[5], stretched)
    return min(65535, max(1, (2 * squash(stretched) + refined + far) >> 2))


@compiled
def learn(predictor: Predictor, bit: int) -> None:
    """Learn the predicted bit."""
    state, stretched = predictor.state, predictor.mixer.last_output[0]
    models.update_contexts(predictor.contexts, state[1], state[0], state[2], bit)
    models.update_match(predictor.match, state[3], bit)
    models.update_mixer(predictor.mixer, bit)
    refinement.update(predictor.maps, state[4], stretched, bit)
    refinement.update(predictor.far_maps, state[5], stretched, bit)
    state[0] = state[0] << 1 | bit
    state[1] = state[1] << 1 | bit
    state[2] += 1
    if state[2] == 4:
        models.begin_half(predictor.contexts, state[0])
        state[1] = 1


@compiled
def end_byte(predictor: Predictor, byte: int, position: int) -> None:
    """Add the byte at a position to the past."""
    models.end_contexts(predictor.contexts, byte)
    note_byte(predictor.past, byte, position)


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
def _run(predictor: Predictor, coder: Coder, text: np.ndarray, piece: int, reading: bool, trace: np.ndarray) -> int:
    """Encode or decode a piece of a text, and fill a non-empty trace; return the code's length, -1 if too long."""
    if reading and piece == 0:
        begin_reading(coder)
    end = min(len(text), piece + _PIECE)
    for position in range(piece, end):
        if not reading and coder.state[2] + _SLACK > len(coder.code):
            return -1
        begin_byte(predictor, text, position)
        byte = text[position]
        for index in range(8):
            p = predict(predictor, text, position)
            if len(trace) > 0:
                trace[8 * position + index] = p
            if reading:
                bit = read_bit(coder, p)
            else:
                bit = byte >> (7 - index) & 1
                write_bit(coder, bit, p)
            learn(predictor, bit)
        text[position] = predictor.state[0] & 255
        end_byte(predictor, text[position], position)
    return end_writing(coder) if end == len(text) and not reading else 0


def _code(text: np.ndarray, code: np.ndarray, progress: Progress | None, *, reading: bool, trace: np.ndarray) -> int:
    predictor, coder, length = make_predictor(len(text)), make_coder(code), 0
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
