"""Piano rolls in memory, which are read as MIDI files are."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule_app.readers.origin import DataSource, Origin, digest_of

LOWEST, KEYS = 21, 88  # the lowest key of a piano, A0, in MIDI's numbers, and the number of its keys
Roll = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class HeldRoll:
    """One piano roll in memory."""

    name: str  # its index
    label: str  # the name for errors
    roll: Roll  # (T, 88) which keys are down

    def skipped(self, error: ValueError) -> dict[str, str]:
        """Return the record of a bad roll."""
        return {"file": self.name, "reason": str(error)}


class HeldRolls(DataSource):
    """Piano rolls in memory, each (T, 88)."""

    files: list[HeldRoll]

    def __init__(self, origin: Origin, rolls: Iterable[Any]):
        self.origin = origin
        self.files = [self._roll(index, roll) for index, roll in enumerate(rolls)]

    def part(self, name: str) -> list[HeldRoll]:
        """Return the rolls of a part of the data: all of them are to train on."""
        return self.files if name == "train" else []

    def _roll(self, index: int, roll: Any) -> HeldRoll:
        where = self.origin.at(index)
        if np.shape(roll)[1:] != (KEYS,):
            remedy = f"of the 128 notes of MIDI pass roll[:, {LOWEST}:{LOWEST + KEYS}]"
            raise ValueError(f"{where}: expected piano rolls (T, {KEYS}), got {np.shape(roll)}: {remedy}")
        if not np.isin(roll, (0, 1)).all():
            raise ValueError(f"{where}: expected piano rolls of 0 and 1, got other numbers: pass roll > 0")
        if not np.any(roll):
            raise ValueError(f"{where}: contains no notes: remove it")
        return HeldRoll(str(index), where, np.asarray(roll).astype(np.bool_))

    def fingerprint(self) -> dict[str, Any]:
        return digest_of(self.origin, (np.packbits(file.roll, axis=1).tobytes() for file in self.files))
