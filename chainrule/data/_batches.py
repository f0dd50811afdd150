"""Batches of rows, and the order in which training reads them: a pure function of (seed, step)."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule._ranges import check_batch_size, check_seed
from chainrule.state import State

Rows = npt.NDArray[np.int64]
Order = Callable[[Rows], Rows]
SMALL_BATCH = 1 << 14  # elements, padding counted: up to here batches of unequal rows cost little


class Shuffled:
    """The rows of each training step.

    An epoch reads every row once in a random order, except for the last (number of rows mod B), other rows in each
    epoch. Fewer rows than a batch are one batch. There is no state to save: to resume is to ask for the next step.

    With `sort`, the shuffled rows are taken in pools of `pool` batches, each pool is sorted and cut into batches, and
    these are shuffled: rows of similar length share a batch and need little padding.
    """

    def __init__(
        self,
        count: int,
        batch_size: int,  # rows of a batch, over all processes; at most N
        seed: int,  # at least 0
        shard: tuple[int, int],  # (rank, number of processes): this one gets the rows rank, rank + processes, ...
        *,
        name: str = "rows",  # of the rows, for errors
        sort: Order | None = None,  # gives the order in which rows (n,) are sorted, as numpy's `argsort` does
        pool: int = 1,
        within_pool: bool = False,  # whether batches are shuffled within their pool only
        stream: tuple[int, ...] = (),  # numbers that set these draws apart from others of the same seed
    ):
        check_batch_size(batch_size, shard)
        check_seed(seed)
        self.rank, self.world = shard
        self.batch_size = min(batch_size, count // self.world * self.world)
        if self.batch_size < 1:
            raise ValueError(f"{name}: expected at least {self.world}, one for each process, got {count}")
        self.steps_per_epoch = count // self.batch_size
        self._count, self._seed, self._stream = count, seed, stream
        self._sort, self._pool, self._within_pool = sort, pool * self.batch_size, within_pool
        self._epoch, self._order = -1, np.zeros((0, 0), dtype=np.int64)

    def at(self, step: int) -> Rows:
        """Return the rows of a step, (B,), of all processes; steps count from 0 over all epochs."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._batches(epoch)
        return self._order[index]

    def own(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Part of a step's rows, or of anything with one entry for each, that this process reads."""
        return rows[self.rank :: self.world]

    def _batches(self, epoch: int) -> Rows:
        """Return the rows of each step of an epoch, (steps, B)."""
        random = np.random.default_rng([self._seed, *self._stream, epoch])
        order = random.permutation(self._count)[: self.steps_per_epoch * self.batch_size]
        if self._sort is None:
            return order.reshape(-1, self.batch_size)
        pools = [order[first : first + self._pool] for first in range(0, len(order), self._pool)]
        sorted_pools = [rows[self._sort(rows)].reshape(-1, self.batch_size) for rows in pools]
        if self._within_pool:
            return np.concatenate([random.permutation(batches) for batches in sorted_pools])
        return random.permutation(np.concatenate(sorted_pools))


def by_length(lengths: npt.NDArray[np.integer]) -> Order:
    """Sort rows by their lengths (N,), equal ones in the order given."""
    return lambda rows: np.argsort(lengths[rows], kind="stable")


def in_order(
    count: int,
    batch_size: int,
    rows: npt.NDArray[np.integer] | None = None,
    lengths: npt.NDArray[np.integer] | None = None,
) -> Iterator[Rows]:
    """Yield every row once, or those in `rows`; with `lengths` (N,), batches end before padding outweighs elements."""
    chosen = np.arange(count) if rows is None else np.asarray(rows, dtype=np.int64)
    if lengths is None:
        return (chosen[start : start + batch_size] for start in range(0, len(chosen), batch_size))
    return _without_much_padding(chosen, batch_size, lengths[chosen].tolist())


def _without_much_padding(chosen: Rows, batch_size: int, lengths: list[int]) -> Iterator[Rows]:
    start = total = longest = 0
    for index, length in enumerate(lengths):
        padded_size = (index + 1 - start) * max(longest, length)
        if index - start == batch_size or (index > start and padded_size > max(2 * (total + length), SMALL_BATCH)):
            yield chosen[start:index]
            start, total, longest = index, 0, 0
        total, longest = total + length, max(longest, length)
    if start < len(chosen):
        yield chosen[start:]


@dataclass(frozen=True)
class Batch:
    """Elements of several sequences, a row each.

    Attributes:
        x: (B, T) elements that are modelled, such as int64 symbols.
        lengths: (B,) real elements of each row, where rows are whole sequences; `None` where they are chunks of a
            stream, or `whole`.
        previous: (B,) the element before each row of a stream; `None` where `x` begins its sequences.
        fresh: whether the state starts from the initial one; otherwise it carries over from the batch before.
        context: condition of each row, a tensor or a tree of tensors, batch first.
        whole: rows are whole, all of them real: images (B, C, H, W), labels (B,).
    """

    x: Tensor
    lengths: Tensor | None = None
    previous: Tensor | None = None
    fresh: bool = True
    context: State = None
    whole: bool = False


class Batches:
    """Batches of the rows to train on, a pure function of (seed, step).

    The functions that make them raise the errors of `Shuffled`.

    Args:
        order: the rows of each step.
        make: the batch of a step, of the rows (B,) that all processes read together.
    """

    def __init__(self, order: Shuffled, make: Callable[[int, Rows], Batch]):
        self._order, self._make = order, make
        self.steps_per_epoch = order.steps_per_epoch

    def at(self, step: int) -> Batch:
        """Return the batch of a step, counted from 0 over all epochs."""
        return self._make(step, self._order.at(step))


def padded(rows: Sequence[npt.NDArray[np.integer]], width: int) -> Tensor:
    """Rows of unequal length as int64 (B, width), 0 past their ends."""
    x = np.zeros((len(rows), width), dtype=np.int64)
    for target, row in zip(x, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(x)


Flags = npt.NDArray[np.bool_]


def check_fraction(fraction: float) -> None:
    """Raise ValueError unless a fraction leaves at least half of the rows to train on."""
    if not 0 < fraction <= 0.5:
        raise ValueError(f"validation_fraction: expected above 0 and at most 0.5, got {fraction}")


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
