"""Put the distributions of successive elements side by side."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from chainrule.heads.categorical import Categorical


def stack(conditionals: Sequence[Distribution]) -> Distribution:
    """Join T distributions of batch shape (B,) into one of batch shape (B, T)."""
    if all(isinstance(conditional, torch.distributions.Categorical) for conditional in conditionals):
        return Categorical(torch.stack([conditional.logits for conditional in conditionals], 1))
    return Stacked(conditionals)


class Stacked(Distribution):
    """T distributions of any kind over the elements of a sequence; a value is (B, T, ...)."""

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(self, conditionals: Sequence[Distribution]):
        self.conditionals = list(conditionals)
        first = self.conditionals[0]
        shape = torch.Size((first.batch_shape[0], len(self.conditionals), *first.batch_shape[1:]))
        super().__init__(shape, first.event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        return self.conditionals[0].support

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]  # a class attribute in torch, a fact about parts here
        return self.conditionals[0].has_enumerate_support

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Every value of one element, (K, 1, 1, ...), or (K, B, T, ...) expanded."""
        values = self.conditionals[0].enumerate_support(expand=False).unsqueeze(1)
        return values.expand(-1, *self._batch_shape, *self._event_shape) if expand else values

    def log_prob(self, value: Tensor) -> Tensor:
        """(B, T), nats."""
        return torch.stack([part.log_prob(value[:, t]) for t, part in enumerate(self.conditionals)], 1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        dim = len(torch.Size(sample_shape)) + 1
        return torch.stack([part.sample(torch.Size(sample_shape)) for part in self.conditionals], dim)
