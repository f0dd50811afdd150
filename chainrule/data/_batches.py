"""Batches of rows, and the order in which training reads them: a pure function of (seed, step)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule._ranges import check_batch_size, check_seed
from chainrule.state import State

Rows = npt.NDArray[np.int64]
Order = Callable[[Rows], Rows]


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

    @staticmethod
    def by_length(lengths: npt.NDArray[np.integer]) -> Order:
        """Return the order `sort` that sorts rows by their lengths (N,), equal ones in the order given."""
        return lambda rows: np.argsort(lengths[rows], kind="stable")

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
