"""Choose what to train on and what to hold out: the end of a text, rows drawn from a seed, or one row in every n."""

from collections import Counter
from collections.abc import Generator, Hashable, Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chainrule.data.text import CHUNK_BYTES, Progress, Source, decode_chunks, no_progress, read_chunks

Flags = npt.NDArray[np.bool_]


def check_fraction(name: str, fraction: float) -> None:
    """Raise ValueError unless a fraction leaves at least half of the rows to train on."""
    if not 0 < fraction <= 0.5:
        raise ValueError(f"{name}: expected above 0 and at most 0.5, got {fraction}")


def hold_out(count: int, fraction: float, seed: int, labels: Sequence[Set[Hashable]] | None = None) -> Flags:
    """Draw the rows to hold out, at least one.

    Args:
        count: number of rows N.
        fraction: share of the rows to hold out.
        seed: of the draw.
        labels: labels of each row; a row that has the last of some label stays in training.

    Returns:
        (N,) whether each row is held out.

    >>> hold_out(4, 0.5, seed=0).tolist(), hold_out(4, 0.5, seed=0, labels=[{"a"}, {"a"}, {"b"}, {"c"}]).tolist()
    ([True, False, True, False], [True, False, False, False])
    """
    chosen = np.zeros(count, dtype=np.bool_)
    wanted, order = max(1, round(count * fraction)), np.random.default_rng(seed).permutation(count)
    if labels is None:
        chosen[order[:wanted]] = True
        return chosen
    left = Counter(label for own in labels for label in own)
    for row in order.tolist():
        if wanted and all(left[label] > 1 for label in labels[row]):
            chosen[row], wanted = True, wanted - 1
            left.subtract(labels[row])
    return chosen


class OneInEvery:
    """Hold out one row of every `every` in succession, drawn from a seed; the rows come in pieces of any size.

    Args:
        every: `None` holds out nothing.
        seed: of the draws.

    >>> draw = OneInEvery(3, seed=0)
    >>> draw.take(4).tolist(), draw.take(2).tolist()
    ([False, False, True, False], [True, False])
    """

    def __init__(self, every: int | None, seed: int):
        self._every, self._random, self._row = every, np.random.default_rng(seed), 0
        self._chosen = np.zeros(0, dtype=np.int64)  # the place held out of each group, from `self._first` on
        self._first = 0

    def take(self, count: int) -> Flags:
        """Whether each of the next `count` rows is held out."""
        if self._every is None or not count:
            return np.zeros(count, dtype=np.bool_)
        group, place = np.divmod(np.arange(self._row, self._row + count), self._every)
        first, last = int(group[0]), int(group[-1])
        self._row += count
        known = self._chosen[first - self._first :]
        drawn = self._random.integers(self._every, size=last + 1 - first - len(known))
        self._chosen, self._first = np.concatenate([known, drawn]), first
        return np.asarray(self._chosen[group - first] == place)


@dataclass(frozen=True)
class Part:
    """The bytes of `source` from `start` up to `stop`."""

    source: Source
    start: int
    stop: int

    def text(
        self, *, strict: bool = True, stage: str = "", progress: Progress = no_progress
    ) -> Generator[str, None, None]:
        """The text of this part in chunks; errors tell the place in the whole source."""
        yield from decode_chunks(
            self._bytes(stage, progress),
            name=self.source.label,
            strict=strict,
            offset=self.start,
            lines_before=self._lines_before,
        )

    def _bytes(self, stage: str, progress: Progress) -> Iterator[bytes]:
        done, total = 0, self.stop - self.start
        with self.source.open() as file:
            file.seek(self.start)
            for chunk in read_chunks(file, total):
                yield chunk
                done += len(chunk)
                progress(stage, done, total)

    def _lines_before(self) -> int:
        with self.source.open() as file:
            return sum(chunk.count(b"\n") for chunk in read_chunks(file, self.start))


def split_by_position(source: Source, validation_fraction: float, *, at_line_end: bool) -> tuple[Part, Part]:
    """The beginning of a source to train on, and its last `validation_fraction`, cut at the nearest line end.

    A text whose nearest line end would change the size of the held-out part by more than half is cut inside a line,
    between two characters, unless `at_line_end` asks for whole lines.

    Raises:
        ValueError: there are not two lines (or characters) to share out.
    """
    target = min(max(round(source.size * (1 - validation_fraction)), 1), source.size - 1)
    before, after = _line_end_before(source, target), _line_end_after(source, target)
    ends = [end for end in (before, after) if 0 < end < source.size]
    cut = min(ends, key=lambda end: abs(end - target), default=0)
    if not at_line_end and (not cut or abs(cut - target) > (source.size - target) / 2):
        cut = _character_start(source, target)
    if not 0 < cut < source.size:
        needed = "two lines" if at_line_end else "two characters"
        raise ValueError(
            f"{source.label}: expected at least {needed}, one to train on and one to hold out, got {source.size} bytes "
            f"without: give more text"
        )
    return Part(source, 0, cut), Part(source, cut, source.size)


def _line_end_after(source: Source, position: int) -> int:
    """The first position from `position` on that follows a newline; without one, the end of the source."""
    with source.open() as file:
        file.seek(position - 1)
        for chunk in read_chunks(file):
            if (found := chunk.find(b"\n")) >= 0:
                return position + found
            position += len(chunk)
    return source.size


def _line_end_before(source: Source, position: int) -> int:
    """The last position up to `position` that follows a newline; without one, 0."""
    with source.open() as file:
        while position > 0:
            start = max(position - CHUNK_BYTES, 0)
            file.seek(start)
            if (found := file.read(position - start).rfind(b"\n")) >= 0:
                return start + found + 1
            position = start
    return 0


def _character_start(source: Source, position: int) -> int:
    """The place next to `position` where a UTF-8 character begins; in other bytes than UTF-8, `position` itself."""
    with source.open() as file:
        first = max(position - 3, 0)
        file.seek(first)
        window = file.read(position + 4 - first)  # wide enough to hold the beginning of some character
    starts = [first + place for place, byte in enumerate(window) if byte & 0xC0 != 0x80]
    if not starts:
        return position
    return min((start for start in starts if start > 0), key=lambda start: abs(start - position), default=0)
