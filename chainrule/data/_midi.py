"""A piano roll as a MIDI file, which any player plays."""

import struct

import numpy as np
from numpy.typing import ArrayLike

LOWEST = 21  # the lowest key of a piano, A0, in MIDI's numbers
_TICKS = 480  # of a quarter note
_VELOCITY = 80


def midi_file(
    roll: ArrayLike, *, lowest: int = LOWEST, frames_per_quarter: int = 4, quarters_per_minute: int = 120
) -> bytes:
    """Return the bytes of a standard MIDI file, format 0, of one piano: a note sounds as long as its key is down.

    Args:
        roll: (T, D) of 0 and 1: which of D keys are down in each of T frames.
        lowest: the MIDI number of the first key, 60 for middle C.
        frames_per_quarter: frames of a quarter note, a divisor of 480.
        quarters_per_minute: the tempo.

    >>> midi_file([[1], [1], [0]], lowest=60)[:14].hex(" ")
    '4d 54 68 64 00 00 00 06 00 00 00 01 01 e0'
    """
    keys = np.asarray(roll)
    if keys.ndim != 2 or not np.isin(keys, (0, 1)).all():
        raise ValueError(f"roll: expected (T, D) of 0 and 1, got shape {keys.shape} of {keys.dtype}")
    if not 0 <= lowest <= lowest + keys.shape[1] - 1 <= 127:
        raise ValueError(f"lowest: expected all {keys.shape[1]} notes from 0 to 127, got {lowest} for the first")
    if frames_per_quarter < 1 or _TICKS % frames_per_quarter:
        raise ValueError(f"frames_per_quarter: expected a divisor of {_TICKS}, got {frames_per_quarter}")
    if not 4 <= quarters_per_minute <= 60_000_000:
        raise ValueError(f"quarters_per_minute: expected at least 4, got {quarters_per_minute}")
    tempo = struct.pack(">I", round(60_000_000 / quarters_per_minute))[1:]  # microseconds of a quarter note, 3 bytes
    events, waited = [b"\x00\xff\x51\x03" + tempo], 0
    edge = np.zeros((1, keys.shape[1]), np.int8)
    changes = np.diff(np.concatenate([edge, keys.astype(np.int8), edge]), axis=0)  # (T + 1, D)
    for change in changes:
        for key in np.flatnonzero(change)[np.argsort(change[change != 0], kind="stable")]:  # ends before beginnings
            status, velocity = (0x90, _VELOCITY) if change[key] > 0 else (0x80, 0)
            events.append(_variable_length(waited) + bytes((status, lowest + int(key), velocity)))
            waited = 0
        waited += _TICKS // frames_per_quarter
    events.append(_variable_length(0) + b"\xff\x2f\x00")
    return _chunk(b"MThd", struct.pack(">HHH", 0, 1, _TICKS)) + _chunk(b"MTrk", b"".join(events))


def _variable_length(value: int) -> bytes:
    """Seven bits a byte, the highest first; the top bit says that more follow."""
    parts = [value & 0x7F]
    while value := value >> 7:
        parts.append(value & 0x7F | 0x80)
    return bytes(reversed(parts))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack(">I", len(content)) + content
