"""Music: piano rolls as MIDI files and back, prepared as frames of 88 keys on disk, and batches of them.

`midi_file` writes a piano roll as a file that any player plays, and `read_midi` reads one. A prepared folder holds

music.json                       counts, tempo, fingerprints
train.frames, valid.frames       the keys of each frame, 11 bytes of 8
train.pieces, valid.pieces       where pieces begin
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import ArrayLike

from chainrule.data import Batch, Batches, Shuffled
from chainrule.option_error import OptionError
from chainrule_app.readers.held_out import split_rows
from chainrule_app.readers.members import LARGEST, Member, Members, read_each
from chainrule_app.readers.piano_rolls import KEYS, LOWEST, HeldRoll, HeldRolls
from chainrule_app.readers.piano_rolls import Roll as Roll
from chainrule_app.readers.row_order import in_order
from chainrule_app.readers.sources import MIDI
from chainrule_app.readers.store import Ids, Store, StoreWriter

_TICKS = 480  # of a quarter note in files written here, or the nearest multiple of its frames below
_MOST_TICKS = 0x7FFF  # 15 bits
_VELOCITY = 80
_QUARTERS_PER_MINUTE = 120.0  # where no tempo is known
_USUAL = 500_000  # microseconds of a quarter note where a file names no tempo
_DRUMS = 9  # the channel of percussion, whose numbers are no pitches
_NOTE_OFF, _NOTE_ON, _META, _SYSTEM = 0x80, 0x90, 0xFF, (0xF0, 0xF7)
_TEMPO, _END = 0x51, 0x2F  # kinds of meta events
_MOST_FRAMES = 1 << 17  # of a piece: four hours of sixteenth notes
MANIFEST = "music.json"
FILES_TO_HOLD_OUT_WHOLE = 10
_POOL = 64  # batches whose pieces are sorted by length
_LONGEST_HELD_OUT = 4096  # frames of held-out music that are read in one pass


def MidiFiles(source: Any) -> "Members | HeldRolls":  # noqa: N802  as the class that it returns
    """Return the MIDI files of a folder or an archive, or a single one, as `Members`; or piano rolls in memory."""
    return source if isinstance(source, HeldRolls) else Members(source, MIDI, "MIDI file")


def midi_file(
    roll: ArrayLike, *, lowest: int = LOWEST, frames_per_quarter: int = 4, quarters_per_minute: int = 120
) -> bytes:
    """Return the bytes of a standard MIDI file, format 0, of one piano: a note sounds as long as its key is down.

    Args:
        roll: (T, D) of 0 and 1: which of D keys are down in each of T frames.
        lowest: the MIDI number of the first key, 60 for middle C.
        frames_per_quarter: frames of a quarter note, from 1 to 32,767.
        quarters_per_minute: the tempo.

    >>> midi_file([[1], [1], [0]], lowest=60)[:14].hex(" ")
    '4d 54 68 64 00 00 00 06 00 00 00 01 01 e0'
    """
    keys = np.asarray(roll)
    if keys.ndim != 2 or not np.isin(keys, (0, 1)).all():
        raise ValueError(f"roll: expected (T, D) of 0 and 1, got shape {keys.shape} of {keys.dtype}")
    if not 0 <= lowest <= lowest + keys.shape[1] - 1 <= 127:
        raise ValueError(f"lowest: expected all {keys.shape[1]} notes from 0 to 127, got {lowest} for the first")
    if not 1 <= frames_per_quarter <= _MOST_TICKS:
        raise OptionError("frames_per_quarter", f"expected 1 to {_MOST_TICKS:,}, got {frames_per_quarter}")
    if not 4 <= quarters_per_minute <= 60_000_000:
        raise ValueError(f"quarters_per_minute: expected 4 to 60,000,000, got {quarters_per_minute}")
    ticks = max(_TICKS // frames_per_quarter, 1)  # of a frame
    tempo = struct.pack(">I", round(60_000_000 / quarters_per_minute))[1:]  # microseconds of a quarter note, 3 bytes
    events, waited = [b"\x00\xff\x51\x03" + tempo], 0
    edge = np.zeros((1, keys.shape[1]), np.int8)
    changes = np.diff(np.concatenate([edge, keys.astype(np.int8), edge]), axis=0)  # (T + 1, D)
    for change in changes:
        for key in np.flatnonzero(change)[np.argsort(change[change != 0], kind="stable")]:  # ends before beginnings
            status, velocity = (0x90, _VELOCITY) if change[key] > 0 else (0x80, 0)
            events.append(_variable_length(waited) + bytes((status, lowest + int(key), velocity)))
            waited = 0
        waited += ticks
    events.append(_variable_length(0) + b"\xff\x2f\x00")
    return _chunk(b"MThd", struct.pack(">HHH", 0, 1, ticks * frames_per_quarter)) + _chunk(b"MTrk", b"".join(events))


def _variable_length(value: int) -> bytes:
    """Seven bits a byte, the highest first; the top bit says that more follow."""
    parts = [value & 0x7F]
    while value := value >> 7:
        parts.append(value & 0x7F | 0x80)
    return bytes(reversed(parts))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack(">I", len(content)) + content


@dataclass(frozen=True)
class Piece:
    """A MIDI file as a piano roll."""

    roll: Roll  # (T, 88): which keys are down in each frame, from the first note to the last
    quarters_per_minute: float  # the mean tempo
    beyond: int  # notes below or above the keys of a piano, which are left out


def read_midi(content: bytes, name: str, frames_per_quarter: int = 4) -> Piece:
    """Read the notes of a standard MIDI file, all instruments on one piano, without percussion and pedals.

    A note begins and ends at the nearest frame and lasts one at least. A key that is struck again is up in the frame
    before, unless it was struck in that one.
    """
    head, tracks = b"", list[bytes]()
    content = _unwrapped(content)
    for place, chunk, data in _chunks(content, name):
        if place == 0 and chunk != b"MThd":
            raise ValueError(f"{name}: not a MIDI file: expected MThd at its beginning, got {content[:4]!r}")
        head = head or data
        tracks += [data] * (chunk == b"MTrk")
    if len(head) < 6 or not (division := int.from_bytes(head[4:6])):
        raise ValueError(f"{name}: not a MIDI file, or its header is truncated: download it again")
    if (kind := int.from_bytes(head[:2])) > 1:
        raise ValueError(f"{name}: MIDI format {kind} is not supported: save it as format 0 or 1")
    # A division in seconds has frames a second, negative, and ticks a frame; its quarter notes last half a second.
    by_seconds = division >> 15
    quarter = (256 - (division >> 8)) * (division & 0xFF) / 2 if by_seconds else division
    notes, tempi = _notes_and_tempi(_events(track, name) for track in tracks)
    if not len(notes):
        raise ValueError(f"{name}: contains no notes: remove the file")
    tempi = [] if by_seconds else sorted(tempi)
    spans = np.diff([0, *(tick for tick, _ in tempi), notes[:, 1].max()]).clip(0)
    microseconds = np.average([_USUAL, *(tempo for _, tempo in tempi)], weights=spans if spans.any() else None)
    on_piano = (notes[:, 2] >= LOWEST) & (notes[:, 2] < LOWEST + KEYS)
    if not on_piano.any():
        raise ValueError(f"{name}: no note is in the range of a piano, {LOWEST} to {LOWEST + KEYS - 1}: transpose it")
    start, stop = np.floor(notes[on_piano, :2].T * (frames_per_quarter / max(quarter, 1)) + 0.5).astype(np.int64)
    start, stop, key = start - start.min(), np.maximum(stop, start + 1) - start.min(), notes[on_piano, 2] - LOWEST
    if (length := int(stop.max())) > _MOST_FRAMES:
        raise ValueError(
            f"{name}: {length:,} frames, more than {_MOST_FRAMES:,}: shorten the piece, or lower the frames per quarter"
        )
    changes = np.zeros((length + 1, KEYS), np.int32)
    np.add.at(changes, (start, key), 1)
    np.add.at(changes, (stop, key), -1)
    roll = changes.cumsum(0)[:-1] > 0
    order = np.lexsort((start, key))
    start, key = start[order], key[order]
    again = (key[1:] == key[:-1]) & (start[1:] > start[:-1] + 1)
    roll[start[1:][again] - 1, key[1:][again]] = False
    return Piece(roll, float(np.clip(6e7 / max(microseconds, 1), 4, 1000)), int((~on_piano).sum()))


def _unwrapped(content: bytes) -> bytes:
    """Return the MIDI file inside a RIFF file (RMID), whose chunks have sizes of the other byte order, made even."""
    if content[:4] != b"RIFF" or content[8:12] != b"RMID":
        return content
    place = 12
    while place + 8 <= len(content):
        kind, size = struct.unpack_from("<4sI", content, place)
        if kind == b"data":
            return content[place + 8 : place + 8 + size]
        place += 8 + size + size % 2
    return content


def _chunks(content: bytes, name: str) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the place, kind and data of each chunk; what follows the last track and is no chunk is passed over."""
    place, tracks = 0, 0
    while place + 8 <= len(content):
        kind, size = struct.unpack_from(">4sI", content, place)
        data = content[place + 8 : place + 8 + size]
        if tracks and (kind == b"MThd" or (len(data) < size and kind != b"MTrk")):
            return
        yield place, kind, data
        if len(data) < size:
            raise ValueError(
                f"{name}: truncated: expected a chunk of {size:,} bytes, got {len(data):,}: download it again"
            )
        tracks += kind == b"MTrk"
        place += 8 + size


