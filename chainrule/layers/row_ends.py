"""Ends of rows of unequal length, for layers that read all rows side by side."""

import torch
from torch import Tensor

from chainrule.lengths import check_lengths


def zero_past_ends(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Zero the padding of x (B, T, ...), which may hold anything; `None` are full rows.

    Raises:
        ValueError: lengths are not B integers in [0, T].

    >>> zero_past_ends(torch.ones(2, 3), torch.tensor([3, 1]))
    tensor([[1., 1., 1.],
            [1., 0., 0.]])
    """
    if lengths is None:
        return x
    check_lengths(lengths, (x.shape[0], x.shape[1]))
    past = torch.arange(x.shape[1], device=x.device) >= lengths.to(x.device).unsqueeze(1)
    return x.masked_fill(past.view(past.shape + (1,) * (x.dim() - 2)), 0)


def last_before_ends(rows: Tensor, size: int, lengths: Tensor | None) -> Tensor:
    """The `size` elements up to the end of each row, (B, size, ...).

    Args:
        rows: (B, size + T, ...), the elements before a chunk, then the chunk.
        size: elements to take.
        lengths: (B,) real elements of the chunk; `None` are all T.

    >>> last_before_ends(torch.tensor([[1, 2, 3, 4], [5, 6, 7, 0]]), 2, torch.tensor([2, 1]))
    tensor([[3, 4],
            [6, 7]])
    """
    if lengths is None:
        return rows[:, rows.shape[1] - size :]
    places = lengths.to(rows.device).unsqueeze(1) + torch.arange(size, device=rows.device)
    places = places.view(places.shape + (1,) * (rows.dim() - 2)).expand(-1, -1, *rows.shape[2:])
    return rows.gather(1, places)
