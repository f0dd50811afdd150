"""A model in the order in which it visits the elements of x."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, distributions
from torch.distributions import Distribution

from chainrule.base import AutoregressiveModel, Context, Step
from chainrule.heads import Categorical, Head, head_of
from chainrule.heads.head import WrappedHead, broadcast_shapes
from chainrule.state import State
from chainrule.testing.values import PLAIN


def has_own_layout(model: AutoregressiveModel) -> bool:
    """Whether x is no sequence in visiting order: the model says how the one becomes the other."""
    base = AutoregressiveModel
    return type(model).to_sequence is not base.to_sequence or type(model).from_sequence is not base.from_sequence


class InVisitingOrder(AutoregressiveModel):
    """The same model of the sequences x_1 ... x_T: every check of the contract speaks of these.

    The methods are the model's own: `sample` with its result reordered, `forward` called with x in the model's
    layout.
    """

    def __init__(self, model: AutoregressiveModel):
        super().__init__()
        self.model = model
        self.sequence_length = model.sequence_length

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Distribution:
        laid_out = self.model.from_sequence(x)
        conditionals = self.model(laid_out, context, lengths)
        if not isinstance(conditionals, Distribution) or conditionals.batch_shape != laid_out.shape:
            return conditionals  # a violation, which the caller reports
        if type(conditionals).log_prob in PLAIN:
            assert isinstance(conditionals, distributions.Categorical)
            symbols = conditionals.logits.movedim(-1, 0)  # to_sequence moves elements: a table of them symbol by symbol
            rows = self.model.to_sequence(symbols.flatten(0, 1))
            return Categorical(rows.reshape(len(symbols), *x.shape).movedim(0, -1))
        return Visited(head_of(conditionals), self.model, x.shape)

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        return self.model.initial_state(batch_size, context)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Distribution, State]:
        return self.model.step(x_prev, state)

    def stepper(self) -> Step:
        return self.model.stepper()

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Distribution, State]:
        return self.model.unroll(x, state, x_prev)

    def shared(self, state: State) -> State:
        return self.model.shared(state)

    def useful_prefix(self, drawn: int) -> int | None:
        return self.model.useful_prefix(drawn)

    def visible_past(self, length: int) -> Tensor:
        return self.model.visible_past(length)

    def log_prob(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        return self.model.log_prob(self.model.from_sequence(x), context, lengths)

    def sample(self, *arguments: Any, **options: Any) -> Tensor:
        return self.model.to_sequence(self.model.sample(*arguments, **options))

    def stream(self, *arguments: Any, **options: Any) -> Iterator[Tensor]:
        return self.model.stream(*arguments, **options)


class Visited(WrappedHead):
    """The conditionals of `forward`, a batch of x as it is laid out, as a batch of sequences (B, T)."""

    def __init__(self, conditionals: Head, model: AutoregressiveModel, shape: torch.Size):
        self.conditionals, self.model = conditionals, model
        super().__init__(conditionals, shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """(..., B, T), nats; value (..., B, T), broadcast against the batch shape."""
        value = value.expand(broadcast_shapes(value.shape, self._batch_shape))
        laid_out = self.model.from_sequence(value.reshape(-1, value.shape[-1]))
        terms = self.conditionals.log_prob(laid_out.view(*value.shape[:-1], *laid_out.shape[1:]))
        return self.model.to_sequence(terms.reshape(laid_out.shape)).reshape(value.shape)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        drawn = self.conditionals.sample(sample_shape, generator=generator)
        rows = drawn.reshape(-1, *self.conditionals.batch_shape[1:])
        return self.model.to_sequence(rows).reshape(torch.Size(sample_shape) + self._batch_shape)
