"""How many elements of each row are real."""

from typing import Any

import torch
from torch import Tensor


def check_lengths(lengths: Any) -> None:
    """Raise ValueError unless lengths are a tensor of integers."""
    if not isinstance(lengths, Tensor):
        raise ValueError(
            f"lengths: expected a tensor of integers, got {type(lengths).__name__}: make it one with torch.tensor"
        )
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        remedy = "count the real elements with mask.sum(1)" if lengths.dtype == torch.bool else "use lengths.long()"
        raise ValueError(
            f"lengths: expected integers, one a row, got {tuple(lengths.shape)} of {lengths.dtype}: {remedy}"
        )
