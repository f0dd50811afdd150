"""The files that prepared sounds consist of, while they are written."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from chainrule.data.corpus import token_dtype
from chainrule.data.sounds.collection import SoundFile
from chainrule.data.sounds.labels import Labelling
from chainrule.data.sounds.levels import SoundLevels
from chainrule.data.sounds.sound_file import read_sound


class ClipWriter:
    """The files of one part while they are written."""

    def __init__(self, directory: Path, name: str, levels: int):
        self.clips = self.samples = 0
        self._dtype = np.dtype(token_dtype(levels)).newbyteorder("<")
        self._paths = [directory / f"{name}.{kind}" for kind in ("tokens", "clips", "labels")]
        self._files: list[BinaryIO] = []

    def __enter__(self) -> "ClipWriter":
        self._files = [path.open("wb") for path in self._paths]
        self._files[1].write(np.zeros(1, dtype="<i8").tobytes())
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files:
            file.close()

    def add(self, codes: "np.ndarray[Any, Any]") -> None:
        """Samples of the clip that is being written."""
        self._files[0].write(codes.astype(self._dtype).tobytes())
        self.samples += len(codes)

    def end(self, label: int | None) -> None:
        """The clip is whole."""
        self.clips += 1
        self._files[1].write(np.array([self.samples], dtype="<i8").tobytes())
        if label is not None:
            self._files[2].write(np.array([label], dtype="<i8").tobytes())

    def back_to(self, samples: int) -> None:
        """Forget what was added since there were so many: a file turned out to be damaged."""
        self.samples = samples
        self._files[0].truncate(samples * self._dtype.itemsize)
        self._files[0].seek(0, 2)


@dataclass
class Writing:
    """How samples are written, and what was seen of them.

    Attributes:
        levels, rate: what samples become.
        labelling, labels: of each clip; `None` and none where there are no labels.
        skipped: files that could not be read, with the reason; filled where `skip_bad`.
        silent: clips of one amplitude.
        clipped: samples beyond [−1, 1].
    """

    levels: SoundLevels
    rate: int
    labelling: Labelling | None
    labels: list[str]
    skipped: list[dict[str, str]]
    silent: int = 0
    clipped: int = 0
    skip_bad: bool = field(default=False, kw_only=True)

    def whole(self, files: Iterable[SoundFile], part: ClipWriter) -> None:
        """Write files into one part, each a clip."""
        for file in files:
            self.cut(file, None, part, part)

    def cut(self, file: SoundFile, samples: int | None, first: ClipWriter, rest: ClipWriter) -> None:
        """Write the first so many samples into one part, and the rest into another; all into the first for None."""
        label, before, clips = self._label(file), (first.samples, rest.samples), 0
        read, low, high, clipped = 0, np.inf, -np.inf, 0
        try:
            for block in read_sound(file, self.rate):
                low, high = min(low, block.min()), max(high, block.max())
                clipped += int((np.abs(block) > 1).sum())
                codes = self.levels.encode(block)
                left = len(codes) if samples is None else max(samples - read, 0)
                first.add(codes[:left])
                if left < len(codes):
                    if not clips:
                        first.end(label)
                        clips = 1
                    rest.add(codes[left:])
                read += len(codes)
        except ValueError as error:
            if not self.skip_bad or clips:
                raise
            first.back_to(before[0])
            self.skipped.append({"file": file.name, "reason": str(error)})
            return
        if read:
            (rest if clips else first).end(label)
            self.silent += int(low == high) * (1 + clips)
            self.clipped += clipped

    def _label(self, file: SoundFile) -> int | None:
        if self.labelling is None:
            return None
        label = self.labelling(file.name)
        if label not in self.labels:
            raise ValueError(
                f"{file.label}: the label {label!r} is none of those to train on: {', '.join(self.labels)}"
            )
        return self.labels.index(label)
