"""A WaveNet one element at a time, with its weights laid out for it and its queues written in place."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule.models.wavenet_queues import Queues
from chainrule.state import State

ROOM = 128  # steps until the queues move to a new buffer


class WaveNetSteps:
    """A function equal to `WaveNet.step`, for many steps with the same weights.

    The taps in the past are one product of all layers; after it a layer is a product for its value and its opening, a
    tanh for both, and a product for the residual. :math:`\\sigma(a) = (1 + \\tanh(a/2))/2`, whose halves are in the
    weights. Products of this size cost no more than a call: on a CPU they are NumPy's, whose calls are cheap. Features
    come first and rows last, (N, B), so that all parts of an array are contiguous.

    A step writes behind the queues into the buffer of the state that it made itself in the step before, where no
    earlier state looks; any other state, a fork or one that was selected, is copied first. So every state stays what it
    was, though almost none is copied.

    Args:
        queues: of the layers.
        dilations: d of each layer.
        embedded: (V + 1, N) inputs of the first layer for every element, the start symbol last.
        taps: (L, k, N, 2N), the oldest first.
        bias: (L, 2N).
        residual: (L - 1, N, N).
        linears: weight and bias of the three products from the layers to the scores.
        head: from scores (B, ..) and the elements before (B,) to the conditional.
        in_numpy: whether products are NumPy's; by default on a CPU, in the number formats that it knows.
    """

    def __init__(
        self,
        queues: Queues,
        dilations: Sequence[int],
        embedded: Tensor,
        taps: Tensor,
        bias: Tensor,
        residual: Tensor,
        linears: Sequence[tuple[Tensor, Tensor]],
        head: Callable[[Tensor, Tensor], Distribution],
        *,
        in_numpy: bool | None = None,
    ):
        known = embedded.device.type == "cpu" and embedded.dtype in (torch.float32, torch.float64)
        self.in_numpy = known if in_numpy is None else in_numpy
        self.functions: Any = np if self.in_numpy else torch  # what is called has one name in both
        self.queues, self.head = queues, head
        layers, taps_each, channels, _ = taps.shape
        self.like, self.layers, self.channels, self.start = embedded, layers, channels, len(embedded) - 1
        halves = torch.ones(2 * channels, dtype=bias.dtype, device=bias.device)
        halves[channels:] = 0.5
        self.halves, self.bias = halves.unsqueeze(1), (bias * halves).unsqueeze(2)
        self.embedded = self._array(embedded.t())
        self.past = self._array((taps[:, :-1] * halves).flatten(1, 2).transpose(1, 2))  # (L, 2N, (k - 1)N)
        self.present = list(self._array((taps[:, -1] * halves).transpose(1, 2)))
        self.residual = list(self._array(residual.transpose(1, 2) / 2))
        (skip, _), *_ = linears
        self.linears = [
            (self._array(weight / 2 if weight is skip else weight), self._array(offset.unsqueeze(1)))
            for weight, offset in linears
        ]
        starts = queues.starts(ROOM)
        self.rows = starts[-1]
        places = [
            [start + tap * dilation for start, dilation in zip(starts, dilations, strict=False)]
            for tap in range(taps_each - 1)
        ]
        self.read = self._array(torch.tensor(places, device=embedded.device).t().flatten())
        self.write = [start + length for start, length in zip(starts, queues.lengths, strict=False)]
        self._last: State = None
        self._grown = 0

    def __call__(self, x_prev: Tensor | None, state: State) -> tuple[Distribution, State]:
        if x_prev is None:
            x_prev = torch.full_like(state["end"], self.start)
        if state is not self._last or self._grown == ROOM:
            self._adopt(state)
        scores = self._scores(self._array(x_prev))
        self._grown += 1
        self._last = {**state, "past": self._past, "end": self._ends[self._grown]}
        # In the layout of a pass: noise is drawn in the order of memory.
        scores = (torch.from_numpy(scores) if self.in_numpy else scores).t().contiguous()
        return self.head(scores, x_prev), self._last

    def _scores(self, symbols: Any) -> Any:
        functions, buffer, grown = self.functions, self._buffer, self._grown
        dot = functions.dot if self.in_numpy else functions.mm
        add, multiply, tanh = functions.add, functions.multiply, functions.tanh
        sums, values, openings, change = self._sums, self._values, self._openings, self._change
        read = buffer[self.read + grown].reshape(self.layers, -1, len(symbols))  # (L, (k - 1)N, B)
        known = functions.matmul(self.past, read)
        known += self._base
        h = buffer[self.write[0] + grown]
        h[...] = self.embedded[:, symbols]
        for layer, gated in enumerate(self._gated):
            dot(self.present[layer], h, out=sums)
            add(sums, known[layer], out=sums)
            tanh(sums, out=sums)
            add(openings, 1, out=openings)
            multiply(values, openings, out=gated)
            if layer < len(self.residual):
                dot(self.residual[layer], gated, out=change)
                after = buffer[self.write[layer + 1] + grown]
                add(h, change, out=after)
                h = after
        found = self._found
        for place, (weight, bias) in enumerate(self.linears):
            if place:
                found = functions.maximum(found, self._zero)
            found = dot(weight, found)
            found += bias
        return found

    def _adopt(self, state: State) -> None:
        """Copy the queues of a state into a buffer with room behind each."""
        past = self.queues.of(state).to(self.like)
        batch, channels = len(past), self.channels
        buffer = past.new_empty(self.rows, channels, batch)
        for start, queue in zip(self.queues.starts(ROOM), past.split(self.queues.lengths, 1), strict=False):
            buffer[start : start + queue.shape[1]] = queue.permute(1, 2, 0)
        label_bias = state["label_bias"]
        base = self.bias if label_bias is None else self.bias + label_bias.permute(1, 2, 0) * self.halves
        self._past, self._buffer, self._base = buffer.permute(2, 0, 1), self._array(buffer), self._array(base)
        self._ends = torch.arange(ROOM + 1, device=past.device).unsqueeze(1).expand(-1, batch).unbind(0)
        self._found = self._array(past.new_empty(self.layers * channels, batch))
        self._gated = [self._found[start : start + channels] for start in range(0, len(self._found), channels)]
        self._sums, self._change = (self._array(past.new_empty(size, batch)) for size in (2 * channels, channels))
        self._values, self._openings = self._sums[:channels], self._sums[channels:]
        self._zero = self._array(past.new_zeros(1))
        self._grown = 0

    def _array(self, tensor: Tensor) -> Any:
        tensor = tensor.detach()
        return np.ascontiguousarray(tensor.numpy()) if self.in_numpy else tensor.contiguous()
