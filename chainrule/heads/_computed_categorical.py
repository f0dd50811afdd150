"""Categorical distributions that compute their table of scores only on demand."""

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, cast

import torch
from torch import Tensor, distributions
from torch.distributions import Distribution
from torch.nn.functional import linear

from chainrule.heads._adapter import head_of
from chainrule.heads._categorical import Categorical, check_symbols, log_prob_at
from chainrule.heads._head import Head, broadcast_shapes
from chainrule.heads._real_mixtures import LocationScaleMixture
from chainrule.kernels._transforms import values_are_known

Tail = tuple[Tensor, Tensor, Tensor]


class _ComputedCategorical(Categorical):
    """Base class: subclasses define `logits`, or `_param`, and a `log_prob` that scores few symbols."""

    def __init__(self, batch_shape: torch.Size, num_events: int):
        self._num_events = num_events
        distributions.Distribution.__init__(self, batch_shape, validate_args=False)

    @property
    def _param(self) -> Tensor:  # type: ignore[override]  # Categorical stores a tensor
        return self.logits

    def categorical(self) -> Categorical:
        return Categorical(self._param)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        return self.categorical().sample(sample_shape, generator=generator)


class AdaptiveCategorical(_ComputedCategorical):
    r"""A categorical distribution over V symbols in K + 1 clusters (Grave et al. 2017): exact, and cheap to train.

    The shortlist holds the symbols :math:`0 \le v < n_0`; each cluster's symbols follow those in cluster k - 1:

    .. math::
        p(v) &= \mathrm{softmax}(W_0 h + b_0)_v & v &\text{ in the shortlist} \\
        p(v) &= \mathrm{softmax}(W_0 h + b_0)_{n_0 + k - 1}\; \mathrm{softmax}(W_k P_k h + b_k)_{v - \ell_k}
        & v &\text{ in cluster } k, \text{ which begins at } \ell_k

    The V probabilities sum to 1. `log_prob` computes a cluster's scores only for rows whose value is in it; `logits`
    and `probs` compute all scores, so filters and beam search work as for any categorical distribution.

    Args:
        features: (..., M) hidden features h.
        head: W_0 (n_0 + K, M) and b_0 (n_0 + K): the shortlist, then one score per cluster.
        tails: P_k (d_k, M), W_k (n_k, d_k) and b_k (n_k) of each cluster.

    Source: E. Grave, A. Joulin, M. Cissé, D. Grangier and H. Jégou, Efficient softmax approximation for GPUs, 2017.

    >>> head, tail = (torch.zeros(3, 4), torch.zeros(3)), (torch.zeros(1, 4), torch.zeros(2, 1), torch.zeros(2))
    >>> AdaptiveCategorical(torch.zeros(4), head, [tail]).probs  # two in the shortlist, two in a cluster
    tensor([0.3333, 0.3333, 0.1667, 0.1667])
    """

    def __init__(self, features: Tensor, head: tuple[Tensor, Tensor], tails: Sequence[Tail] = ()):
        _check_shapes(features, head, tails)
        self._features, self._head, self._tails = features, head, list(tails)
        self._shortlist = len(head[1]) - len(self._tails)
        super().__init__(features.shape[:-1], self._shortlist + sum(len(bias) for _, _, bias in self._tails))

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return (self._features,)

    @property
    def settings(self) -> tuple[Any, ...]:
        return self._head, self._tails

    @property
    def logits(self) -> Tensor:
        """Normalised log-probabilities of all symbols, (..., V), nats."""
        head = Categorical(linear(self._features, *self._head)).logits
        parts = [head[..., : self._shortlist]]
        for index, (projection, weight, bias) in enumerate(self._tails, self._shortlist):
            inside = Categorical(linear(linear(self._features, projection), weight, bias)).logits
            parts.append(head[..., index : index + 1] + inside)
        return torch.cat(parts, -1)

    @property
    def probs(self) -> Tensor:
        return self.logits.exp()

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p(value), nats; value (...) of integers in [0, V), broadcast against the batch shape."""
        if value.device.type == "cpu":
            check_symbols(value, self._num_events)
        if value.shape != self._batch_shape or not values_are_known(value):
            return Categorical(self.logits).log_prob(value)
        rows, symbols = self._features.reshape(-1, self._features.shape[-1]), value.reshape(-1).long().contiguous()
        starts = torch.tensor([start for start, _ in self._clusters()], device=symbols.device)
        cluster = torch.bucketize(symbols, starts, right=True)  # 0 is the shortlist
        in_head = torch.where(cluster == 0, symbols, self._shortlist - 1 + cluster)
        log_prob = log_prob_at(linear(rows, *self._head), in_head)
        # Include empty clusters, so that their weights get a gradient of zero instead of none.
        for number, (start, (projection, weight, bias)) in enumerate(self._clusters(), 1):
            members = (cluster == number).nonzero().squeeze(1)
            scores = linear(linear(rows.index_select(0, members), projection), weight, bias)
            log_prob = log_prob.index_add(0, members, log_prob_at(scores, symbols[members] - start))
        return log_prob.view(value.shape)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw integers of shape sample_shape + batch shape: first a cluster, then a symbol in it."""
        if torch.Size(sample_shape):
            return super().sample(sample_shape, generator=generator)
        rows = self._features.detach().reshape(-1, self._features.shape[-1])
        cluster = Categorical(linear(rows, *self._head)).sample(generator=generator)
        drawn = cluster
        for index, (start, (projection, weight, bias)) in enumerate(self._clusters(), self._shortlist):
            members = (cluster == index).nonzero().squeeze(1)
            if len(members):
                scores = linear(linear(rows.index_select(0, members), projection), weight, bias)
                inside = Categorical(scores).sample(generator=generator)
                drawn = drawn.index_copy(0, members, start + inside)
        return drawn.view(self._batch_shape)

    def _clusters(self) -> Iterator[tuple[int, Tail]]:
        """Yield the first symbol and the weights of each cluster after the shortlist."""
        start = self._shortlist
        for tail in self._tails:
            yield start, tail
            start += len(tail[2])

    def __repr__(self) -> str:
        sizes = [self._shortlist, *(len(bias) for _, _, bias in self._tails)]
        return f"AdaptiveCategorical(batch_shape={tuple(self._batch_shape)}, V={self._num_events}, clusters={sizes})"


