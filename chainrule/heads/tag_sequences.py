"""The distribution over the whole tag sequences of a batch of sentences, as a tagger gives it."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from chainrule.heads.head import Head
from chainrule.heads.independent_tags import IndependentTags
from chainrule.heads.linear_chain_crf import LinearChainCRF


class TagSequences(Head):
    """p(y | e) over tag sequences y of B sentences, from a module and the emissions that a network gives it.

    Batch shape (B,), event shape (T,). Tags past a row's end are never read, and are -1 where they are returned.

    Args:
        head: `LinearChainCRF` or `IndependentTags`.
        emissions: e, (B, T, K) real scores.
        lengths: (B,) real places of each row; None where all are.

    >>> tags = TagSequences(IndependentTags(2), torch.tensor([[[1.0, 0.0], [0.0, 3.0]]]))
    >>> tags.mode, tags.log_prob(tags.mode).exp()
    (tensor([[0, 1]]), tensor([0.6964]))
    """

    def __init__(self, head: LinearChainCRF | IndependentTags, emissions: Tensor, lengths: Tensor | None = None):
        self.head, self.emissions, self.lengths = head, emissions, lengths
        super().__init__(emissions.shape[:1], emissions.shape[1:2], validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        """T tags from 0 to K - 1; constraints of the head give some of the sequences probability 0."""
        return constraints.independent(constraints.integer_interval(0, self.head.num_tags - 1), 1)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y | e) of tags (B, T), (B,), nats."""
        return self.head.log_prob(value, self.emissions, self.lengths)

    @property
    def mode(self) -> Tensor:
        """The most probable tags of each row, (B, T)."""
        return self.head.decode(self.emissions, self.lengths)

    @property
    def marginals(self) -> Tensor:
        """p(y_t = k | e), (B, T, K); 0 past each row's end."""
        return self.head.marginals(self.emissions, self.lengths)

    def n_best(self, n: int) -> tuple[Tensor, Tensor]:
        """The n most probable tag sequences of each row, best first, (B, n, T), and their log p, (B, n), nats.

        Where a row has fewer than n, the rest are -inf, with tags -1.
        """
        return self.head.decode_n_best(self.emissions, self.lengths, n=n)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw tags of shape sample_shape + (B, T)."""
        shape = torch.Size(sample_shape)
        count = shape.numel()
        lengths = None if self.lengths is None else self.lengths.repeat(count)
        drawn = self.head.sample(self.emissions.repeat(count, 1, 1), lengths, generator=generator)
        return drawn.view(*shape, *self.emissions.shape[:2])
