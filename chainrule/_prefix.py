"""The beginning of sequences that are drawn: one for each row, of elements that the model can draw."""

import torch
from torch import Tensor, distributions
from torch.distributions import Distribution

from chainrule._modes import values_are_known


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
        row, place, *_ = impossible.nonzero()[0].tolist()
        got = prefix[row, place]
        raise ValueError(
            "prefix: expected elements that the model can draw, "
            f"got {got.item() if got.dim() == 0 else got.tolist()} at place {place}, of probability 0"
        )
    return log_prob
