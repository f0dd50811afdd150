"""Labels of whole sequences or images: those that one is conditioned on, and those that a classifier is given."""

from typing import Any

import torch
from torch import Tensor

from chainrule._base import for_rows, refuse_context
from chainrule.kernels._transforms import values_are_known


def checked_labels(context: Any, batch_size: int, num_classes: int | None) -> Tensor | None:
    """Return the context as indices, (B,); `None` for a model without labels."""
    if num_classes is None:
        if context is not None:
            raise ValueError("context: this model has no labels; leave it None, or give the model num_classes")
        return None
    if not isinstance(context, Tensor) or context.shape not in ((batch_size,), (1,)) or context.is_floating_point():
        got = f"shape {tuple(context.shape)} of {context.dtype}" if isinstance(context, Tensor) else context
        raise ValueError(f"context: expected {batch_size} labels, integers of shape ({batch_size},), got {got}")
    if len(context) and values_are_known(context) and not 0 <= int(context.min()) <= int(context.max()) < num_classes:
        raise ValueError(
            f"context: expected labels in [0, {num_classes}), got {int(context.min())} to {int(context.max())}"
        )
    return context.long().expand(batch_size)


def checked_condition(context: Any, batch_size: int, size: int | None, dtype: torch.dtype) -> Tensor | None:
    """Return features (B, size) in a dtype, or labels (B,) below `size`, a row for each of B; `None` without a size."""
    if size is None:
        refuse_context(context)
        return None
    if context is None:
        raise ValueError(f"context: expected (B, {size}) features or (B,) labels, got None: the model is conditioned")
    if context.is_floating_point():
        if context.dim() != 2 or context.shape[1] != size:
            raise ValueError(f"context: expected shape (B, {size}), got {tuple(context.shape)}")
        context = context.to(dtype)
    elif context.dim() != 1 or (values_are_known(context) and bool(((context < 0) | (context > size - 1)).any())):
        got = f"shape {tuple(context.shape)}" if context.dim() != 1 else f"{int(context.min())} to {int(context.max())}"
        raise ValueError(f"context: expected (B,) labels from 0 to {size - 1}, got {got}")
    else:
        context = context.long()
    expanded: Tensor = for_rows(context, batch_size)
    return expanded


def check_one_label_a_row(x: Any, batch_size: int) -> None:
    """Raise ValueError unless x has one label for each row of the input, or the input has a single row."""
    if not isinstance(x, Tensor) or x.dim() != 1 or batch_size not in (1, len(x)):
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x: expected labels (B,) = ({batch_size},), one for each row, got {got}")
