"""Draw the rows to hold out for validation."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence, Set
from fractions import Fraction
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Flags = npt.NDArray[np.bool_]


def hold_out(count: int, fraction: float, seed: int, labels: Sequence[Set[Hashable]] | None = None) -> Flags:
    """Draw the rows to hold out, at least one; see `keep_labels`.

    >>> hold_out(4, 0.5, seed=0).tolist(), hold_out(4, 0.5, seed=0, labels=[{"a"}, {"a"}, {"b"}, {"c"}]).tolist()
    ([True, False, True, False], [True, False, False, False])
    """
    chosen = np.zeros(count, dtype=np.bool_)
    order = np.random.default_rng(seed).permutation(count)
    chosen[order[: max(1, round(count * fraction))]] = True
    if labels is None:
        return chosen
    chosen = keep_labels(chosen, labels, order.tolist())
    if not chosen.any():  # of few rows: the first whose labels others have
        counts = Counter(label for own in labels for label in own)
        chosen[[row for row in order.tolist() if all(counts[label] > 1 for label in labels[row])][:1]] = True
    return chosen


def keep_labels(held_out: Flags, labels: Sequence[Set[Hashable]], order: Iterable[int] | None = None) -> Flags:
    """Return which rows are held out if the first with a label that training lacks stays in training, in some order.

    Other labels of a row that stays held out change nothing: the training rows do not depend on them.

    >>> keep_labels(np.array([False, True, True, True]), [{"a"}, {"a"}, {"b"}, {"b"}]).tolist()
    [False, True, False, True]
    """
    chosen, rows = held_out.copy(), range(len(held_out)) if order is None else order
    seen = {label for row, own in enumerate(labels) if not held_out[row] for label in own}
    for row in rows:
        if chosen[row] and not seen >= labels[row]:
            chosen[row] = False
            seen |= labels[row]
    return chosen


Row = TypeVar("Row")


def split_rows(
    rows: Sequence[Row], fraction: float, seed: int, labels: Sequence[Set[Hashable]] | None = None
) -> tuple[list[Row], list[Row]]:
    """Return the rows to train on and those that `hold_out` draws, both in order."""
    held_out = hold_out(len(rows), fraction, seed, labels)
    train, valid = ([row for row, held in zip(rows, held_out, strict=True) if held == part] for part in (False, True))
    return train, valid


_FINEST = 10**6  # denominator of the fraction of rows to hold out


class OneInEvery:
    """Hold out a fraction of the rows: one of every 1 / fraction in succession, drawn from a seed.

    The rows come in pieces of any size. Where 1 / fraction is not whole, groups of the two sizes next to it take turns.

    >>> draw = OneInEvery(1 / 3, seed=0)
    >>> draw.take(4).tolist(), draw.take(2).tolist()
    ([False, False, True, False], [True, False])
    """

    def __init__(self, fraction: float | None, seed: int):
        share = Fraction(fraction or 0).limit_denominator(_FINEST)
        self._share = share or Fraction(1, round(1 / fraction)) if fraction else None
        self._random, self._row = np.random.default_rng(seed), 0
        self._chosen = np.zeros(0, dtype=np.int64)  # the row held out of each group, from `self._first` on
        self._first = 0

    def take(self, count: int) -> Flags:
        """Return whether each of the next `count` rows is held out."""
        if self._share is None or not count:
            return np.zeros(count, dtype=np.bool_)
        rows = np.arange(self._row, self._row + count)
        group = rows * self._share.numerator // self._share.denominator
        first, last = int(group[0]), int(group[-1])
        self._row += count
        previous = self._chosen[first - self._first :]
        groups = np.arange(first + len(previous), last + 2)
        begins = -(-groups * self._share.denominator // self._share.numerator)
        drawn = begins[:-1] + self._random.integers(np.diff(begins))
        self._chosen, self._first = np.concatenate([previous, drawn]), first
        return np.asarray(self._chosen[group - first] == rows)
