"""A piano roll as a MIDI file, read back byte by byte, and files of others as piano rolls."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule_app.readers.music import midi_file, read_midi


def played(content, lowest, keys, frames, ticks, quarter=480):
    """The roll that a player of the file hears, and the microseconds of a quarter note."""
    assert content[:8] == b"MThd\0\0\0\6"
    kind, tracks, division = struct.unpack(">HHH", content[8:14])
    assert (kind, tracks, division) == (0, 1, quarter)
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


@given(
    st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=20), st.sampled_from([1, 4, 7, 500])
)
def test_a_player_hears_the_roll(rows, frames_per_quarter):
    roll = np.array(rows, int)
    content = midi_file(roll, lowest=60, frames_per_quarter=frames_per_quarter)
    ticks = {1: 480, 4: 120, 7: 68, 500: 1}[frames_per_quarter]
    heard, tempo = played(content, 60, 3, len(roll), ticks, ticks * frames_per_quarter)
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
        ([[0]], {"frames_per_quarter": 0}, "frames_per_quarter"),
        ([[0]], {"frames_per_quarter": 1 << 15}, "frames_per_quarter"),
        ([[0]], {"quarters_per_minute": 0}, "quarters_per_minute"),
    ],
)
def test_what_cannot_be_is_named(roll, options, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        midi_file(roll, **options)


def midi(*tracks, kind=1, division=480):
    """A MIDI file with tracks of these events."""
    chunks = [struct.pack(">4sI", b"MTrk", len(track)) + track for track in tracks]
    return struct.pack(">4sIHHH", b"MThd", 6, kind, len(tracks), division) + b"".join(chunks)


def sounds(piece):
    """The (first frame, frames, key of a piano) of all notes."""
    edges = np.diff(np.pad(piece.roll.astype(int), ((1, 1), (0, 0))), axis=0)
    starts, stops = (np.argwhere(sign == edges.T) for sign in (1, -1))
    return [(int(start), int(stop - start), int(key)) for (key, start), (_, stop) in zip(starts, stops, strict=True)]


ON, OFF, END = b"\x90\x3c\x40", b"\x80\x3c\x00", b"\x00\xff\x2f\x00"
QUARTER = b"\x83\x60"  # 480 ticks
C = 60 - 21


@given(
    st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=20), st.sampled_from([1, 4, 7, 500])
)
def test_a_roll_is_read_back(rows, frames_per_quarter):
    roll = np.zeros((len(rows), 88), bool)
    roll[:, 40:45] = rows
    roll[[0, -1], 40] = True
    piece = read_midi(midi_file(roll, frames_per_quarter=frames_per_quarter), "roll", frames_per_quarter)
    np.testing.assert_array_equal(piece.roll, roll)
    assert (round(piece.quarters_per_minute), piece.beyond) == (120, 0)


def test_running_status_and_notes_of_no_velocity_are_understood():
    track = b"\x00" + ON + QUARTER + b"\x3c\x00" + b"\x00\x40\x40" + QUARTER + b"\x40\x00" + END
    assert sounds(read_midi(midi(track), "a", 2)) == [(0, 2, C), (2, 2, C + 4)]


def test_other_events_are_passed_over_and_tracks_are_joined():
    other = b"\x00\xf0\x03\x01\x02\xf7" + b"\x00\xff\x03\x02hi" + b"\x00\xc0\x05" + b"\x00\xb0\x40\x7f"
    drums = b"\x00\x99\x30\x40" + QUARTER + b"\x89\x30\x00"
    second = QUARTER + b"\x91\x43\x40" + QUARTER + b"\x81\x43\x40" + END
    content = midi(b"\x00" + ON + other + QUARTER + OFF + END, drums + END, second)
    assert sounds(read_midi(content, "a")) == [(0, 4, C), (4, 4, C + 7)]


def test_the_tempo_is_the_mean_over_time():
    fast, slow = b"\x00\xff\x51\x03\x07\xa1\x20", b"\x00\xff\x51\x03\x16\xe3\x60"  # half a second, one and a half
    track = fast + b"\x00" + ON + QUARTER + slow[1:] + QUARTER + OFF + END
    assert read_midi(midi(track), "a").quarters_per_minute == pytest.approx(60)
    assert read_midi(midi(b"\x00" + ON + QUARTER + OFF + END), "a").quarters_per_minute == pytest.approx(120)


def test_a_division_in_seconds_has_quarter_notes_of_half_a_second():
    track = b"\x00" + ON + b"\x81\x48" + OFF + END  # 200 ticks of a hundredth: four quarter notes
    assert sounds(read_midi(midi(track, division=0xE704), "a", 2)) == [(0, 8, C)]


def test_a_key_struck_again_is_let_go_before():
    again = b"\x00" + ON + QUARTER + ON + QUARTER + OFF + END
    assert sounds(read_midi(midi(again), "a")) == [(0, 3, C), (4, 4, C)]
    assert sounds(read_midi(midi(again), "a", 1)) == [(0, 2, C)]  # there is no frame between


def test_notes_last_a_frame_at_least_and_silence_before_them_is_cut():
    track = b"\x87\x40" + ON + b"\x01" + OFF + QUARTER + ON + END  # the last one never ends
    assert sounds(read_midi(midi(track), "a")) == [(0, 1, C), (4, 1, C)]


def test_notes_beyond_a_piano_are_counted():
    track = b"\x00" + ON + b"\x00\x90\x05\x40" + QUARTER + OFF + b"\x00\x80\x05\x00" + END
    piece = read_midi(midi(track), "a")
    assert (sounds(piece), piece.beyond) == ([(0, 4, C)], 1)


PIECE = midi(b"\x00" + ON + QUARTER + OFF + END)


@pytest.mark.parametrize("after", [b"transcribed by hand\n", b"\0" * 9, b"\0", b"XFIHabcdefgh", PIECE])
def test_what_follows_the_last_track_is_passed_over(after):
    """Text there was once read as a chunk: "expected 1,819,238,756 bytes"."""
    assert sounds(read_midi(PIECE + after, "a")) == [(0, 4, C)]


def test_a_midi_file_inside_a_riff_file_is_read():
    inner = b"LIST\3\0\0\0abc\0" + b"data" + struct.pack("<I", len(PIECE)) + PIECE
    assert sounds(read_midi(b"RIFF" + struct.pack("<I", 4 + len(inner)) + b"RMID" + inner, "a")) == [(0, 4, C)]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "not a MIDI file"),
        (b"RIFF\0\0\0\0RMIDdata", "not a MIDI file"),
        (PIECE[:-9], "truncated: expected a chunk of 13 bytes, got 4"),
        (b"RIFF and other things", "not a MIDI file"),
        (midi(b"\x00" + ON + QUARTER + OFF + END, kind=2), "MIDI format 2 is not supported"),
        (midi(b"\x00" + ON + QUARTER + OFF + END, division=0), "its header is truncated"),
        (midi(b"\x00" + ON + QUARTER + OFF + END)[:-1], "truncated"),
        (midi(END), "contains no notes"),
        (midi(b"\x00\x90\x05\x40" + QUARTER + b"\x80\x05\x00" + END), "no note is in the range of a piano"),
        (midi(b"\x00" + ON + b"\xff\xff\xff\x7f" + OFF + END, division=1), "frames, more than 131,072"),
        (midi(b"\x00\x3c\x40"), "damaged at byte"),  # no status to go on with
        (midi(b"\x00\x90\x3c\x80"), "damaged at byte"),
        (midi(b"\x00\xf4\x00\x00"), "damaged at byte"),
        (midi(b"\x00\xff\x03\x7f"), "damaged at byte"),
        (midi(b"\xff\xff\xff\xff\xff"), "damaged at byte"),
    ],
)
def test_what_is_no_music_is_named(content, named):
    with pytest.raises(ValueError, match=f"^a: .*{named}"):
        read_midi(content, "a")


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_music_or_named(content, in_a_track):
    said = ""
    try:
        piece = read_midi(midi(content) if in_a_track else content, "a")
    except ValueError as error:
        said = str(error)
    assert said.startswith("a: ") if said else piece.roll[[0, -1]].any(1).all()
