"""The distribution of whole sequences or images under an autoregressive model, given what it is conditioned on."""

from typing import Any

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel
from chainrule.heads._head import Head
from chainrule.state import count_rows


class Conditioned(Head):
    """p(x | c) of an autoregressive model as a distribution of batch shape (B,), whose event is a whole x."""

    def __init__(self, model: AutoregressiveModel, context: Tensor, event_shape: Any, eos: int | None = None):
        self.model, self.context, self.eos = model, context, eos
        super().__init__(torch.Size((count_rows(context),)), torch.Size(event_shape), validate_args=False)

    @property
    def support(self) -> Any:
        return None

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(x | c), (B,), nats; value (B, ...), a row for each context."""
        if self.eos is None:
            return self.model.log_prob(value, self.context)
        return self.model.log_prob(value, self.context, lengths_to(value, self.eos))

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw an x for each row of the context, sample_shape + (B,) + the shape of x."""
        shape = torch.Size(sample_shape)
        rows = self.context.expand(*shape, *self.context.shape).reshape(-1, *self.context.shape[1:])
        length = self._event_shape[0] if self.model.sequence_length is None else None
        drawn = self.model.sample(len(rows), rows, length=length, eos=self.eos, generator=generator)
        return drawn.view(*shape, *self._batch_shape, *drawn.shape[1:])

    def __repr__(self) -> str:
        return f"Conditioned({type(self.model).__name__}, batch_shape={tuple(self._batch_shape)})"


def lengths_to(x: Tensor, eos: int) -> Tensor:
    """Count the elements of each row (B, T) up to the first `eos`, including it, (B,).

    >>> lengths_to(torch.tensor([[1, 0, 0], [1, 2, 1]]), eos=0)
    tensor([2, 3])
    """
    ends = (x == eos).long()
    return (ends.cumsum(1) - ends == 0).sum(1)
