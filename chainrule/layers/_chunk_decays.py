"""Chunks of a sequence of any length, and the decays between the steps inside each."""

import torch
from torch import Tensor


def into_chunks(part: Tensor, size: int) -> Tensor:
    """Cut time into chunks of `size` steps, the last filled up with zeros: (B, H, T, ...) to (B, H, n, size, ...).

    >>> into_chunks(torch.arange(1, 6).view(1, 1, 5), 3).tolist()
    [[[[1, 2, 3], [4, 5, 0]]]]
    """
    missing = -part.shape[2] % size
    if missing:
        part = torch.cat([part, part.new_zeros(*part.shape[:2], missing, *part.shape[3:])], 2)
    return part.unflatten(2, (-1, size))


def chunk_decays(log_decay: Tensor) -> tuple[Tensor, Tensor]:
    r"""The decay from each step of a chunk to each later one, and from the chunk's beginning.

    .. math:: D_{ij} = \prod_{s=j+1}^{i} a_s \;\; (j \le i), \qquad d_i = \prod_{s=1}^{i} a_s

    :math:`D_{ij} = 0` for j > i: the causal mask. Each logarithm is a sum of its own terms, at most 0; the difference
    of two long cumulative sums would lose the digits of a short one after a strong decay, and its exponential would
    overflow above the diagonal.

    Args:
        log_decay: log a, (..., C), at most 0.

    Returns:
        D (..., C, C) and d (..., C).

    >>> [part.tolist() for part in chunk_decays(torch.tensor([0.5, 0.5]).log())]
    [[[1.0, 0.0], [0.5, 1.0]], [0.5, 0.25]]
    """
    size = log_decay.shape[-1]
    ones = torch.ones(size, size, dtype=torch.bool, device=log_decay.device)
    rows = log_decay.unsqueeze(-1).expand(*log_decay.shape, size)  # [i, j] = log a_i
    sums = rows.masked_fill(~ones.tril(-1), 0).cumsum(-2)
    return sums.masked_fill(~ones.tril(), -torch.inf).exp(), log_decay.cumsum(-1).exp()
