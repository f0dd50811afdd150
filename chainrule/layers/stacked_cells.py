"""The cells of a recurrent stack, taken apart for a loop that computes something between steps."""

import torch
from torch import Tensor, nn

from chainrule.layers.recurrent import Recurrent
from chainrule.state import State

Layers = list[tuple[Tensor, ...]]


class StackedCells:
    """One step after another of a `Recurrent`, its weights prepared once.

    Under autocast, weights are converted here and not at every step.

    Args:
        recurrent: in one direction; its dropout between layers and its mode are followed.

    >>> from chainrule.layers import GRU
    >>> recurrent, x = GRU(3, 4, num_layers=2), torch.randn(2, 3)
    >>> cells = StackedCells(recurrent)
    >>> layers = cells.step(cells.project(x), cells.layers_of(recurrent.initial_state(2)))
    >>> torch.allclose(cells.state_of(layers), recurrent.step(x, recurrent.initial_state(2))[1])
    True
    """

    def __init__(self, recurrent: Recurrent):
        self._recurrent = recurrent
        self._weights = [[multiplied(weight) for weight in weights] for weights in recurrent.all_weights]
        self._biases = [recurrent.input_bias(weights) for _, *weights in self._weights]

    def project(self, x: Tensor, first: int = 0, *, bias: bool = True) -> Tensor:
        """W_ih x + b of the lowest layer, of those of its inputs that begin at `first`; (.., N') -> (.., G·M)."""
        weight = self._weights[0][0][:, first : first + x.shape[-1]]
        return nn.functional.linear(x, weight, self._biases[0] if bias else None)

    def step(self, projected: Tensor, layers: Layers) -> Layers:
        """The parts of the state of each layer, h first, after a step; the lowest layer reads `projected`, (B, G·M)."""
        new: Layers = []
        for (weight_ih, *weights), bias, parts in zip(self._weights, self._biases, layers, strict=True):
            if new:
                below = nn.functional.dropout(new[-1][0], self._recurrent.dropout, self._recurrent.training)
                projected = nn.functional.linear(below, weight_ih, bias)
            new.append(self._recurrent.cell(projected, weights, list(parts)))
        return new

    def layers_of(self, state: State) -> Layers:
        """A state of the stack, layer by layer."""
        parts = state if self._recurrent.has_cell else (state,)
        return list(zip(*(part.unbind(1) for part in parts), strict=True))

    def state_of(self, layers: Layers) -> State:
        """The inverse of `layers_of`."""
        parts = tuple(torch.stack(part, 1) for part in zip(*layers, strict=True))
        return parts if self._recurrent.has_cell else parts[0]


def multiplied(weight: Tensor) -> Tensor:
    """A weight in the type in which matrices are multiplied here."""
    kind = weight.device.type
    return weight.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) and weight.dim() > 1 else weight
