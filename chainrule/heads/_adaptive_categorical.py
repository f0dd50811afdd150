"""The distribution of one symbol out of many, in clusters: rare symbols are seldom scored, and cheaply."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, distributions
from torch.nn.functional import linear

from chainrule.heads._categorical import Categorical, check_symbols, log_prob_at
from chainrule.kernels._transforms import values_are_known

Tail = tuple[Tensor, Tensor, Tensor]


class AdaptiveCategorical(Categorical):
    r"""A categorical distribution over V symbols in K + 1 clusters (Grave et al. 2017): exact, and cheap to train.

    With the shortlist :math:`0 \le v < n_0` and the symbols of cluster k numbered after those of cluster k - 1,

    .. math::
        p(v) &= \mathrm{softmax}(W_0 h + b_0)_v & v &\text{ in the shortlist} \\
        p(v) &= \mathrm{softmax}(W_0 h + b_0)_{n_0 + k - 1}\; \mathrm{softmax}(W_k P_k h + b_k)_{v - \ell_k}
        & v &\text{ in cluster } k, \text{ which begins at } \ell_k

    The V probabilities add up to 1. `log_prob` computes the scores of a cluster for those rows alone whose value is in
    it; `logits` and `probs` compute all of them, so that filters, beam search and scores are those of any categorical
    distribution.

    Args:
        features: (..., M) h.
        head: W_0 (n_0 + K, M) and b_0 (n_0 + K): the shortlist, then one score for each cluster.
        tails: of each cluster P_k (d_k, M), W_k (n_k, d_k) and b_k (n_k).

    Raises:
        ValueError: the shapes do not agree.

    Source: E. Grave, A. Joulin, M. Cissé, D. Grangier and H. Jégou, Efficient softmax approximation for GPUs, 2017.

    >>> head, tail = (torch.zeros(3, 4), torch.zeros(3)), (torch.zeros(1, 4), torch.zeros(2, 1), torch.zeros(2))
    >>> AdaptiveCategorical(torch.zeros(4), head, [tail]).probs  # two in the shortlist, two in a cluster
    tensor([0.3333, 0.3333, 0.1667, 0.1667])
    """

    def __init__(self, features: Tensor, head: tuple[Tensor, Tensor], tails: Sequence[Tail] = ()):
        _check_shapes(features, head, tails)
        self._features, self._head, self._tails = features, head, list(tails)
        self._shortlist = len(head[1]) - len(self._tails)
        self._num_events = self._shortlist + sum(len(bias) for _, _, bias in self._tails)
        distributions.Distribution.__init__(self, features.shape[:-1], validate_args=False)

    @property
    def _param(self) -> Tensor:  # type: ignore[override]  # a table that is made when it is asked for
        return self.logits

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return (self._features,)

    @property
    def settings(self) -> tuple[Any, ...]:
        return self._head, self._tails

    def categorical(self) -> Categorical:
        return Categorical(self.logits)

    @property
    def logits(self) -> Tensor:
        """Normalised log-probabilities of all symbols, (..., V), nats."""
        head = Categorical(linear(self._features, *self._head)).logits
        parts = [head[..., : self._shortlist]]
        for number, (projection, weight, bias) in enumerate(self._tails, self._shortlist):
            inside = Categorical(linear(linear(self._features, projection), weight, bias)).logits
            parts.append(head[..., number : number + 1] + inside)
        return torch.cat(parts, -1)

    @property
    def probs(self) -> Tensor:
        return self.logits.exp()

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), nats; value (...) of integers in [0, V), broadcast against the batch shape.

        Raises:
            ValueError: on a processor, a value outside [0, V).
        """
        if value.device.type == "cpu":
            check_symbols(value, self._num_events)
        if value.shape != self._batch_shape or not values_are_known(value):
            return Categorical(self.logits).log_prob(value)
        rows, symbols = self._features.reshape(-1, self._features.shape[-1]), value.reshape(-1).long().contiguous()
        starts = torch.tensor([start for start, _ in self._clusters()], device=symbols.device)
        cluster = torch.bucketize(symbols, starts, right=True)  # 0 is the shortlist
        in_head = torch.where(cluster == 0, symbols, self._shortlist - 1 + cluster)
        log_prob = log_prob_at(linear(rows, *self._head), in_head)
        # A cluster without a value still enters: its weights then get a gradient of zero, rather than no gradient.
        for number, (start, (projection, weight, bias)) in enumerate(self._clusters(), 1):
            members = (cluster == number).nonzero().squeeze(1)
            scores = linear(linear(rows.index_select(0, members), projection), weight, bias)
            log_prob = log_prob.index_add(0, members, log_prob_at(scores, symbols[members] - start))
        return log_prob.view(value.shape)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw integers of shape sample_shape + batch shape: one draw first chooses a cluster, then a symbol in it."""
        if torch.Size(sample_shape):
            return Categorical(self.logits.detach()).sample(sample_shape, generator=generator)
        rows = self._features.detach().reshape(-1, self._features.shape[-1])
        chosen = Categorical(linear(rows, *self._head)).sample(generator=generator)
        drawn = chosen
        for number, (start, (projection, weight, bias)) in enumerate(self._clusters(), self._shortlist):
            members = (chosen == number).nonzero().squeeze(1)
            if len(members):
                scores = linear(linear(rows.index_select(0, members), projection), weight, bias)
                inside = Categorical(scores).sample(generator=generator)
                drawn = drawn.index_copy(0, members, start + inside)
        return drawn.view(self._batch_shape)

    def _clusters(self) -> Iterator[tuple[int, Tail]]:
        """The first symbol and the weights of each cluster after the shortlist."""
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
    for number, (projection, rows, biases) in enumerate(tails, 1):
        size, width = len(biases), len(projection)
        if projection.shape != (width, weight.shape[1]) or rows.shape != (size, width) or biases.dim() != 1 or not size:
            raise ValueError(
                f"tails: expected (d, {weight.shape[1]}), (n, d) and (n,), n >= 1, for cluster {number}, "
                f"got {tuple(projection.shape)}, {tuple(rows.shape)} and {tuple(biases.shape)}"
            )
