"""Rows of a table in batches."""

from collections.abc import Iterator

import numpy as np
import torch

from chainrule.data.batches import Batch, Shuffled, in_order
from chainrule.data.tables.schema import Rows


class TableBatches:
    """Rows in the order of `Shuffled`, as a pure function of (seed, step).

    Args:
        rows: (N, D).
        batch_size, seed, shard: see `Shuffled`.

    >>> batches = TableBatches(np.arange(10.0).reshape(5, 2), batch_size=2)
    >>> batches.steps_per_epoch, batches.at(0).x.shape, batches.at(0).lengths
    (2, torch.Size([2, 2]), tensor([2, 2]))
    """

    def __init__(self, rows: Rows, batch_size: int, seed: int = 0, shard: tuple[int, int] = (0, 1)):
        self._table, self._rows = rows, Shuffled(len(rows), batch_size, seed, shard)
        self.steps_per_epoch = self._rows.steps_per_epoch

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        return _batch(self._table[self._rows.own(self._rows.at(step))])


def table_evaluation(rows: Rows, batch_size: int) -> Iterator[Batch]:
    """Every row once, in order."""
    return (_batch(rows[chosen]) for chosen in in_order(len(rows), batch_size))


def _batch(rows: Rows) -> Batch:
    # Lengths say that each row is a whole sequence: it is scored in one pass.
    return Batch(torch.from_numpy(np.array(rows)), lengths=torch.full((len(rows),), rows.shape[1]))
