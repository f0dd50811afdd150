"""Sequence layers one after the other."""

from collections.abc import Iterable, Iterator
from typing import cast

from torch import Tensor, nn

from chainrule.layers.sequence_layer import LayerStep, SequenceLayer
from chainrule.state import State


class Serial(SequenceLayer):
    """A stack of sequence layers, itself one: the output of each is the input of the next.

    The state is the tuple of the layers' states.

    Args:
        layers: from the input on.

    >>> import torch
    >>> from chainrule.layers import CausalAttention
    >>> stack = Serial(CausalAttention(4, num_heads=1, window=3) for _ in range(2))
    >>> y, state = stack(torch.randn(1, 5, 4))
    >>> y.shape, len(state)
    (torch.Size([1, 5, 4]), 2)
    """

    def __init__(self, layers: Iterable[SequenceLayer]):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def __iter__(self) -> Iterator[SequenceLayer]:
        return iter(cast(list[SequenceLayer], list(self.layers)))

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        states = [None] * len(self.layers) if state is None else state
        after = []
        for layer, before in zip(self, states, strict=True):
            x, following = layer(x, before, lengths)
            after.append(following)
        return x, tuple(after)

    def initial_state(self, batch_size: int) -> State:
        return tuple(layer.initial_state(batch_size) for layer in self)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        return _stepped([layer.step for layer in self], x_t, state)

    def prepare(self) -> LayerStep:
        steps = [layer.prepare() for layer in self]
        return lambda x_t, state: _stepped(steps, x_t, state)


def _stepped(steps: list[LayerStep], x_t: Tensor, state: State) -> tuple[Tensor, State]:
    after = []
    for step, before in zip(steps, state, strict=True):
        x_t, following = step(x_t, before)
        after.append(following)
    return x_t, tuple(after)
