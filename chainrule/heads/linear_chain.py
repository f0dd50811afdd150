"""Sums over all tag sequences of a chain (partition function, marginals, draws) and its best ones (Viterbi)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from chainrule.heads.categorical import Categorical


@dataclass(frozen=True)
class TagChain:
    """The scores of a batch of chains of T >= 1 places and K tags; -inf forbids."""

    starts: Tensor  # (K,)
    transitions: Tensor  # (K, K), from the first to the second
    ends: Tensor  # (K,)
    emissions: Tensor  # (B, T, K), anything finite past each row's end
    real: Tensor  # (B, T) booleans
    forbids: bool  # whether there may be a score of -inf

    @property
    def empty(self) -> Tensor:
        """(B,) rows without a real place."""
        return ~self.real[:, 0]

    def ends_here(self, t: int) -> Tensor:
        """(B,) rows whose last real place is t."""
        time = self.real.shape[1]
        return self.real[:, t] & ~self.real[:, t + 1] if t + 1 < time else self.real[:, t]


def forward_messages(chain: TagChain) -> list[Tensor]:
    r"""Log-sums over the beginnings of tag sequences, T tensors (B, K); past a row's end they stay as they are.

    .. math:: \alpha_1(k) = b_k + e_1(k), \qquad \alpha_t(k) = e_t(k) + \log \sum_j e^{\alpha_{t-1}(j) + A_{jk}}
    """
    messages = [chain.starts + chain.emissions[:, 0]]
    for t in range(1, chain.emissions.shape[1]):
        paths = messages[-1].unsqueeze(2) + chain.transitions  # (B, K, K)
        message = chain.emissions[:, t] + _log_sum(paths, 1, chain.forbids)
        messages.append(torch.where(chain.real[:, t, None], message, messages[-1]))
    return messages


def backward_messages(chain: TagChain) -> list[Tensor]:
    r"""Log-sums over the ends of tag sequences, T tensors (B, K).

    .. math:: \beta_T(k) = c_k, \qquad \beta_t(j) = \log \sum_k e^{A_{jk} + e_{t+1}(k) + \beta_{t+1}(k)}
    """
    messages = [chain.ends.expand_as(chain.emissions[:, 0])]
    for t in range(chain.emissions.shape[1] - 1, 0, -1):
        paths = chain.transitions + (chain.emissions[:, t] + messages[-1]).unsqueeze(1)
        messages.append(torch.where(chain.real[:, t, None], _log_sum(paths, 2, chain.forbids), messages[-1]))
    return messages[::-1]


def log_partition(chain: TagChain, forward: list[Tensor]) -> Tensor:
    """log Z of each row, (B,), given its forward messages; 0 for a row of no place."""
    return _log_sum(forward[-1] + chain.ends, 1, chain.forbids).masked_fill(chain.empty, 0)


def tag_marginals(chain: TagChain, forward: list[Tensor]) -> Tensor:
    """p(y_t = k), (B, T, K), given the forward messages; 0 past each row's end.

    Each row must have a possible tag sequence.
    """
    joint = torch.stack(forward, 1) + torch.stack(backward_messages(chain), 1)
    return joint.softmax(2).masked_fill(~chain.real.unsqueeze(2), 0)


def draw_tags(chain: TagChain, forward: list[Tensor], generator: torch.Generator | None) -> Tensor:
    r"""Draw a tag sequence of each row from the last place to the first, (B, T); -1 past its end.

    .. math:: y_T \sim e^{\alpha_T(k) + c_k}, \qquad y_t \mid y_{t+1} \sim e^{\alpha_t(k) + A_{k y_{t+1}}}
    """
    tags = torch.full(chain.real.shape, -1, device=chain.real.device)
    following = tags.new_zeros(len(tags))
    for t in range(tags.shape[1] - 1, -1, -1):
        after = torch.where(chain.ends_here(t).unsqueeze(1), chain.ends, chain.transitions.t()[following])
        # Past the end all scores may be -inf: the draw there is not used.
        following = Categorical(forward[t] + after).sample(generator=generator)
        tags[:, t] = following.masked_fill(~chain.real[:, t], -1)
    return tags


def _log_sum(scores: Tensor, dim: int, forbids: bool) -> Tensor:
    """logsumexp with gradient 0, where torch's own is NaN, at entries that are -inf altogether."""
    if not forbids:
        return scores.logsumexp(dim)
    none = (scores == -torch.inf).all(dim, keepdim=True)
    return scores.masked_fill(none, 0).logsumexp(dim).masked_fill(none.squeeze(dim), -torch.inf)


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
