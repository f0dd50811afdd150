"""Rows of a table in batches."""

from collections.abc import Iterator

import numpy as np
import torch

from chainrule.data.batches import Batch, Batches, Shuffled, in_order
from chainrule.data.tables.schema import Rows


def table_batches(rows: Rows, batch_size: int, seed: int = 0, shard: tuple[int, int] = (0, 1)) -> Batches:
    """Rows (N, D) in the order of `Shuffled`; see there for the other arguments.

    >>> batches = table_batches(np.arange(10.0).reshape(5, 2), batch_size=2)
    >>> batches.steps_per_epoch, batches.at(0).x.shape, batches.at(0).lengths
    (2, torch.Size([2, 2]), tensor([2, 2]))
    """
    order = Shuffled(len(rows), batch_size, seed, shard)
    return Batches(order, lambda _, chosen: _batch(rows[order.own(chosen)]))


def table_evaluation(rows: Rows, batch_size: int) -> Iterator[Batch]:
    """Every row once, in order."""
    return (_batch(rows[chosen]) for chosen in in_order(len(rows), batch_size))


def _batch(rows: Rows) -> Batch:
    # Lengths say that each row is a whole sequence: it is scored in one pass.
    return Batch(torch.from_numpy(np.array(rows)), lengths=torch.full((len(rows),), rows.shape[1]))
