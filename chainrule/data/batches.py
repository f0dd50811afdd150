"""Batch: the rows that every kind of data gives to training and evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule.state import State


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
        whole: rows are whole, all of them real: pictures (B, C, H, W), labels (B,).
    """

    x: Tensor
    lengths: Tensor | None = None
    previous: Tensor | None = None
    fresh: bool = True
    context: State = None
    whole: bool = False


def check_batch_size(batch_size: int, shard: tuple[int, int]) -> None:
    """`ValueError` unless the processes can share the rows of a batch equally; `shard` is (rank, number of
    processes)."""
    rank, world = shard
    if not 0 <= rank < world:
        raise ValueError(f"shard: expected a rank from 0 to {world - 1}, got {rank}")
    if batch_size < 1 or batch_size % world:
        raise ValueError(
            f"batch_size: expected a positive multiple of the number of processes, {world}, got {batch_size}"
        )


def check_seed(seed: int) -> None:
    """`ValueError` unless `seed` can seed a generator."""
    if seed < 0:
        raise ValueError(f"seed: expected at least 0, got {seed}")


def padded(rows: Sequence[npt.NDArray[np.integer]], width: int) -> Tensor:
    """Rows of unequal length as int64 (B, width), 0 past their ends."""
    x = np.zeros((len(rows), width), dtype=np.int64)
    for place, row in zip(x, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(x)
