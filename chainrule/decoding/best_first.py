"""The k greatest of each row, in one order whatever the library's topk makes of equals."""

import torch
from torch import Tensor


def best_first(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest values of each row, greatest first, and their columns; of equals, the first columns.

    Args:
        scores: (N, V); the order among entries of -inf is left open.
        k: how many; all V where there are fewer.

    Returns:
        Values and columns, (N, min(k, V)).

    >>> best_first(torch.tensor([[1.0, 3.0, 0.0, 3.0, 3.0]]), 2)[1]
    tensor([[1, 3]])
    """
    k = min(k, scores.shape[1])
    # One more than asked for: where no two neighbours are equal, topk had no choice to make.
    values, columns = scores.topk(min(k + 1, scores.shape[1]), 1)
    equal = (values[:, 1:] == values[:, :-1]) & (values[:, 1:] > -torch.inf)
    tied = equal.any(1).nonzero().squeeze(1)
    if len(tied):
        ordered = scores[tied].sort(stable=True, dim=1, descending=True)
        values[tied], columns[tied] = ordered.values[:, : values.shape[1]], ordered.indices[:, : values.shape[1]]
    return values[:, :k], columns[:, :k]
