"""A distribution over whole sequences of tags, in which neighbours depend on each other."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chainrule._buffers import fixed_buffer
from chainrule._ranges import check_sizes
from chainrule.heads._categorical import Categorical
from chainrule.heads._tag_constraints import TagConstraints, check_tags, real_places
from chainrule.kernels._transforms import values_are_known


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


class LinearChainCRF(nn.Module):
    r"""A linear-chain conditional random field over K tags (Lafferty, McCallum and Pereira 2001).

    .. math:: s(y, e) = b_{y_1} + \sum_{t=1}^{T} e_t(y_t) + \sum_{t=2}^{T} A_{y_{t-1} y_t} + c_{y_T}, \qquad
        \log p(y \mid e) = s(y, e) - \log \sum_{y'} e^{s(y', e)}

    The emissions e come from a network; A, b and c are learned here, and begin at 0, where the tags are independent and
    each place is a softmax of its own. Sums and maxima over all K^T sequences are exact, in O(T K²).

    Everywhere, emissions are (B, T, K) real scores, tags (B, T) integers in [0, K), and `lengths` (B,) the number of
    real places of each row, None where all are. Padding past a row's end is never read: it may be NaN, and tags there
    out of range; returned tags are -1 there. A row of length 0 has one sequence, the empty one, of probability 1.
    Computation is in float32 at least, under autocast too.

    Args:
        num_tags: K.
        constraints: which tags may be first, last, and next to each other (see `bio_constraints`); others have
            probability 0. None allows all. They are not weights, and are not saved with them.

    Raises:
        ValueError: `num_tags` is below 1, or the constraints are for another number; of every method, shapes do not
            agree, a length is outside [0, T], a real tag outside [0, K), or a row has no possible tag sequence to
            return.

    >>> crf = LinearChainCRF(num_tags=2)
    >>> emissions = torch.tensor([[[1.0, 0.0], [0.0, 3.0]]])
    >>> crf.decode(emissions)
    tensor([[0, 1]])
    >>> _ = crf.transitions.data.copy_(torch.tensor([[0.0, -9.0], [0.0, 0.0]]))  # 1 hardly ever follows 0
    >>> crf.decode(emissions), crf.log_prob(torch.tensor([[1, 1]]), emissions).exp()
    (tensor([[1, 1]]), tensor([0.8436], grad_fn=<ExpBackward0>))
    """

    forbidden_starts: Tensor | None

    def __init__(self, num_tags: int, constraints: TagConstraints | None = None):
        super().__init__()
        check_sizes(num_tags=num_tags)
        self.num_tags = num_tags
        self.transitions = nn.Parameter(torch.zeros(num_tags, num_tags))
        self.starts = nn.Parameter(torch.zeros(num_tags))
        self.ends = nn.Parameter(torch.zeros(num_tags))
        for name in TagConstraints._fields:
            allowed = None if constraints is None else getattr(constraints, name)
            shape = getattr(self, name).shape
            if allowed is not None and (allowed.shape != shape or allowed.dtype != torch.bool):
                raise ValueError(
                    f"constraints: expected {name} as booleans of shape {tuple(shape)}, "
                    f"got {allowed.dtype} of {tuple(allowed.shape)}"
                )
            if allowed is None:
                self.register_buffer(f"forbidden_{name}", None)
            else:
                fixed_buffer(self, f"forbidden_{name}", ~allowed)

    def log_prob(self, tags: Tensor, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """log p(y | e) of each row, (B,), nats; -inf where the constraints forbid y."""
        chain, _ = self._chain(emissions, lengths)
        real = chain.real[:, : emissions.shape[1]]
        check_tags(tags, real, self.num_tags)
        # A row without a place gets one tag, whose score is dropped.
        tags = tags.long().masked_fill(~real, 0) if tags.shape[1] else tags.new_zeros(len(tags), 1, dtype=torch.long)
        score = self._score(chain, tags)
        log_prob = score - log_partition(chain, forward_messages(chain))
        return log_prob.masked_fill(score == -torch.inf, -torch.inf)

    def log_partition(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """log Z, the log-sum of e^s over all tag sequences of each row, (B,), nats; its gradient is `marginals`."""
        chain, shift = self._chain(emissions, lengths)
        return log_partition(chain, forward_messages(chain)) + shift

    def marginals(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """p(y_t = k | e), (B, T, K), by the forward–backward algorithm; 0 past each row's end."""
        chain, _ = self._chain(emissions, lengths)
        forward = forward_messages(chain)
        self._require_a_sequence(log_partition(chain, forward), chain)
        return tag_marginals(chain, forward)[:, : emissions.shape[1]]

    @torch.no_grad()
    def decode(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The most probable tags of each row, (B, T), by the Viterbi algorithm; -1 past its end."""
        chain, _ = self._chain(emissions, lengths)
        paths, scores = best_paths(chain, 1)
        self._require_a_sequence(scores[:, 0], chain)
        return paths[:, 0, : emissions.shape[1]]

    @torch.no_grad()
    def decode_n_best(self, emissions: Tensor, lengths: Tensor | None = None, *, n: int) -> tuple[Tensor, Tensor]:
        """The n most probable tag sequences of each row, best first, (B, n, T), and their log p, (B, n), nats.

        Where fewer than n are possible, the rest are -inf, with tags -1.
        """
        check_sizes(n=n)
        chain, _ = self._chain(emissions, lengths)
        paths, scores = best_paths(chain, n)
        self._require_a_sequence(scores[:, 0], chain)
        normaliser = log_partition(chain, forward_messages(chain))
        return paths[:, :, : emissions.shape[1]], scores - normaliser.unsqueeze(1)

    @torch.no_grad()
    def sample(
        self, emissions: Tensor, lengths: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw tags of each row from p(y | e), exactly, (B, T); -1 past its end. Repeat rows for several draws."""
        chain, _ = self._chain(emissions, lengths)
        forward = forward_messages(chain)
        self._require_a_sequence(log_partition(chain, forward), chain)
        return draw_tags(chain, forward, generator)[:, : emissions.shape[1]]

    def extra_repr(self) -> str:
        return f"num_tags={self.num_tags}" + ("" if self.forbidden_starts is None else ", constrained")

    def _chain(self, emissions: Tensor, lengths: Tensor | None) -> tuple[TagChain, Tensor]:
        """The scores in float32 at least, of T >= 1 places, less a shift of each row, (B,)."""
        real = real_places(emissions, lengths, self.num_tags)
        batch_size, time = real.shape
        if time == 0:
            emissions, real = emissions.new_zeros(batch_size, 1, self.num_tags), real.new_zeros(batch_size, 1)
        dtype = torch.promote_types(torch.promote_types(emissions.dtype, self.transitions.dtype), torch.float32)
        emissions = emissions.to(dtype).masked_fill(~real.unsqueeze(2), 0)
        # Each place less its greatest score: sums over long rows stay small. To the gradient that is a constant, as
        # its gradients cancel: the marginals of a place sum to 1.
        greatest = emissions.detach().amax(2)
        greatest = torch.where(greatest.isfinite(), greatest, 0)
        emissions = emissions - greatest.unsqueeze(2)
        starts, transitions, ends = (self._allowed(name).to(dtype) for name in ("starts", "transitions", "ends"))
        forbids = self.forbidden_starts is not None or _any_is_forbidden(emissions, starts, transitions, ends)
        return TagChain(starts, transitions, ends, emissions, real, forbids), greatest.sum(1)

    def _allowed(self, name: str) -> Tensor:
        scores, forbidden = getattr(self, name), getattr(self, f"forbidden_{name}")
        return scores if forbidden is None else scores.masked_fill(forbidden, -torch.inf)

    @staticmethod
    def _score(chain: TagChain, tags: Tensor) -> Tensor:
        """s(y, e), (B,)."""
        emitted = chain.emissions.gather(2, tags.unsqueeze(2)).squeeze(2)
        moved = chain.transitions[tags[:, :-1], tags[:, 1:]].masked_fill(~chain.real[:, 1:], 0)
        last = tags.gather(1, (chain.real.sum(1, keepdim=True) - 1).clamp_min(0)).squeeze(1)
        score = chain.starts[tags[:, 0]] + emitted.sum(1) + moved.sum(1) + chain.ends[last]
        return score.masked_fill(chain.empty, 0)

    @staticmethod
    def _require_a_sequence(score: Tensor, chain: TagChain) -> None:
        if values_are_known(score) and not score.isfinite().all():
            row = int((~score.isfinite()).nonzero()[0])
            raise ValueError(
                f"emissions: row {row}, of length {int(chain.real[row].sum())}, has no tag sequence of finite score: "
                "look for NaN or infinite emissions, and for constraints that no sequence of this length can meet"
            )


def _any_is_forbidden(*scores: Tensor) -> bool:
    """Whether a score is -inf, or may be; asked once for all, as a GPU has to be waited for."""
    if not values_are_known(*scores):
        return True
    return bool(torch.stack([(part.detach() == -torch.inf).any() for part in scores]).any())


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
    """The n greatest along axis 1, and their places; of equals, the first."""
    if n == 1:
        greatest = scores.max(1, keepdim=True)
        return greatest.values, greatest.indices
    ordered = scores.sort(stable=True, dim=1, descending=True)
    return ordered.values[:, :n], ordered.indices[:, :n]
