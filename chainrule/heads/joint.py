"""A head whose last axis of independent elements is one event."""

from typing import Any

import torch
from torch import Tensor

from chainrule.heads.head import Head


class Joint(Head):
    """The product over the last axis of a head's batch: batch shape (...), events (D,).

    Args:
        parts: a head of batch shape (..., D).
    """

    def __init__(self, parts: Head):
        self.parts = parts
        super().__init__(parts.batch_shape[:-1], parts.batch_shape[-1:] + parts.event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        return None

    def log_prob(self, value: Tensor) -> Tensor:
        """The sum over the last axis of the parts, (...), nats."""
        return self.parts.log_prob(value).sum(-1)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        return self.parts.sample(sample_shape, generator=generator)

    def __repr__(self) -> str:
        return f"Joint({self.parts})"
