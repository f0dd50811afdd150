"""Lengths, the padding after them, prefixes and conditions, and checks of these."""

from typing import Any

import torch
from torch import Tensor, distributions
from torch.distributions import Distribution

from chainrule.kernels._transforms import values_are_known
from chainrule.state import State, expand, leaves


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


def length_mask(lengths: Tensor, time: int) -> Tensor:
    """(B, T) booleans, true at real elements.

    >>> length_mask(torch.tensor([0, 2]), 3)
    tensor([[False, False, False],
            [ True,  True, False]])
    """
    check_lengths(lengths)
    return torch.arange(time, device=lengths.device) < lengths.unsqueeze(1)


def fill_padding(sequence: Tensor, real: Tensor) -> Tensor:
    """Replace padding, which may hold anything, in (B, T, ...) by a real element inside the support."""
    if not real.numel():
        return sequence
    inside = sequence.flatten(0, 1)[real.flatten().int().argmax().view(1)].masked_fill(~real.any(), 0)
    return torch.where(spread(real, sequence), sequence, inside)


def spread(mask: Tensor, like: Tensor) -> Tensor:
    """(B, T) -> (B, T, 1, ...), to be broadcast against `like` (B, T, ...)."""
    return mask.view(mask.shape + (1,) * (like.dim() - 2))


def refuse_context(context: Any) -> None:
    """Raise ValueError for a condition of a model that has none."""
    if context is not None:
        raise ValueError("context: this model is not conditioned on anything; leave it None")


def check_binary(x: Tensor, name: str) -> None:
    """Raise ValueError for values other than 0 and 1."""
    if not values_are_known(x):
        return
    others = x[(x != 0) & (x != 1)]
    if others.numel():
        raise ValueError(
            f"{name}: expected 0 and 1, got {others[0].item():g}: binarise the columns, or model them as another kind"
        )


def prefix_rows(prefix: Tensor, n: int) -> Tensor:
    """(P,), (1, P, ...) or (n, P, ...) -> (n, P, ...)."""
    if not isinstance(prefix, Tensor):
        raise ValueError(f"prefix: expected a tensor, got {type(prefix).__name__}: make it one with torch.as_tensor")
    if prefix.dim() == 1:
        prefix = prefix.unsqueeze(0)
    if prefix.shape[0] not in (1, n):
        raise ValueError(f"prefix: expected shape (P,), or 1 or {n} rows, got {tuple(prefix.shape)}")
    return prefix.expand(n, *prefix.shape[1:])


def check_prefix(conditionals: Distribution, prefix: Tensor) -> Tensor:
    """log p of each element of a prefix; `ValueError` for elements outside the support of their conditionals.

    A table of symbols refuses those by itself, and one that it gives probability 0 is a symbol all the same, such as
    one that is never to be drawn. Of other distributions −inf is a value outside the support; it is looked for on a
    processor alone, since a GPU would have to be waited for.
    """
    try:
        log_prob = conditionals.log_prob(prefix)
    except ValueError as error:
        raise ValueError(f"prefix: {str(error).removeprefix('value: ')}") from None
    refuses_itself = isinstance(conditionals, distributions.Categorical)
    if refuses_itself or log_prob.device.type != "cpu" or not values_are_known(log_prob):
        return log_prob
    impossible = log_prob == -torch.inf
    if impossible.any():
        row, index, *_ = impossible.nonzero()[0].tolist()
        got = prefix[row, index]
        raise ValueError(
            "prefix: expected elements that the model can draw, "
            f"got {got.item() if got.dim() == 0 else got.tolist()} at place {index}, of probability 0"
        )
    return log_prob


def for_rows(context: State, batch_size: int) -> State:
    """Expand a condition to the rows of x; ValueError unless each of its tensors has one row or the rows of x."""
    for leaf in leaves(context):
        if len(leaf) not in (1, batch_size):
            raise ValueError(f"context: expected {batch_size} rows, or one for all, got {len(leaf)}")
    return expand(context, batch_size)
