"""The tag sequences of highest score of a chain."""

import torch
from torch import Tensor

from chainrule.heads.forward_backward import TagChain


def best_paths(chain: TagChain, n: int) -> tuple[Tensor, Tensor]:
    r"""The n tag sequences of highest score of each row, best first, and their scores (Viterbi 1967).

    .. math:: \delta_1(k) = b_k + e_1(k), \qquad \delta_t(k) = e_t(k) + \max_j (\delta_{t-1}(j) + A_{jk})

    For n > 1 each δ is the list of the n greatest, of which the lists of the next place are made: exact.

    Returns:
        Tags (B, n, T), -1 past each row's end, and scores (B, n). Where a row has fewer than n sequences of non-zero
        probability, those that lack have the score -inf and tags -1. A row of no place has one, the empty sequence, of
        score 0.
    """
    batch_size, time, tags = chain.emissions.shape
    scores = torch.full_like(chain.emissions[:, :1], -torch.inf).repeat(1, n, 1)  # (B, n, K)
    scores[:, 0] = chain.starts + chain.emissions[:, 0]
    stay = torch.arange(n * tags, device=scores.device).view(n, tags)
    origins = []
    for t in range(1, time):
        paths = scores.unsqueeze(3) + chain.transitions  # (B, n, K, K)
        found, origin = _greatest(paths.flatten(1, 2), n)  # both (B, n, K)
        real = chain.real[:, t, None, None]
        scores = torch.where(real, found + chain.emissions[:, t, None], scores)
        origins.append(torch.where(real, origin, stay).flatten(1))
    best, place = _greatest((scores + chain.ends).view(batch_size, n * tags, 1), n)
    best, place = best.squeeze(2), place.squeeze(2)
    steps = [place]
    for origin in reversed(origins):
        steps.append(origin.gather(1, steps[-1]))
    paths = torch.stack(steps[::-1], 2) % tags
    nothing = torch.full_like(best, -torch.inf)
    nothing[:, 0] = 0
    best = torch.where(chain.empty.unsqueeze(1), nothing, best)
    return paths.masked_fill(~chain.real.unsqueeze(1) | (best == -torch.inf).unsqueeze(2), -1), best


def _greatest(scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The n greatest along axis 1, and where they stand; of equals, the first."""
    if n == 1:
        greatest = scores.max(1, keepdim=True)
        return greatest.values, greatest.indices
    ordered = scores.sort(stable=True, dim=1, descending=True)
    return ordered.values[:, :n], ordered.indices[:, :n]
