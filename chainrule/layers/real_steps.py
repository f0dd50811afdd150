"""Which time steps of a chunk are real, where rows have unequal lengths."""

import torch
from torch import Tensor

from chainrule.lengths import check_lengths


def real_steps(x: Tensor, lengths: Tensor | None) -> Tensor | None:
    """(B, T) booleans, true at real steps; `None` where every row is full.

    Args:
        x: (B, T, ...).
        lengths: (B,) integers in [0, T], or `None`.

    Raises:
        ValueError: the lengths are no integers, are not one a row, or exceed T.

    >>> real_steps(torch.zeros(2, 3, 1), torch.tensor([0, 2]))
    tensor([[False, False, False],
            [ True,  True, False]])
    """
    if lengths is None:
        return None
    check_lengths(lengths)
    batch_size, time = x.shape[:2]
    if lengths.shape != (batch_size,):
        raise ValueError(
            f"lengths: expected {batch_size} integers, one a row, got {tuple(lengths.shape)} of {lengths.dtype}"
        )
    if batch_size and not 0 <= int(lengths.min()) <= int(lengths.max()) <= time:
        raise ValueError(
            f"lengths: expected values in [0, {time}] (the time steps of x), "
            f"got {int(lengths.min())} to {int(lengths.max())}"
        )
    return torch.arange(time, device=x.device) < lengths.to(x.device).unsqueeze(1)
