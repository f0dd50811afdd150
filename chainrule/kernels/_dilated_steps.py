"""WaveNet's layers one element at a time, with their queues written in place."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from chainrule.state import State

if TYPE_CHECKING:
    from chainrule.layers._dilated_stack import DilatedStack

ROOM = 128  # steps until the queues move to a new buffer


class PreparedDilatedStack:
    r"""A function equal to `DilatedStack.step`, for many steps with the same weights.

    The taps on past inputs are one product for all layers. Each layer then takes a product for its value and its gate,
    a tanh of both, and a product for the residual. :math:`\sigma(a) = (1 + \tanh(a/2))/2`, whose halves are in the
    weights. Products of this size cost no more than a call: on a CPU they are NumPy's, whose calls are cheap. Features
    come first and rows last, (N, B), so that all parts of an array are contiguous.

    A step writes behind the queues into the buffer of the state that it made itself in the step before, where no
    earlier state looks; any other state, a fork or one that was selected, is copied first. So every state keeps its
    value, though almost none is copied.
    """

    @torch.no_grad()
    def __init__(
        self,
        stack: "DilatedStack",
        features: Tensor | None = None,
        linears: Sequence[nn.Linear] = (),
        *,
        in_numpy: bool | None = None,
    ):
        layers, self.stack, self.like = stack.convolutions, stack, stack.residual.detach()
        self.in_numpy = _numpy_may_compute(self.like) if in_numpy is None else in_numpy
        self.functions: Any = np if self.in_numpy else torch  # functions of one name in both
        self.channels = channels = self.like.shape[-1]
        taps = torch.stack([layer.weight.permute(2, 1, 0) for layer in layers])  # (L, k, N, 2N)
        halves = self.like.new_ones(2 * channels)
        halves[channels:] = 0.5
        self.halves = halves.unsqueeze(1)
        self.bias = torch.stack([cast(Tensor, layer.bias) for layer in layers]).unsqueeze(2) * self.halves
        self.past = self._array((taps[:, :-1] * halves).flatten(1, 2).transpose(1, 2))  # (L, 2N, (k - 1)N)
        self.present = list(self._array((taps[:, -1] * halves).transpose(1, 2)))
        self.residual = list(self._array(self.like.transpose(1, 2) / 2))
        self.features = None if features is None else self._array(features.t())
        self.linears = [
            (self._array(linear.weight / (1 if index else 2)), self._array(linear.bias.unsqueeze(1)))
            for index, linear in enumerate(linears)
        ]
        self.zero = self._array(self.like.new_zeros(1))
        self.starts = stack.starts(ROOM)
        places = [
            [start + tap * layer.dilation for start, layer in zip(self.starts, layers, strict=False)]
            for tap in range(taps.shape[1] - 1)
        ]
        self.read = self._array(torch.tensor(places, device=self.like.device).t().flatten())
        self.write = [start + past for start, past in zip(self.starts, stack.pasts, strict=False)]
        self._last: State = None
        self._grown = 0

    def __call__(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        if state is not self._last or self._grown == ROOM:
            self._adopt(state)
        functions, buffer, grown = self.functions, self._buffer, self._grown
        dot = functions.dot if self.in_numpy else functions.mm
        add, multiply, tanh = functions.add, functions.multiply, functions.tanh
        sums, values, openings, change = self._sums, self._values, self._openings, self._change
        read = buffer[self.read + grown].reshape(len(self.present), self.past.shape[2], len(x_t))  # (L, (k - 1)N, B)
        sums_before = functions.matmul(self.past, read)
        sums_before += self._base
        h = buffer[self.write[0] + grown]
        x = self._array(x_t)
        h[...] = x.T if self.features is None else self.features[:, x]
        for layer, gated in enumerate(self._gated):
            dot(self.present[layer], h, out=sums)
            add(sums, sums_before[layer], out=sums)
            tanh(sums, out=sums)
            add(openings, 1, out=openings)
            multiply(values, openings, out=gated)
            if layer < len(self.residual):
                dot(self.residual[layer], gated, out=change)
                after = buffer[self.write[layer + 1] + grown]
                add(h, change, out=after)
                h = after
        self._grown += 1
        self._last = {"bias": state["bias"], "past": self._past, "end": self._ends[self._grown]}
        features = self._found
        for index, (weight, bias) in enumerate(self.linears):
            if index:
                features = functions.maximum(features, self.zero)
            features = dot(weight, features)
            features += bias
        if not self.linears:
            features = features * 0.5
        # In the layout of a pass: noise is drawn in the order of memory.
        return (torch.from_numpy(features) if self.in_numpy else features).t().contiguous(), self._last

    def _adopt(self, state: State) -> None:
        """Copy the queues of a state into a buffer with room behind each."""
        queues = [queue.to(self.like) for queue in self.stack.queues(state)]
        batch, channels = len(queues[0]), self.channels
        buffer = self.like.new_empty(self.starts[-1], channels, batch)
        for start, queue in zip(self.starts, queues, strict=False):
            buffer[start : start + queue.shape[1]] = queue.permute(1, 2, 0)
        bias = state["bias"]
        base = self.bias if bias is None else self.bias + bias.permute(1, 2, 0) * self.halves
        self._past, self._buffer, self._base = buffer.permute(2, 0, 1), self._array(buffer), self._array(base)
        self._ends = torch.arange(ROOM + 1, device=buffer.device).unsqueeze(1).expand(-1, batch).unbind(0)
        self._found = self._array(buffer.new_empty(len(self.present) * channels, batch))
        self._gated = [self._found[start : start + channels] for start in range(0, len(self._found), channels)]
        self._sums, self._change = (self._array(buffer.new_empty(size, batch)) for size in (2 * channels, channels))
        self._values, self._openings = self._sums[:channels], self._sums[channels:]
        self._grown = 0

    def _array(self, tensor: Tensor) -> Any:
        tensor = tensor.detach()
        return np.ascontiguousarray(tensor.numpy()) if self.in_numpy else tensor.contiguous()


def _numpy_may_compute(tensor: Tensor) -> bool:
    """Return whether NumPy may take over a tensor's operations: no dispatch mode needs to see them."""
    supported = tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.float64)
    return supported and _get_current_dispatch_mode() is None
