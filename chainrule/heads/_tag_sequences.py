"""Distributions over the tag sequences of a batch of sentences: independent tags, or a chain of them."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import constraints

from chainrule._ranges import check_sizes
from chainrule.heads._categorical import Categorical
from chainrule.heads._head import Head
from chainrule.heads._linear_chain_crf import LinearChainCRF
from chainrule.heads._tag_constraints import check_tags, real_places


class IndependentTags(nn.Module):
    r"""A softmax over K tags at each place: a `LinearChainCRF` without scores of neighbours, and with its methods.

    .. math:: \log p(y \mid e) = \sum_{t=1}^{T} \left( e_t(y_t) - \log \sum_k e^{e_t(k)} \right)

    It has no weights. Arguments and results are those of `LinearChainCRF`.

    Args:
        num_tags: K.

    Raises:
        ValueError: `num_tags` is below 1.

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
        """log p(y | e) of each row, (B,), nats."""
        real = real_places(emissions, lengths, self.num_tags)
        check_tags(tags, real, self.num_tags)
        emissions = emissions.masked_fill(~real.unsqueeze(2), 0)
        return Categorical(emissions).log_prob(tags.masked_fill(~real, 0)).masked_fill(~real, 0).sum(1)

    def marginals(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """p(y_t = k | e), (B, T, K); 0 past each row's end."""
        real = real_places(emissions, lengths, self.num_tags).unsqueeze(2)
        return Categorical(emissions.masked_fill(~real, 0)).probs.masked_fill(~real, 0)

    @torch.no_grad()
    def decode(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The most probable tags of each row, (B, T); -1 past its end."""
        return emissions.argmax(2).masked_fill(~real_places(emissions, lengths, self.num_tags), -1)

    def decode_n_best(self, emissions: Tensor, lengths: Tensor | None = None, *, n: int) -> tuple[Tensor, Tensor]:
        """The n most probable tag sequences of each row, best first, (B, n, T), and their log p, (B, n), nats."""
        real_places(emissions, lengths, self.num_tags)
        chain = LinearChainCRF(self.num_tags).to(emissions.device)  # whose scores of neighbours are 0
        return chain.decode_n_best(emissions, lengths, n=n)

    @torch.no_grad()
    def sample(
        self, emissions: Tensor, lengths: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw tags of each row, (B, T); -1 past its end."""
        real = real_places(emissions, lengths, self.num_tags)
        scores = emissions.masked_fill(~real.unsqueeze(2), 0)
        return Categorical(scores).sample(generator=generator).masked_fill(~real, -1)

    def extra_repr(self) -> str:
        return f"num_tags={self.num_tags}"


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
