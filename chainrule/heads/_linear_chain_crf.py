"""Distributions over tag sequences: independent tags, and a conditional random field that couples neighbours."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import constraints

from chainrule._buffers import fixed_buffer
from chainrule._ranges import check_sizes
from chainrule.heads._categorical import Categorical
from chainrule.heads._head import Head
from chainrule.heads._tag_constraints import TagConstraints, check_tags, real_places
from chainrule.kernels._transforms import values_are_known


@dataclass(frozen=True)
class TagChain:
    """Scores of a batch of chains with T >= 1 positions and K tags; -inf forbids a tag or transition."""

    starts: Tensor  # (K,)
    transitions: Tensor  # (K, K), from the first to the second
    ends: Tensor  # (K,)
    emissions: Tensor  # (B, T, K), arbitrary finite values in padding
    real: Tensor  # (B, T) booleans
    forbids: bool  # true if a score may be -inf

    @property
    def empty(self) -> Tensor:
        """Rows of length 0, (B,) booleans."""
        return ~self.real[:, 0]

    def ends_here(self, t: int) -> Tensor:
        """Return the rows whose last position is t, (B,) booleans."""
        time = self.real.shape[1]
        return self.real[:, t] & ~self.real[:, t + 1] if t + 1 < time else self.real[:, t]


class LinearChainCRF(nn.Module):
    r"""A linear-chain conditional random field over K tags (Lafferty, McCallum and Pereira 2001).

    .. math:: s(y, e) = b_{y_1} + \sum_{t=1}^{T} e_t(y_t) + \sum_{t=2}^{T} A_{y_{t-1} y_t} + c_{y_T}, \qquad
        \log p(y \mid e) = s(y, e) - \log \sum_{y'} e^{s(y', e)}

    The emissions e come from a network; A, b and c are parameters of this module. They start at 0, where the tags are
    independent and each position is a softmax. Sums and maxima over all K^T sequences are exact, in O(T K²).

    In every method, emissions are (B, T, K) real scores, tags (B, T) integers in [0, K), and `lengths` (B,) integers;
    None means that no row is padded. Padding is never read: emissions there may be NaN, and tags out of range; returned
    tags are -1 there. A row of length 0 has one sequence, the empty one, of probability 1. The module computes in at
    least float32, also under autocast.

    Args:
        num_tags: number of tags K.
        constraints: allowed first tags, last tags and transitions, see `TagConstraints.bio`; others have probability
            0. None allows all. The constraints are not saved with the weights.

    Raises:
        ValueError: the constraints are for another number of tags. Every method raises it if shapes disagree, a length
            is outside [0, T], a tag is outside [0, K), or a row has no possible tag sequence to return.

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
        """Return log p(y | e) of each row, (B,), nats; -inf if the constraints forbid y."""
        chain, _ = self._chain(emissions, lengths)
        real = chain.real[:, : emissions.shape[1]]
        check_tags(tags, real, self.num_tags)
        # Rows of length 0 get one tag, whose score `_score` drops.
        tags = tags.long().masked_fill(~real, 0) if tags.shape[1] else tags.new_zeros(len(tags), 1, dtype=torch.long)
        score = self._score(chain, tags)
        log_prob = score - log_partition(chain, forward_messages(chain))
        return log_prob.masked_fill(score == -torch.inf, -torch.inf)

    def log_partition(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return log Z, the log-sum of e^s over all tag sequences of a row, (B,), nats; `marginals` is its gradient."""
        chain, shift = self._chain(emissions, lengths)
        return log_partition(chain, forward_messages(chain)) + shift

    def marginals(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return p(y_t = k | e), (B, T, K), by the forward–backward algorithm; 0 in padding."""
        chain, _ = self._chain(emissions, lengths)
        forward = forward_messages(chain)
        self._require_a_sequence(log_partition(chain, forward), chain)
        return tag_marginals(chain, forward)[:, : emissions.shape[1]]

    @torch.no_grad()
    def decode(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the most probable tags of each row, (B, T), by the Viterbi algorithm; -1 in padding."""
        chain, _ = self._chain(emissions, lengths)
        paths, scores = best_paths(chain, 1)
        self._require_a_sequence(scores[:, 0], chain)
        return paths[:, 0, : emissions.shape[1]]

    @torch.no_grad()
    def decode_n_best(self, emissions: Tensor, lengths: Tensor | None = None, *, n: int) -> tuple[Tensor, Tensor]:
        """Return the n most probable tag sequences of each row, best first, (B, n, T), and log p, (B, n), nats.

        If fewer than n sequences are possible, the rest have log p -inf and tags -1.
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
        """Draw exact samples of p(y | e), one per row, (B, T); -1 in padding. Repeat rows for several draws."""
        chain, _ = self._chain(emissions, lengths)
        forward = forward_messages(chain)
        self._require_a_sequence(log_partition(chain, forward), chain)
        return draw_tags(chain, forward, generator)[:, : emissions.shape[1]]

    def extra_repr(self) -> str:
        return f"num_tags={self.num_tags}" + ("" if self.forbidden_starts is None else ", constrained")

    def _chain(self, emissions: Tensor, lengths: Tensor | None) -> tuple[TagChain, Tensor]:
        """Return the scores, in at least float32 and for T >= 1, minus a shift per row, and that shift, (B,)."""
        real = real_places(emissions, lengths, self.num_tags)
        batch_size, time = real.shape
        if time == 0:
            emissions, real = emissions.new_zeros(batch_size, 1, self.num_tags), real.new_zeros(batch_size, 1)
        dtype = torch.promote_types(torch.promote_types(emissions.dtype, self.transitions.dtype), torch.float32)
        emissions = emissions.to(dtype).masked_fill(~real.unsqueeze(2), 0)
        # Subtract the maximum of each position to keep sums over long rows small. It may be detached: the marginals of
        # a position sum to 1, so its gradients cancel.
        maxima = emissions.detach().amax(2)
        maxima = torch.where(maxima.isfinite(), maxima, 0)
        emissions = emissions - maxima.unsqueeze(2)
        starts, transitions, ends = (self._allowed(name).to(dtype) for name in ("starts", "transitions", "ends"))
        forbids = self.forbidden_starts is not None or _any_is_forbidden(emissions, starts, transitions, ends)
        return TagChain(starts, transitions, ends, emissions, real, forbids), maxima.sum(1)

    def _allowed(self, name: str) -> Tensor:
        scores, forbidden = getattr(self, name), getattr(self, f"forbidden_{name}")
        return scores if forbidden is None else scores.masked_fill(forbidden, -torch.inf)

    @staticmethod
    def _score(chain: TagChain, tags: Tensor) -> Tensor:
        """Return s(y, e), (B,)."""
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
                "check the emissions for NaN or infinity, and the constraints for sequences of this length"
            )


def _any_is_forbidden(*scores: Tensor) -> bool:
    """Return true if a score is or may be -inf; one reduction for all, because each one synchronises a GPU."""
    if not values_are_known(*scores):
        return True
    return bool(torch.stack([(part.detach() == -torch.inf).any() for part in scores]).any())


def forward_messages(chain: TagChain) -> list[Tensor]:
    r"""Return log-sums over the prefixes of tag sequences, T tensors (B, K), constant in padding.

    .. math:: \alpha_1(k) = b_k + e_1(k), \qquad \alpha_t(k) = e_t(k) + \log \sum_j e^{\alpha_{t-1}(j) + A_{jk}}
    """
    messages = [chain.starts + chain.emissions[:, 0]]
    for t in range(1, chain.emissions.shape[1]):
        paths = messages[-1].unsqueeze(2) + chain.transitions  # (B, K, K)
        message = chain.emissions[:, t] + _log_sum(paths, 1, chain.forbids)
        messages.append(torch.where(chain.real[:, t, None], message, messages[-1]))
    return messages


def backward_messages(chain: TagChain) -> list[Tensor]:
    r"""Return log-sums over the suffixes of tag sequences, T tensors (B, K).

    .. math:: \beta_T(k) = c_k, \qquad \beta_t(j) = \log \sum_k e^{A_{jk} + e_{t+1}(k) + \beta_{t+1}(k)}
    """
    messages = [chain.ends.expand_as(chain.emissions[:, 0])]
    for t in range(chain.emissions.shape[1] - 1, 0, -1):
        paths = chain.transitions + (chain.emissions[:, t] + messages[-1]).unsqueeze(1)
        messages.append(torch.where(chain.real[:, t, None], _log_sum(paths, 2, chain.forbids), messages[-1]))
    return messages[::-1]


def log_partition(chain: TagChain, forward: list[Tensor]) -> Tensor:
    """Return log Z of each row, (B,), from its forward messages; 0 for rows of length 0."""
    return _log_sum(forward[-1] + chain.ends, 1, chain.forbids).masked_fill(chain.empty, 0)


def tag_marginals(chain: TagChain, forward: list[Tensor]) -> Tensor:
    """Return p(y_t = k), (B, T, K), from the forward messages; each row must have a possible tag sequence."""
    joint = torch.stack(forward, 1) + torch.stack(backward_messages(chain), 1)
    return joint.softmax(2).masked_fill(~chain.real.unsqueeze(2), 0)


def draw_tags(chain: TagChain, forward: list[Tensor], generator: torch.Generator | None) -> Tensor:
    r"""Draw a tag sequence per row, from the last position to the first, (B, T); -1 in padding.

    .. math:: y_T \sim e^{\alpha_T(k) + c_k}, \qquad y_t \mid y_{t+1} \sim e^{\alpha_t(k) + A_{k y_{t+1}}}
    """
    tags = torch.full(chain.real.shape, -1, device=chain.real.device)
    following = tags.new_zeros(len(tags))
    for t in range(tags.shape[1] - 1, -1, -1):
        after = torch.where(chain.ends_here(t).unsqueeze(1), chain.ends, chain.transitions.t()[following])
        # In padding all scores may be -inf; the mask below discards the draw.
        following = Categorical(forward[t] + after).sample(generator=generator)
        tags[:, t] = following.masked_fill(~chain.real[:, t], -1)
    return tags


def _log_sum(scores: Tensor, dim: int, forbids: bool) -> Tensor:
    """Compute logsumexp with gradient 0, where torch's gradient is NaN, if all scores are -inf."""
    if not forbids:
        return scores.logsumexp(dim)
    none = (scores == -torch.inf).all(dim, keepdim=True)
    return scores.masked_fill(none, 0).logsumexp(dim).masked_fill(none.squeeze(dim), -torch.inf)


def best_paths(chain: TagChain, n: int) -> tuple[Tensor, Tensor]:
    r"""Return the n best tag sequences of each row, (B, n, T), and their scores, (B, n) (Viterbi 1967).

    .. math:: \delta_1(k) = b_k + e_1(k), \qquad \delta_t(k) = e_t(k) + \max_j (\delta_{t-1}(j) + A_{jk})

    For n > 1 each δ is a list of the n highest scores. Missing sequences have tags -1 and score -inf; rows of length 0
    have one sequence, of score 0.
    """
    batch_size, time, tags = chain.emissions.shape
    scores = torch.full_like(chain.emissions[:, :1], -torch.inf).repeat(1, n, 1)  # (B, n, K)
    scores[:, 0] = chain.starts + chain.emissions[:, 0]
    stay = torch.arange(n * tags, device=scores.device).view(n, tags)
    origins = []
    for t in range(1, time):
        paths = scores.unsqueeze(3) + chain.transitions  # (B, n, K, K)
        best, origin = _top(paths.flatten(1, 2), n)  # both (B, n, K)
        real = chain.real[:, t, None, None]
        scores = torch.where(real, best + chain.emissions[:, t, None], scores)
        origins.append(torch.where(real, origin, stay).flatten(1))
    best, last = (part.squeeze(2) for part in _top((scores + chain.ends).view(batch_size, n * tags, 1), n))
    steps = [last]
    for origin in reversed(origins):
        steps.append(origin.gather(1, steps[-1]))
    paths = torch.stack(steps[::-1], 2) % tags
    empty = torch.full_like(best, -torch.inf)
    empty[:, 0] = 0
    best = torch.where(chain.empty.unsqueeze(1), empty, best)
    return paths.masked_fill(~chain.real.unsqueeze(1) | (best == -torch.inf).unsqueeze(2), -1), best


def _top(scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the n highest scores along axis 1 and their indices; ties go to the first."""
    if n == 1:
        return scores.max(1, keepdim=True)
    ordered = scores.sort(stable=True, dim=1, descending=True)
    return ordered.values[:, :n], ordered.indices[:, :n]


class IndependentTags(nn.Module):
    r"""A softmax over K tags at each position: a `LinearChainCRF` without transition scores, and with its methods.

    .. math:: \log p(y \mid e) = \sum_{t=1}^{T} \left( e_t(y_t) - \log \sum_k e^{e_t(k)} \right)

    It has no weights. Its methods take and return the same as `LinearChainCRF`.

    Args:
        num_tags: number of tags K.

    >>> head = IndependentTags(num_tags=2)
    >>> emissions = torch.tensor([[[1.0, 0.0], [0.0, 3.0]]])
    >>> head.decode(emissions), head.log_prob(torch.tensor([[0, 1]]), emissions).exp()
    (tensor([[0, 1]]), tensor([0.6964]))
    """

    def __init__(self, num_tags: int):
        super().__init__()
        check_sizes(num_tags=num_tags)
        self.num_tags = num_tags

    def log_prob(self, tags: Tensor, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return log p(y | e) of each row, (B,), nats."""
        real = real_places(emissions, lengths, self.num_tags)
        check_tags(tags, real, self.num_tags)
        emissions = emissions.masked_fill(~real.unsqueeze(2), 0)
        return Categorical(emissions).log_prob(tags.masked_fill(~real, 0)).masked_fill(~real, 0).sum(1)

    def marginals(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return p(y_t = k | e), (B, T, K); 0 in padding."""
        real = real_places(emissions, lengths, self.num_tags).unsqueeze(2)
        return Categorical(emissions.masked_fill(~real, 0)).probs.masked_fill(~real, 0)

    @torch.no_grad()
    def decode(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the most probable tags of each row, (B, T); -1 in padding."""
        return emissions.argmax(2).masked_fill(~real_places(emissions, lengths, self.num_tags), -1)

    def decode_n_best(self, emissions: Tensor, lengths: Tensor | None = None, *, n: int) -> tuple[Tensor, Tensor]:
        """Return the n most probable tag sequences of each row, best first, (B, n, T), and log p, (B, n), nats."""
        real_places(emissions, lengths, self.num_tags)
        chain = LinearChainCRF(self.num_tags).to(emissions.device)  # a new CRF has transition scores 0
        return chain.decode_n_best(emissions, lengths, n=n)

    @torch.no_grad()
    def sample(
        self, emissions: Tensor, lengths: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw tags of each row, (B, T); -1 in padding."""
        real = real_places(emissions, lengths, self.num_tags)
        scores = emissions.masked_fill(~real.unsqueeze(2), 0)
        return Categorical(scores).sample(generator=generator).masked_fill(~real, -1)

    def extra_repr(self) -> str:
        return f"num_tags={self.num_tags}"


class TagSequences(Head):
    """Distribution p(y | e) over the tag sequences y of B sentences, from a tag module and a network's emissions.

    Batch shape (B,), event shape (T,). Tags in padding are never read, and are -1 in results.

    Args:
        head: `LinearChainCRF` or `IndependentTags`.
        emissions: e, (B, T, K) real scores.
        lengths: (B,) lengths of the rows; None if no row is padded.

    >>> tags = TagSequences(IndependentTags(2), torch.tensor([[[1.0, 0.0], [0.0, 3.0]]]))
    >>> tags.mode, tags.log_prob(tags.mode).exp()
    (tensor([[0, 1]]), tensor([0.6964]))
    """

    def __init__(self, head: LinearChainCRF | IndependentTags, emissions: Tensor, lengths: Tensor | None = None):
        self.head, self.emissions, self.lengths = head, emissions, lengths
        super().__init__(emissions.shape[:1], emissions.shape[1:2], validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        """Sequences of T tags from 0 to K - 1; constraints of the head give some of them probability 0."""
        return constraints.independent(constraints.integer_interval(0, self.head.num_tags - 1), 1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p(y | e) of tags (B, T), (B,), nats."""
        return self.head.log_prob(value, self.emissions, self.lengths)

    @property
    def mode(self) -> Tensor:
        """Most probable tags of each row, (B, T)."""
        return self.head.decode(self.emissions, self.lengths)

    @property
    def marginals(self) -> Tensor:
        """Probabilities p(y_t = k | e), (B, T, K); 0 in padding."""
        return self.head.marginals(self.emissions, self.lengths)

    def n_best(self, n: int) -> tuple[Tensor, Tensor]:
        """Return the n most probable tag sequences and their log p; see `LinearChainCRF.decode_n_best`."""
        return self.head.decode_n_best(self.emissions, self.lengths, n=n)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw tags of shape sample_shape + (B, T)."""
        shape = torch.Size(sample_shape)
        count = shape.numel()
        lengths = None if self.lengths is None else self.lengths.repeat(count)
        drawn = self.head.sample(self.emissions.repeat(count, 1, 1), lengths, generator=generator)
        return drawn.view(*shape, *self.emissions.shape[:2])
