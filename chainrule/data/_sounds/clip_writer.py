"""Write clips of sound into a prepared folder."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from chainrule.data._sounds.labels import Labelling
from chainrule.data._sounds.levels import SoundLevels
from chainrule.data._sounds.sound_file import SoundFile, read_sound
from chainrule.data._store import StoreWriter
from chainrule.data._vocabulary import token_dtype


class ClipWriter:
    """The arrays of one part while they are written: samples, where clips begin, and labels.

    Attributes:
        codes: all samples, those of the present clip last.
    """

    def __init__(self, writer: StoreWriter, part: str, levels: int):
        self.codes = writer.growing(f"{part}.tokens", token_dtype(levels))
        self._clips, self._labels = (writer.growing(f"{part}.{name}", "i8") for name in ("clips", "labels"))
        self._clips.append([0])

    @property
    def counts(self) -> dict[str, int]:
        """Whole clips and samples written so far."""
        return {"clips": self._clips.rows - 1, "samples": self.codes.rows}

    def end(self, label: int | None) -> None:
        """End the present clip."""
        self._clips.append([self.codes.rows])
        if label is not None:
            self._labels.append([label])


@dataclass
class Writing:
    """Settings of writing samples, and counts of the samples written.

    Attributes:
        levels, rate: of the samples written.
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
        """Write the first `samples` samples into one part and the rest into another; all into the first for None."""
        label, before, clips = self._label(file), first.codes.rows, 0
        read, low, high, clipped = 0, np.inf, -np.inf, 0
        try:
            for block in read_sound(file, self.rate):
                low, high = min(low, block.min()), max(high, block.max())
                clipped += int((np.abs(block) > 1).sum())
                codes = self.levels.encode(block)
                left = len(codes) if samples is None else max(samples - read, 0)
                first.codes.append(codes[:left])
                if left < len(codes):
                    if not clips:
                        first.end(label)
                        clips = 1
                    rest.codes.append(codes[left:])
                read += len(codes)
        except ValueError as error:
            if not self.skip_bad or clips:
                raise
            first.codes.truncate(before)
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
                f"{file.label}: the label {label!r} is not among those to train on: {', '.join(self.labels)}"
            )
        return self.labels.index(label)
