"""Put the distributions of successive elements side by side."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from chainrule.heads.bernoulli import Bernoulli
from chainrule.heads.categorical import Categorical
from chainrule.heads.location_scale_mixture import LocationScaleMixture


def stack(conditionals: Sequence[Distribution]) -> Distribution:
    """Join T distributions of batch shape (B,) into one of batch shape (B, T)."""
    scores = [part.logits for part in conditionals if isinstance(part, torch.distributions.Categorical)]
    if len(scores) == len(conditionals):
        return Categorical(torch.stack(scores, 1))
    scores = [part.logits for part in conditionals if isinstance(part, torch.distributions.Bernoulli)]
    if len(scores) == len(conditionals):
        return Bernoulli(torch.stack(scores, 1))
    mixtures = [part for part in conditionals if isinstance(part, LocationScaleMixture)]
    kinds = {(type(part), part.logits.shape[-1], getattr(part, "levels", None)) for part in mixtures}
    if len(mixtures) == len(conditionals) and len(kinds) == 1:
        parameters = zip(*(part.parameters for part in mixtures), strict=True)
        return mixtures[0].with_parameters(*(torch.stack(rows, 1) for rows in parameters))
    return Stacked(conditionals)


class Stacked(Distribution):
    """T distributions of any kind over the elements of a sequence; a value is (B, T, ...)."""

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}

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
        """(..., B, T), nats; value (..., B, T) and the event shape, broadcast against the batch shape."""
        value = value.expand(torch.broadcast_shapes(value.shape, self._batch_shape + self._event_shape))
        after = len(self._batch_shape) - 2  # axes of the batch that follow time
        elements = value.unbind(-1 - after - len(self._event_shape))
        terms = [part.log_prob(element) for part, element in zip(self.conditionals, elements, strict=True)]
        return torch.stack(terms, -1 - after)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        dim = len(torch.Size(sample_shape)) + 1
        return torch.stack([part.sample(torch.Size(sample_shape)) for part in self.conditionals], dim)
