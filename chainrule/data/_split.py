"""Choose the rows to hold out: a share drawn from a seed, or one row in every n."""

from collections import Counter
from collections.abc import Hashable, Sequence, Set

import numpy as np
import numpy.typing as npt

Flags = npt.NDArray[np.bool_]


def check_fraction(name: str, fraction: float) -> None:
    """Raise ValueError unless a fraction leaves at least half of the rows to train on."""
    if not 0 < fraction <= 0.5:
        raise ValueError(f"{name}: expected above 0 and at most 0.5, got {fraction}")


def hold_out(count: int, fraction: float, seed: int, labels: Sequence[Set[Hashable]] | None = None) -> Flags:
    """Draw the rows to hold out, at least one; the last row of each label stays in training.

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

    >>> draw = OneInEvery(3, seed=0)
    >>> draw.take(4).tolist(), draw.take(2).tolist()
    ([False, False, True, False], [True, False])
    """

    def __init__(self, every: int | None, seed: int):
        self._every, self._random, self._row = every, np.random.default_rng(seed), 0
        self._chosen = np.zeros(0, dtype=np.int64)  # the place held out of each group, from `self._first` on
        self._first = 0

    def take(self, count: int) -> Flags:
        """Return whether each of the next `count` rows is held out."""
        if self._every is None or not count:
            return np.zeros(count, dtype=np.bool_)
        group, index = np.divmod(np.arange(self._row, self._row + count), self._every)
        first, last = int(group[0]), int(group[-1])
        self._row += count
        previous = self._chosen[first - self._first :]
        drawn = self._random.integers(self._every, size=last + 1 - first - len(previous))
        self._chosen, self._first = np.concatenate([previous, drawn]), first
        return np.asarray(self._chosen[group - first] == index)
