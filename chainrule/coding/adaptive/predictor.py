"""The probability of the next bit: all models, the mixer, and its refinement, in the order in which they are asked."""

from typing import NamedTuple

import numpy as np

from chainrule.coding.adaptive import contexts as context_models
from chainrule.coding.adaptive import match as match_model
from chainrule.coding.adaptive import mixer as mixing
from chainrule.coding.adaptive import refinement
from chainrule.coding.adaptive.contexts import CONTEXTS, Contexts, make_contexts
from chainrule.coding.adaptive.hashing import combine
from chainrule.coding.adaptive.logistic import squash
from chainrule.coding.adaptive.machine_code import compiled
from chainrule.coding.adaptive.match import Match, expected_bit, kind_of_length, make_match
from chainrule.coding.adaptive.mixer import ONE, Mixer, make_mixer
from chainrule.coding.adaptive.past import Past, hash_past, make_past, note_byte

_MATCH_INPUTS = CONTEXTS * context_models.INPUTS
_BIAS = _MATCH_INPUTS + match_model.INPUTS
# The gates of the mixer's neurons: length of the match; bits known of the byte; the byte before; orders known and
# place of the bit; letters of the word and place of the bit.
_ROWS = (match_model.LENGTHS, 256, 256, 64, 64)
_GATE_1 = _ROWS[0]
_GATE_2 = _GATE_1 + _ROWS[1]
_GATE_3 = _GATE_2 + _ROWS[2]
_GATE_4 = _GATE_3 + _ROWS[3]
_RATES = (24, 300, 16, 100, 4096)
_MAPS = 1 << 16  # contexts of a map, at most
_LARGEST, _SMALLEST = 1 << 18, 1 << 10  # buckets of a context


class Predictor(NamedTuple):
    """Everything that is learnt.

    Attributes:
        contexts, match, mixer: the models.
        past: words and lines before the present byte.
        maps: the refinement in a hash of the byte before and the bits known of this one.
        far_maps: the same with the two bytes before.
        state: (6,) bits known of the byte behind a one, the same of its half, how many; the bit that the match
            expects; rows of the two maps.
    """

    contexts: Contexts
    match: Match
    mixer: Mixer
    past: Past
    maps: np.ndarray
    far_maps: np.ndarray
    state: np.ndarray


def make_predictor(length: int) -> Predictor:
    """Nothing learnt yet, with tables sized for a text of so many bytes."""
    buckets = min(_LARGEST, max(_SMALLEST, 1 << length.bit_length()))
    beginning = np.zeros(_BIAS + 1)
    beginning[:_MATCH_INPUTS] = np.tile([0.12, 0.0, 0.05, 0.05], CONTEXTS)
    beginning[_MATCH_INPUTS] = 0.2
    return Predictor(
        make_contexts(buckets),
        make_match(buckets),
        make_mixer((beginning * ONE).astype(np.int32), sum(_ROWS), len(_ROWS), 256, _RATES),
        make_past(),
        refinement.make_map(min(_MAPS, 4 * buckets)),
        refinement.make_map(min(_MAPS, 4 * buckets)),
        np.zeros(6, np.int64),
    )


@compiled
def begin_byte(predictor: Predictor, text: np.ndarray, position: int) -> None:
    """Prepare for the bits of the byte at a position."""
    hash_past(predictor.past, text, position, predictor.contexts.hashes)
    context_models.begin_byte(predictor.contexts)
    match_model.find(predictor.match, text, position)
    predictor.state[0] = 1
    predictor.state[1] = 1
    predictor.state[2] = 0


@compiled
def predict(predictor: Predictor, text: np.ndarray, position: int) -> int:
    """The probability that the next bit is a one, 16 bits, never 0."""
    mixer, state = predictor.mixer, predictor.state
    partial, node, place = state[0], state[1], state[2]
    known = context_models.predict(predictor.contexts, mixer.inputs, node, partial, place)
    state[3] = expected_bit(predictor.match, text, partial, place)
    match_model.predict(predictor.match, mixer.inputs, _MATCH_INPUTS, state[3])
    mixer.inputs[_BIAS] = 256
    last = text[position - 1] if position > 0 else 0
    before = text[position - 2] if position > 1 else 0
    mixer.rows[0] = kind_of_length(predictor.match) if state[3] >= 0 else 0
    mixer.rows[1] = _GATE_1 + partial
    mixer.rows[2] = _GATE_2 + last
    mixer.rows[3] = _GATE_3 + known * 8 + place
    mixer.rows[4] = _GATE_4 + min(predictor.past.letters[0], 7) * 8 + place
    mixer.last_row[0] = partial
    stretched = mixing.mix(mixer)
    state[4] = refinement.row(predictor.maps, combine(last << 8 | partial, 1))
    state[5] = refinement.row(predictor.far_maps, combine(before << 16 | last << 8 | partial, 2))
    refined = refinement.refine(predictor.maps, state[4], stretched)
    far = refinement.refine(predictor.far_maps, state[5], stretched)
    return min(65535, max(1, (2 * squash(stretched) + refined + far) >> 2))


@compiled
def learn(predictor: Predictor, bit: int) -> None:
    """Learn the bit that was predicted."""
    state, stretched = predictor.state, predictor.mixer.last_output[0]
    context_models.update(predictor.contexts, state[1], state[0], state[2], bit)
    match_model.update(predictor.match, state[3], bit)
    mixing.update(predictor.mixer, bit)
    refinement.update(predictor.maps, state[4], stretched, bit)
    refinement.update(predictor.far_maps, state[5], stretched, bit)
    state[0] = state[0] << 1 | bit
    state[1] = state[1] << 1 | bit
    state[2] += 1
    if state[2] == 4:
        context_models.begin_half(predictor.contexts, state[0])
        state[1] = 1


@compiled
def end_byte(predictor: Predictor, byte: int, position: int) -> None:
    """Take the byte at a position, whose bits were learnt, into the past."""
    context_models.end_byte(predictor.contexts, byte)
    note_byte(predictor.past, byte, position)