def _check_shapes(features: Tensor, head: tuple[Tensor, Tensor], tails: Sequence[Tail]) -> None:
    weight, bias = head
    if weight.dim() != 2 or bias.shape != weight.shape[:1] or len(bias) <= len(tails):
        raise ValueError(
            f"head: expected weights (n + K, M) and biases (n + K), n >= 1, for K = {len(tails)} clusters, "
            f"got {tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    if features.dim() < 1 or features.shape[-1] != weight.shape[1]:
        raise ValueError(f"features: expected shape (..., {weight.shape[1]}), got {tuple(features.shape)}")
    for index, (projection, rows, biases) in enumerate(tails, 1):
        size, width = len(biases), len(projection)
        if projection.shape != (width, weight.shape[1]) or rows.shape != (size, width) or biases.dim() != 1 or not size:
            raise ValueError(
                f"tails: expected (d, {weight.shape[1]}), (n, d) and (n,), n >= 1, for cluster {index}, "
                f"got {tuple(projection.shape)}, {tuple(rows.shape)} and {tuple(biases.shape)}"
            )


def mean_of(conditionals: Sequence[Distribution], log_weights: Tensor | None = None) -> Head:
    r"""Average K distributions as :math:`\sum_k w_k p_k(x)`; all categorical, or all mixtures of one class."""
    heads = [head_of(conditional) for conditional in conditionals]
    if all(isinstance(head, Categorical) for head in heads):
        return CategoricalMean(cast("list[Categorical]", heads), log_weights)
    if all(isinstance(head, LocationScaleMixture) for head in heads):
        return LocationScaleMixture.mean_of(cast("list[LocationScaleMixture]", heads), log_weights)
    kinds = ", ".join(sorted({type(head).__name__ for head in heads}))
    raise TypeError(f"conditionals: expected only categorical distributions, or only mixtures, got {kinds}")


class CategoricalMean(_ComputedCategorical):
    r"""The average of K categorical distributions, as probabilities.

    .. math:: p(x = v) = \sum_{k=1}^{K} w_k\, p_k(x = v)

    `log_prob` scores only the symbols of the value in each distribution, so that a likelihood over a wide vocabulary
    allocates no table of all symbols.

    Args:
        parts: K >= 1 distributions over the same V symbols, of one batch shape.
        log_weights: (K,) log w, where the weights sum to 1; default 1/K each.

    Raises:
        ValueError: there are no parts, the parts differ in V or batch shape, or the number of weights is not K.

    >>> die, coin = torch.zeros(6), torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 0.0]).log()
    >>> CategoricalMean([Categorical(die), Categorical(coin)]).probs
    tensor([0.3333, 0.3333, 0.0833, 0.0833, 0.0833, 0.0833])
    """

    def __init__(self, parts: Sequence[Categorical], log_weights: Tensor | None = None):
        if not parts:
            raise ValueError("parts: expected at least one distribution, got none")
        if len({part.param_shape for part in parts}) > 1:
            shapes = ", ".join(str(tuple(part.param_shape)) for part in parts)
            raise ValueError(f"parts: expected one batch shape and number of symbols, got {shapes}")
        if log_weights is not None and log_weights.shape != (len(parts),):
            raise ValueError(f"log_weights: expected ({len(parts)},), got {tuple(log_weights.shape)}")
        self.parts, self._log_weights = tuple(parts), log_weights
        super().__init__(parts[0].batch_shape, parts[0].param_shape[-1])

    @property
    def _param(self) -> Tensor:  # type: ignore[override]  # Categorical stores a tensor
        return self._mean(torch.stack([part.logits for part in self.parts]))

    @property
    def logits(self) -> Tensor:
        return self.categorical().logits

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return tuple(parameter for part in self.parts for parameter in part.parameters)

    def with_parameters(self, *parameters: Tensor) -> "CategoricalMean":
        rest = iter(parameters)
        parts = [part.with_parameters(*islice(rest, len(part.parameters))) for part in self.parts]
        return CategoricalMean(parts, self._log_weights)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p(value), nats; value (...) of integers in [0, V), broadcast against the batch shape."""
        return self._mean(torch.stack([part.log_prob(value) for part in self.parts]))

    def _mean(self, terms: Tensor) -> Tensor:
        """Return log Σ w e^terms over the parts, (K, ...) -> (...)."""
        if self._log_weights is None:
            return terms.logsumexp(0) - math.log(len(self.parts))
        return (terms + self._log_weights.view(-1, *[1] * (terms.dim() - 1))).logsumexp(0)

    def _is_like(self, other: Head) -> bool:
        return (
            isinstance(other, CategoricalMean)
            and len(other.parts) == len(self.parts)
            and _same(other._log_weights, self._log_weights)
            and all(one._is_like(another) for one, another in zip(self.parts, other.parts, strict=True))
        )

    def __repr__(self) -> str:
        return f"CategoricalMean(batch_shape={tuple(self._batch_shape)}, V={self._num_events}, K={len(self.parts)})"


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))


class SymbolTable(Protocol):
    """Protocol of tables of the probabilities of V symbols after contexts, such as `chainrule.layers.KneserNey`."""

    vocab_size: int

    def log_prob(self, contexts: Tensor, x: Tensor, following: Tensor | None = None) -> Tensor:
        """Return log p of a symbol (...) after each context (..., C), nats; `following` are the contexts after it."""

    def probs(self, contexts: Tensor) -> Tensor:
        """Return p of every symbol after each context (..., C), (..., V)."""

    def other_contexts(self, contexts: Tensor, x: Tensor, following: Tensor | None = None) -> Tensor:
        """Return contexts (..., C) that rest on more than the symbol (...) after them."""


class LookedUpCategorical(_ComputedCategorical):
    """A categorical distribution, without gradients, that looks up contexts (..., C) in a table of probabilities.

    Args:
        contexts: (..., C) before each symbol.
        table: of probabilities.
        read: the symbols (...) that were read and the contexts (..., C) after each; they spare look-ups in `log_prob`
            of the same tensor of symbols.
        known: log p of these symbols (...), nats, if they were looked up already.
    """

    def __init__(
        self,
        contexts: Tensor,
        table: SymbolTable,
        read: tuple[Tensor, Tensor] | None = None,
        known: Tensor | None = None,
    ):
        self._contexts, self._table, self._read, self._known = contexts, table, read, known
        # a tensor of symbols may be changed in place after it was read
        self._version = -1 if read is None or read[0].is_inference() else read[0]._version
        super().__init__(contexts.shape[:-1], table.vocab_size)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return (self._contexts,)

    @property
    def settings(self) -> tuple[Any, ...]:
        return (self._table,)

    @property
    def logits(self) -> Tensor:
        """Normalised log-probabilities of all symbols, (..., V), nats."""
        return self.probs.log()

    @property
    def probs(self) -> Tensor:
        return self._table.probs(self._contexts)

    def entropy(self) -> Tensor:
        """Return the entropy (...), nats; of a table that leaves the symbols out that were read, without these."""
        contexts = self._contexts
        if self._read is not None:
            contexts = self._table.other_contexts(contexts, *self._read)
        return torch.special.entr(self._table.probs(contexts)).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p(value), nats; value (...) of integers in [0, V), broadcast against the batch shape."""
        if value.device.type == "cpu":
            check_symbols(value, self._num_events)
        if self._read is not None and value is self._read[0] and self._version >= 0 and value._version == self._version:
            if self._known is not None:
                return self._known
            return self._table.log_prob(self._contexts, value.long(), self._read[1])
        shape = broadcast_shapes(value.shape, self._batch_shape)
        contexts = self._contexts.expand(*shape, self._contexts.shape[-1])
        return self._table.log_prob(contexts, value.expand(shape).long())

    def __repr__(self) -> str:
        return f"LookedUpCategorical(batch_shape={tuple(self._batch_shape)}, V={self._num_events})"
