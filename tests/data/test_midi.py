"""A piano roll as a MIDI file, read back byte by byte."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data import midi_file


def played(content, lowest, keys, frames, ticks):
    """The roll that a player of the file hears, and the microseconds of a quarter note."""
    assert content[:8] == b"MThd\0\0\0\6"
    kind, tracks, division = struct.unpack(">HHH", content[8:14])
    assert (kind, tracks, division) == (0, 1, 480)
    assert content[14:18] == b"MTrk"
    track = content[22:]
    assert len(track) == struct.unpack(">I", content[18:22])[0]
    roll, down, now, place, tempo = np.zeros((frames, keys), int), {}, 0, 0, None
    while place < len(track):
        wait = 0
        while True:
            byte, place = track[place], place + 1
            wait = wait << 7 | byte & 0x7F
            if byte < 0x80:
                break
        now += wait
        assert now % ticks == 0
        match track[place]:
            case 0xFF if track[place + 1] == 0x51:
                tempo, place = int.from_bytes(track[place + 3 : place + 6]), place + 6
            case 0xFF:
                assert track[place:] == b"\xff\x2f\x00"
                place += 3
            case 0x90:
                assert track[place + 1] not in down
                down[track[place + 1]], place = now // ticks, place + 3
            case 0x80:
                note = track[place + 1]
                roll[down.pop(note) : now // ticks, note - lowest] = 1
                place += 3
    assert not down
    return roll, tempo


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=20), st.sampled_from([1, 4, 8]))
def test_a_player_hears_the_roll(rows, frames_per_quarter):
    roll = np.array(rows, int)
    content = midi_file(roll, lowest=60, frames_per_quarter=frames_per_quarter)
    heard, tempo = played(content, 60, 3, len(roll), 480 // frames_per_quarter)
    np.testing.assert_array_equal(heard, roll)
    assert tempo == 500_000


def test_a_long_silence_is_waited_for():
    roll = np.zeros((500, 1), int)
    roll[-1] = 1
    heard, _ = played(midi_file(roll), 21, 1, 500, 120)
    np.testing.assert_array_equal(heard, roll)


@pytest.mark.parametrize(
    ("roll", "options", "named"),
    [
        ([0, 1], {}, "roll"),
        ([[0.5]], {}, "roll"),
        ([[0] * 88], {"lowest": 60}, "lowest"),
        ([[0]], {"frames_per_quarter": 7}, "frames_per_quarter"),
        ([[0]], {"quarters_per_minute": 0}, "quarters_per_minute"),
    ],
)
def test_what_cannot_be_is_named(roll, options, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        midi_file(roll, **options)