def _notes_and_tempi(
    tracks: Iterable[Iterable[tuple[int, int, bytes]]],
) -> tuple[npt.NDArray[np.int64], list[tuple[int, int]]]:
    """Return the (first tick, last tick, number) of all notes, (N, 3), and the (tick, microseconds) of all tempi."""
    notes, tempi = list[tuple[int, int, int]](), list[tuple[int, int]]()
    for track in tracks:
        down, tick = dict[tuple[int, int], int](), 0
        for tick, status, data in track:
            key = status & 0x0F, data[0] if data else 0
            if status == _META:
                tempi += [(tick, int.from_bytes(data[1:]))] * (data[0] == _TEMPO)
            elif status & 0xE0 == _NOTE_OFF and key[0] != _DRUMS:
                notes += [(down.pop(key), tick, key[1])] if key in down else []
                if status >= _NOTE_ON and data[1]:
                    down[key] = tick
        notes += [(began, tick, number) for (_, number), began in down.items()]
    return np.array(notes, np.int64).reshape(-1, 3), tempi


def _events(track: bytes, name: str) -> Iterator[tuple[int, int, bytes]]:
    """Yield the tick, status and data of each event of a track; the data of a meta event begin with its kind."""
    tick = place = channel_status = 0
    try:
        while place < len(track):
            wait, place = _number(track, place)
            tick += wait
            status = track[place]
            place += status >> 7
            if status == _META or status in _SYSTEM:
                kind = track[place : place + 1] if status == _META else b""
                size, place = _number(track, place + len(kind))
                if kind == bytes((_END,)):
                    return
                data, place = kind + track[place : place + size], place + size
            else:
                status = channel_status = status if status >> 7 else channel_status
                size = 1 if status & 0xE0 == 0xC0 else 2
                data, place = track[place : place + size], place + size
                if not 0x80 <= status < 0xF0 or max(data) >= 0x80:
                    raise IndexError
            if place > len(track):
                raise IndexError
            yield tick, status, data
    except (IndexError, ValueError):
        raise ValueError(f"{name}: damaged at byte {place:,} of a track: download it again") from None


