"""Pieces of music from MIDI files: frames of 88 keys on disk, and batches of them.

music.json                       counts, tempo, fingerprints
train.frames, valid.frames       the keys of each frame, 11 bytes of 8
train.pieces, valid.pieces       where pieces begin
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data._batches import Batch, Batches, Shuffled, by_length, in_order, split_rows
from chainrule.data._kinds import MIDI
from chainrule.data._members import LARGEST, Member, Members, read_each
from chainrule.data._midi import KEYS, Piece, read_midi
from chainrule.data._store import Store, StoreWriter
from chainrule.data._vocabulary import Ids

MANIFEST = "music.json"
FILES_TO_HOLD_OUT_WHOLE = 10
_POOL = 64  # batches whose pieces are sorted by length
_LONGEST_HELD_OUT = 4096  # frames of held-out music that are read in one pass
Roll = npt.NDArray[np.bool_]
MidiFiles = partial(Members, endings=MIDI, noun="MIDI file")


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
    order = Shuffled(len(lengths), batch_size, seed, shard, name="pieces", sort=by_length(lengths), pool=_POOL)

    def batch(step: int, rows: Ids) -> Batch:
        moves = np.random.default_rng([seed, 1, step]).integers(-semitones, semitones + 1, len(rows))
        return parts.batch(order.own(rows), order.own(moves))

    return Batches(order, batch)


def music_evaluation(rolls: Rolls, batch_size: int) -> Iterator[Batch]:
    """Every held-out piece once, in parts of at most 4,096 frames."""
    parts = rolls.cut(_LONGEST_HELD_OUT)
    order = np.argsort(parts.lengths, kind="stable")
    return map(parts.batch, in_order(len(order), batch_size, order))


def read_piece(file: Member, frames_per_quarter: int) -> Piece:
    with file.open() as content:
        data = content.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"{file.label}: expected a MIDI file of at most {LARGEST >> 20} MiB, got more")
    return read_midi(data, file.label, frames_per_quarter)


def prepare_music(
    source: str | Path,
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
    tempi: list[float] = []
    beyond = 0

    def read_all(files: Members) -> list[npt.NDArray[np.uint8]]:
        nonlocal beyond
        rolls, read = [], partial(read_piece, frames_per_quarter=frames_per_quarter)
        for _, piece in read_each(files.files, read, skipped, skip_bad=skip_bad):
            rolls.append(np.packbits(piece.roll, axis=1))
            tempi.append(piece.quarters_per_minute)
            beyond += piece.beyond
        return rolls

    collection = MidiFiles(source)
    parts = {"train": read_all(collection), "valid": list[npt.NDArray[np.uint8]]()}
    quarters_per_minute = round(float(np.median(tempi or [0])))
    held_out = None if validation is None else MidiFiles(validation)
    if held_out is not None:
        parts["valid"] = read_all(held_out)
    elif len(rolls := parts["train"]) >= FILES_TO_HOLD_OUT_WHOLE:
        parts["train"], parts["valid"] = split_rows(rolls, validation_fraction, seed)
    else:
        ends = [round(len(roll) * (1 - validation_fraction)) for roll in rolls]
        parts["train"] = [roll[:end] for roll, end in zip(rolls, ends, strict=True) if end]
        parts["valid"] = [roll[end:] for roll, end in zip(rolls, ends, strict=True) if end < len(roll)]
    if not all(parts.values()):
        raise ValueError(f"{source}: expected music to train on and to hold out, got too little: give more")
    with StoreWriter(directory, MANIFEST) as writer:
        for part, rolls in parts.items():
            writer.array(f"{part}.frames", np.concatenate(rolls))
            writer.array(f"{part}.pieces", np.cumsum([0, *map(len, rolls)], dtype=np.int64))
        manifest = {
            "source": collection.fingerprint(),
            "validation": None if held_out is None else held_out.fingerprint(),
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
