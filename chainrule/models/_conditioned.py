"""Checks of a model's context, and the distribution of whole sequences or images given a context."""

from typing import Any

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel
from chainrule._checks import for_rows, refuse_context
from chainrule.heads._head import Head
from chainrule.kernels._transforms import values_are_known
from chainrule.layers._cells import check_vocabulary, symbols_of
from chainrule.layers._packing import zero_past_ends
from chainrule.state import count_rows


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


def checked_source(context: Any, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Return the symbols of a source (B, S), zero past each row's end, and its lengths (B,)."""
    if not isinstance(context, dict) or not {"tokens", "lengths"} <= context.keys():
        got = f"one of {', '.join(sorted(context))}" if isinstance(context, dict) else type(context).__name__
        raise ValueError(f'context: expected a dict of "tokens" (B, S) and "lengths" (B,), got {got}')
    tokens, lengths = context["tokens"], context["lengths"]
    if tokens.dim() != 2 or lengths.shape != tokens.shape[:1]:
        raise ValueError(
            f'context: expected "tokens" (B, S) and "lengths" (B,), '
            f"got {tuple(tokens.shape)} and {tuple(lengths.shape)}"
        )
    tokens, lengths = zero_past_ends(symbols_of(tokens), lengths), lengths.to(tokens.device)
    return check_vocabulary(tokens, vocab_size, "tokens"), lengths


def checked_inputs(context: Any) -> tuple[Tensor, Tensor | None]:
    """Return the sequences that a model of labels reads, and their lengths (B,) if they are there."""
    if isinstance(context, Tensor):
        return context, None
    if not isinstance(context, dict) or "inputs" not in context:
        raise ValueError(
            "context: expected the sequences, a tensor or {'inputs': tensor, 'lengths': (B,)}, "
            f"got {type(context).__name__}"
        )
    return context["inputs"], context.get("lengths")


def check_one_label_a_row(x: Any, batch_size: int) -> None:
    """Raise ValueError unless x has one label for each row of the input, or the input has a single row."""
    if not isinstance(x, Tensor) or x.dim() != 1 or batch_size not in (1, len(x)):
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x: expected labels (B,) = ({batch_size},), one for each row, got {got}")


class Conditioned(Head):
    """p(x | c) of an autoregressive model as a distribution of batch shape (B,), whose event is a whole x."""

    def __init__(self, model: AutoregressiveModel, context: Tensor, event_shape: Any):
        self.model, self.context = model, context
        super().__init__(torch.Size((count_rows(context),)), torch.Size(event_shape), validate_args=False)

    @property
    def support(self) -> Any:
        return None

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(x | c), (B,), nats; value (B, ...), a row for each context."""
        return self.model.log_prob(value, self.context)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw an x for each row of the context, sample_shape + (B,) + the shape of x."""
        shape = torch.Size(sample_shape)
        rows = self.context.expand(*shape, *self.context.shape).reshape(-1, *self.context.shape[1:])
        drawn = self.model.sample(len(rows), rows, generator=generator)
        return drawn.view(*shape, *self._batch_shape, *drawn.shape[1:])

    def __repr__(self) -> str:
        return f"Conditioned({type(self.model).__name__}, batch_shape={tuple(self._batch_shape)})"
