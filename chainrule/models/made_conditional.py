"""The distribution of a whole binary vector: a MADE under a given condition."""

from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from chainrule.heads import head_of
from chainrule.heads.head import Choose, Head
from chainrule.models.made import MADE

LISTED = 12  # features up to which all vectors are listed


class MADEConditional(Head):
    r"""p(x | h) of binary vectors x with D features, by a MADE that reads h.

    .. math:: \log p(x \mid h) = \sum_{d=1}^{D} \log p(x_d \mid x_{<d}, h)

    One pass gives the exact log-likelihood of any number of vectors, nats; a draw computes every unit of the MADE once.

    Args:
        made: a MADE with `context_size` N.
        h: (..., N) real numbers.

    >>> frames = MADEConditional(MADE(3, [8], context_size=4), torch.zeros(2, 5, 4))
    >>> frames.batch_shape, frames.event_shape, frames.log_prob(torch.ones(2, 5, 3)).shape
    (torch.Size([2, 5]), torch.Size([3]), torch.Size([2, 5]))
    """

    support = constraints.independent(constraints.boolean, 1)

    def __init__(self, made: MADE, h: Tensor):
        self.made, self.h, self.has_enumerate_support = made, h, made.num_features <= LISTED
        super().__init__(h.shape[:-1], torch.Size((made.num_features,)), validate_args=False)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Every vector, (2^D, 1, ..., D), or (2^D, ..., D) of the batch shape, expanded.

        Raises:
            NotImplementedError: D is above 12.
        """
        size = self.made.num_features
        if size > LISTED:
            raise NotImplementedError(f"2^{size} vectors are too many to list")
        values = torch.tensor(list(product((0.0, 1.0), repeat=size)), dtype=self.h.dtype, device=self.h.device)
        values = values.view(-1, *[1] * len(self._batch_shape), size)
        return values.expand(-1, *self._batch_shape, size) if expand else values

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), nats; value (..., D) of 0 and 1, broadcast against the batch shape."""
        size = self.made.num_features
        if value.shape[-1:] != (size,):
            raise ValueError(f"value: expected (..., {size}) of 0 and 1, got {tuple(value.shape)}")
        shape = torch.broadcast_shapes(value.shape[:-1], self._batch_shape)
        rows = value.expand(*shape, size).reshape(-1, size)
        h = self.h.expand(*shape, self.h.shape[-1]).reshape(-1, self.h.shape[-1])
        return self.made.log_prob(rows, h).view(shape)

    def code(self, choose: Choose, value: Tensor | None = None) -> Tensor:
        """Write or read the D features (B, D) one after the other, in the order in which the MADE visits them."""
        step, state = self.made.stepper(), self.made.initial_state(len(self.h), self.h)
        sequence = None if value is None else self.made.to_sequence(value)
        known: list[Tensor] = []
        for place in range(self.made.num_features):
            conditional, state = step(known[-1] if known else None, state)
            known.append(head_of(conditional).code(choose, None if sequence is None else sequence[:, place]))
        return self.made.from_sequence(torch.stack(known, 1))

    @torch.no_grad()
    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw vectors of 0 and 1, of shape sample_shape + batch shape + (D,)."""
        shape = torch.Size(sample_shape) + self._batch_shape
        h = self.h.expand(*shape, self.h.shape[-1]).reshape(-1, self.h.shape[-1])
        if not len(h):
            return self.h.new_zeros(*shape, self.made.num_features)
        return self.made.sample(len(h), h, generator=generator).view(*shape, -1)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "MADEConditional":
        return MADEConditional(self.made, self.h.expand(*torch.Size(batch_shape), -1))

    def __repr__(self) -> str:
        return f"MADEConditional(batch_shape={tuple(self._batch_shape)}, D={self.made.num_features})"
