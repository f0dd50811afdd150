"""How many elements of each row are real."""

from typing import Any

import torch
from torch import Tensor

from chainrule._modes import values_are_known


def check_lengths(lengths: Any, rows: tuple[int, int] | None = None) -> None:
    """Raise ValueError unless lengths are a tensor of integers, and fit `rows` = (B, T) where given."""
    if not isinstance(lengths, Tensor):
        raise ValueError(
            f"lengths: expected a tensor of integers, got {type(lengths).__name__}: make it one with torch.tensor"
        )
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        remedy = "count the real elements with mask.sum(1)" if lengths.dtype == torch.bool else "use lengths.long()"
        raise ValueError(
            f"lengths: expected integers, one a row, got {tuple(lengths.shape)} of {lengths.dtype}: {remedy}"
        )
    if rows is None:
        return
    batch_size, time = rows
    if lengths.shape != (batch_size,):
        raise ValueError(
            f"lengths: expected {batch_size} integers, one a row, got {tuple(lengths.shape)} of {lengths.dtype}"
        )
    if not batch_size or not values_are_known(lengths):
        return
    shortest, longest = int(lengths.min()), int(lengths.max())
    if not 0 <= shortest <= longest <= time:
        raise ValueError(f"lengths: expected values in [0, {time}] (the time steps of x), got {shortest} to {longest}")