def _number(track: bytes, place: int) -> tuple[int, int]:
    """Read a number as `_variable_length` writes it, and return the place after it."""
    value = 0
    for end in range(place + 1, place + 5):
        value = value << 7 | track[end - 1] & 0x7F
        if track[end - 1] < 0x80:
            return value, end
    raise IndexError


@dataclass(frozen=True)
class Rolls:
    """Piano rolls one after another."""

    frames: npt.NDArray[np.uint8]  # (T, 11), the 88 keys of each frame as bits
    offsets: Ids  # (N + 1,) the first frame of each, and T

    @classmethod
    def load(cls, store: Store, part: str) -> Self:
        frames = store.array(f"{part}.frames", "u1", (None, KEYS // 8))
        return cls(frames, store.offsets(f"{part}.pieces", len(frames), shortest=1))

    @property
    def lengths(self) -> Ids:
        return np.diff(self.offsets)

    def cut(self, longest: int) -> "Rolls":
        """Cut each roll into parts of at most `longest` frames."""
        starts = zip(self.offsets, self.offsets[1:], strict=False)
        return Rolls(
            self.frames, np.concatenate([*(np.arange(*bounds, longest) for bounds in starts), self.offsets[-1:]])
        )

    def roll(self, number: int) -> Roll:
        """Return one roll, (T, 88)."""
        return np.unpackbits(self.frames[self.offsets[number] : self.offsets[number + 1]], axis=1).astype(np.bool_)

    def batch(self, numbers: Ids, semitones: Ids | None = None) -> Batch:
        """Return some of the rolls, each moved by a number of semitones as far as the keyboard allows."""
        rolls = [self.roll(number) for number in numbers.tolist()]
        if semitones is not None:
            rolls = [_moved(roll, by) for roll, by in zip(rolls, semitones.tolist(), strict=True)]
        lengths = torch.tensor([len(roll) for roll in rolls])
        x = torch.zeros(len(rolls), int(lengths.max()), KEYS)
        for row, roll in zip(x, rolls, strict=True):
            row[: len(roll)] = torch.from_numpy(roll)
        return Batch(x, lengths=lengths)


def _moved(roll: Roll, semitones: int) -> Roll:
    keys = np.flatnonzero(roll.any(0))
    if not len(keys):
        return roll
    return np.roll(roll, max(min(semitones, KEYS - 1 - int(keys[-1])), -int(keys[0])), axis=1)


def music_batches(
    rolls: Rolls, batch_size: int, longest: int, semitones: int, seed: int, shard: tuple[int, int]
) -> Batches:
    """Batches of shuffled parts of pieces, similar lengths together, each moved by up to so many `semitones`."""
    parts = rolls.cut(longest)
    lengths = parts.lengths
    order = Shuffled(len(lengths), batch_size, seed, shard, name="pieces", sort=Shuffled.by_length(lengths), pool=_POOL)

    def batch(step: int, rows: Ids) -> Batch:
        moves = np.random.default_rng([seed, 1, step]).integers(-semitones, semitones + 1, len(rows))
        return parts.batch(order.own(rows), order.own(moves))

    return Batches(order, batch)


def music_evaluation(rolls: Rolls, batch_size: int) -> Iterator[Batch]:
    """Every held-out piece once, in parts of at most 4,096 frames."""
    parts = rolls.cut(_LONGEST_HELD_OUT)
    order = np.argsort(parts.lengths, kind="stable")
    return map(parts.batch, in_order(len(order), batch_size, order))


def read_piece(file: Member | HeldRoll, frames_per_quarter: int) -> Piece:
    """Read the notes of a MIDI file, or of a piano roll in memory, whose frames are those that are wanted."""
    if isinstance(file, HeldRoll):
        return Piece(file.roll, _QUARTERS_PER_MINUTE, 0)
    with file.open() as content:
        data = content.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"{file.label}: expected a MIDI file of at most {LARGEST >> 20} MiB, got more")
    return read_midi(data, file.label, frames_per_quarter)


def prepare_music(
    source: str | Path | HeldRolls,
    directory: str | Path,
    *,
    frames_per_quarter: int,
    validation: str | Path | None,
    validation_fraction: float,
    skip_bad: bool,
    seed: int,
) -> dict[str, Any]:
    """Write piano rolls of MIDI files; of ten files or more some are held out whole, else the end of each."""
    skipped: list[dict[str, str]] = []
    beyond = 0

    def read_all(files: Sequence[Member | HeldRoll]) -> list[tuple[npt.NDArray[np.uint8], float]]:
        """Return the rolls and their tempi."""
        nonlocal beyond
        rolls, read = [], partial(read_piece, frames_per_quarter=frames_per_quarter)
        for _, piece in read_each(files, read, skipped, skip_bad=skip_bad):
            rolls.append((np.packbits(piece.roll, axis=1), piece.quarters_per_minute))
            beyond += piece.beyond
        return rolls

    collection = MidiFiles(source)
    train, valid = read_all(collection.part("train")), list[tuple[npt.NDArray[np.uint8], float]]()
    held_out = None if validation is None else MidiFiles(validation)
    others = collection.part("valid") if held_out is None else held_out.files
    if others:
        valid = read_all(others)
    elif len(train) >= FILES_TO_HOLD_OUT_WHOLE:
        train, valid = split_rows(train, validation_fraction, seed)
    else:
        ends = [round(len(roll) * (1 - validation_fraction)) for roll, _ in train]
        valid = [(roll[end:], tempo) for (roll, tempo), end in zip(train, ends, strict=True) if end < len(roll)]
        train = [(roll[:end], tempo) for (roll, tempo), end in zip(train, ends, strict=True) if end]
    quarters_per_minute = round(float(np.median([tempo for _, tempo in train] or [0])))
    parts = {part: [roll for roll, _ in pieces] for part, pieces in (("train", train), ("valid", valid))}
    if not all(parts.values()):
        raise ValueError(f"{source}: too little music to train on and to hold out: add files")
    with StoreWriter(directory, MANIFEST) as writer:
        for part, rolls in parts.items():
            writer.array(f"{part}.frames", np.concatenate(rolls))
            writer.array(f"{part}.pieces", np.cumsum([0, *map(len, rolls)], dtype=np.int64))
        manifest = {
            "source": collection.fingerprint(),
            "validation": (held_out or collection).fingerprint() if others else None,
            "quarters_per_minute": quarters_per_minute,
            "beyond": beyond,
            "skipped": skipped,
            **{part: {"pieces": len(rolls), "frames": sum(map(len, rolls))} for part, rolls in parts.items()},
        }
        writer.finish(manifest)
    return manifest


def open_music(directory: str | Path) -> dict[str, Rolls]:
    """Open a folder written by `prepare_music`, its parts train and valid; raises the errors of `Store`."""
    store = Store(directory, MANIFEST, "music")
    return {part: Rolls.load(store, part) for part in ("train", "valid")}
