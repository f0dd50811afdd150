"""Encode sound files as levels of a model and the finer bits of their samples, and decode them byte for byte."""

import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule.coding._batches import CodedBatch, RowLayout
from chainrule.coding._container import unpacked
from chainrule.coding._range_coder import read_even, write_even
from chainrule_app.readers.sounds.prepare import Labelling, label_number
from chainrule_app.tasks.capabilities import EncodedFiles, FileCodec

if TYPE_CHECKING:
    from chainrule.data._levels import SoundLevels

ROWS = 64  # coded side by side
SHORTEST_PIECE = 1 << 13  # samples; a longer sound is cut, and each piece begins without what went before
SAMPLES_OF_A_PART = 1 << 16
_PCM = 1
_STORED = {8: ("u1", 128), 16: ("<i2", 32768)}  # of so many bits: the type, and the distance from 0 to the loudest
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Samples:
    """Samples of a file, at bytes `start` to `stop`; none in a file that is stored as it is."""

    start: int
    stop: int
    bits: int
    size: int

    @property
    def count(self) -> int:
        return (self.stop - self.start) * 8 // self.bits


class SoundCodec(FileCodec):
    r"""Codec of uncompressed wav files with one channel of 8 or 16 bits at the run's rate; others are stored."""

    def __init__(self, levels: "SoundLevels", rate: int, labels: list[str], labelling: Labelling):
        self.levels, self.rate, self.labels, self.labelling = levels, rate, labels, labelling
        self._tables = {bits: _Table(levels, bits) for bits in _STORED}

    def express(self, files: Mapping[str, bytes]) -> EncodedFiles:
        file_samples = {name: _find_samples(content, self.rate) for name, content in files.items()}
        sampled = sum(part.stop - part.start for part in file_samples.values())
        if not sampled or 2 * sampled < sum(map(len, files.values())):
            raise ValueError(f"no wav files of one channel with 8 or 16 bits at {self.rate} Hz, uncompressed")
        layout = {
            "files": [[part.start, part.stop, part.bits, part.size] for part in file_samples.values()],
            "labels": [self._label(name, part) for name, part in file_samples.items()],
        }
        beside, levels, finer = b"", [], []
        for content, part in zip(files.values(), file_samples.values(), strict=True):
            beside += content[: part.start] + content[part.stop :]
            levels.append(self._tables[part.bits].split(content[part.start : part.stop]))
            finer.append(self._tables[part.bits].counts(levels[-1][0]))
        rest = write_even(*(np.concatenate(parts) for parts in ([ranks for _, ranks in levels], finer)))
        packed = lzma.compress(beside, lzma.FORMAT_ALONE, preset=9)
        rows, samples = (
            self.lay_out(layout, [level for level, _ in levels]),
            sum(part.count for part in file_samples.values()),
        )
        note = (
            f"{8 * len(rest) / samples:.4f} bits per sample are finer than the model's levels and stored as they are"
            if rest
            else ""
        )
        side = len(packed).to_bytes(4, "little") + packed + rest
        return EncodedFiles(layout, side, rows, samples, "sample", note=note)

    def _label(self, name: str, part: _Samples) -> int:
        return label_number(self.labels, self.labelling(name)) if self.labels and part.count else 0

    def lay_out(self, layout: dict[str, Any], elements: Sequence[Numbers] | None = None) -> RowLayout:
        order = _pieces(layout)
        rows = min(len(order), ROWS)
        batches = []
        for start in range(0, len(order), rows):
            chosen = order[start : start + rows]
            lengths = np.zeros(rows, dtype=np.int64)
            lengths[: len(chosen)] = [piece.length for piece in chosen]
            x = None
            if elements is not None:
                x = torch.zeros(rows, int(lengths.max()), dtype=torch.long)
                for row, piece in zip(x, chosen, strict=False):
                    row[: piece.length] = torch.from_numpy(elements[piece.file][piece.start :][: piece.length])
            labels = [layout["labels"][piece.file] for piece in chosen] + [0] * (rows - len(chosen))
            context = torch.tensor(labels) if self.labels else None
            batches.append(CodedBatch(x, lengths, context))
        total = sum(piece.length for piece in order)
        return RowLayout(rows, order[0].length, batches, min(max(total // SAMPLES_OF_A_PART, 1), rows))

    def restore(
        self, layout: dict[str, Any], side: bytes | None, elements: Sequence[Tensor], lost: set[int], most: int
    ) -> bytes:
        """Decode the files: silence for lost rows, zeros for lost headers."""
        file_samples = [_Samples(*part) for part in layout["files"]]
        levels = [np.full(part.count, self.levels.silence) for part in file_samples]
        order = _pieces(layout)
        rows = min(len(order), ROWS)
        for number, piece in enumerate(order):
            if number % rows not in lost:
                decoded = elements[number // rows][number % rows, : piece.length].numpy()
                levels[piece.file][piece.start :][: piece.length] = decoded
        counts = [self._tables[part.bits].counts(level) for part, level in zip(file_samples, levels, strict=True)]
        beside = bytes(sum(part.size - part.stop + part.start for part in file_samples))
        ranks = np.concatenate(counts) // 2
        if side is not None:
            size = int.from_bytes(side[:4], "little")
            beside = unpacked(side[4 : 4 + size], most)
            if not lost:
                ranks = read_even(side[4 + size :], np.concatenate(counts))
        contents, taken, index = [], 0, 0
        for part, level in zip(file_samples, levels, strict=True):
            stored = self._tables[part.bits].join(level, ranks[taken : taken + part.count])
            tail = index + part.start + part.size - part.stop
            contents += [beside[index : index + part.start], stored, beside[index + part.start : tail]]
            taken, index = taken + part.count, tail
        return b"".join(contents)


class _Table:
    """Samples of a bit depth, sorted by level."""

    def __init__(self, levels: "SoundLevels", bits: int):
        self._type, self._zero = _STORED[bits]
        amplitudes = np.arange(-self._zero, self._zero, dtype=np.float32) / np.float32(self._zero)
        self._level = levels.encode(amplitudes)  # rises with the amplitude
        self._offset = self._zero if self._type != "u1" else 0
        self._first = np.searchsorted(self._level, np.arange(levels.levels))
        self._count = np.bincount(self._level, minlength=levels.levels)

    def split(self, data: bytes) -> tuple[Numbers, Numbers]:
        """Return the level of each sample, and its rank among the samples of that level."""
        codes = np.frombuffer(data, self._type).astype(np.int64) + self._offset
        levels = self._level[codes]
        return levels, codes - self._first[levels]

    def counts(self, levels: Numbers) -> Numbers:
        return self._count[levels]

    def join(self, levels: Numbers, ranks: Numbers) -> bytes:
        """Invert `split`."""
        return (self._first[levels] + ranks - self._offset).astype(self._type).tobytes()


@dataclass(frozen=True)
class _Piece:
    file: int
    start: int
    length: int


def _pieces(layout: dict[str, Any]) -> list[_Piece]:
    """Cut the files into independent pieces, longest first."""
    counts = [_Samples(*part).count for part in layout["files"]]
    most = max(-(-sum(counts) // ROWS), SHORTEST_PIECE)
    pieces = [
        _Piece(file, start, min(most, count - start))
        for file, count in enumerate(counts)
        for start in range(0, count, most)
    ]
    return sorted(pieces, key=lambda piece: -piece.length)


def _find_samples(content: bytes, rate: int) -> _Samples:
    """Find the samples of a wav file that the codec supports."""
    kind: tuple[int, ...] = ()
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        for name, start, stop in _chunks(content):
            if name == b"fmt " and stop - start >= 16:
                numbers = np.frombuffer(content[start : start + 16], "<u2").tolist()
                kind = (numbers[0], numbers[1], numbers[2] + (numbers[3] << 16), numbers[7])
            if name == b"data" and kind in [(_PCM, 1, rate, bits) for bits in _STORED]:
                bits = kind[3]
                return _Samples(start, start + (stop - start) // (bits // 8) * (bits // 8), bits, len(content))
    return _Samples(0, 0, 8, len(content))


def _chunks(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the name of each part of a wav file, and its start and stop."""
    start = 12
    while start + 8 <= len(content):
        size = int.from_bytes(content[start + 4 : start + 8], "little")
        yield content[start : start + 4], start + 8, min(start + 8 + size, len(content))
        start += 8 + size + size % 2
