"""Rows of a table in batches."""

from collections.abc import Iterator

import numpy as np
import torch

from chainrule.data.batches import Batch, check_batch_size, check_seed
from chainrule.data.tables.schema import Rows


class TableBatches:
    """Rows in an order drawn anew for each epoch, as a pure function of (seed, step).

    An epoch reads every row once, but for those that do not fill a batch; a table with fewer rows than a batch is a
    batch. There is no state to save: to resume is to ask for the next step.

    Args:
        rows: (N, D).
        batch_size: rows of a batch, over all processes.
        seed: at least 0.
        shard: (rank, number of processes): this one gets the rows rank, rank + processes, ... of a batch.

    >>> batches = TableBatches(np.arange(10.0).reshape(5, 2), batch_size=2)
    >>> batches.steps_per_epoch, batches.at(0).x.shape, batches.at(0).lengths
    (2, torch.Size([2, 2]), tensor([2, 2]))
    """

    def __init__(self, rows: Rows, batch_size: int, seed: int = 0, shard: tuple[int, int] = (0, 1)):
        check_batch_size(batch_size, shard)
        check_seed(seed)
        self.rows, self.seed, self._shard = rows, seed, shard
        self.batch_size = min(batch_size, len(rows) // shard[1] * shard[1])
        if self.batch_size < 1:
            raise ValueError(f"rows: expected at least {shard[1]}, one for each process, got {len(rows)}")
        self.steps_per_epoch = len(rows) // self.batch_size
        self._epoch, self._order = -1, np.zeros(0, dtype=np.int64)

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, epoch]).permutation(len(self.rows))
            self._epoch = epoch
        rank, world = self._shard
        chosen = self._order[place * self.batch_size : (place + 1) * self.batch_size][rank::world]
        return _batch(self.rows[chosen])


def table_evaluation(rows: Rows, batch_size: int) -> Iterator[Batch]:
    """Every row once, in order."""
    for start in range(0, len(rows), batch_size):
        yield _batch(rows[start : start + batch_size])


def _batch(rows: Rows) -> Batch:
    # Lengths say that each row is a whole sequence: it is scored in one pass.
    return Batch(torch.from_numpy(np.array(rows)), lengths=torch.full((len(rows),), rows.shape[1]))
