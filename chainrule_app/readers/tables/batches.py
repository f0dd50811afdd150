"""Batches of the rows of a prepared table."""

from collections.abc import Iterator

import numpy as np
import torch

from chainrule.data import Batch, Batches, Shuffled
from chainrule_app.readers.row_order import in_order
from chainrule_app.readers.tables.prepare import Rows


def table_batches(rows: Rows, batch_size: int, seed: int = 0, shard: tuple[int, int] = (0, 1)) -> Batches:
    """Rows (N, D) in the order of `Shuffled`; see there for the other arguments."""
    order = Shuffled(len(rows), batch_size, seed, shard)
    return Batches(order, lambda _, chosen: _batch(rows[order.own(chosen)]))


def table_evaluation(rows: Rows, batch_size: int) -> Iterator[Batch]:
    """Every row once, in order."""
    return (_batch(rows[chosen]) for chosen in in_order(len(rows), batch_size))


def _batch(rows: Rows) -> Batch:
    # Lengths say that each row is a whole sequence: it is scored in one pass.
    return Batch(torch.from_numpy(np.array(rows)), lengths=torch.full((len(rows),), rows.shape[1]))
