"""Causal attention and WaveNet's layers one element at a time, with their caches written in place; windowed attention.

The cache of a state is a stretch of a buffer with room behind it. A step writes behind the state that it made itself in
the step before, where no earlier state looks; any other state, a fork or one that was selected, is copied into a new
buffer first. So every state keeps its value, though almost none is copied.

`banded_attention` reads many elements at once, each with a bounded past, as bands of scores.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from chainrule.state import State

# Layers hand themselves over: a kernel imports none of them.
CausalAttention: TypeAlias = Any
DilatedStack: TypeAlias = Any


ROOM = 128  # elements, for attention at least, until a cache moves to a new buffer


class Rotary(NamedTuple):
    """The functions by which a layer turns queries and keys by their positions."""

    rotations: Callable[[Tensor, int, Tensor], Tensor]
    rotate: Callable[[Tensor, Tensor], Tensor]


class CausalAttentionSteps:
    """A function equal to `CausalAttention.step`, for many steps with the same weights.

    A full window of keys and values moves through its buffer as it grows; a buffer has room for twice the elements it
    holds, so that an element is copied once or twice in its life.
    """

    def __init__(self, layer: CausalAttention, rotary: Rotary | None):
        self.heads, self.groups, self.window, self.rotary = layer.num_heads, layer.num_kv_heads, layer.window, rotary
        self.head_size, slopes = layer.head_size, layer.slopes()
        self.like, bias = layer.out_proj.weight.detach(), layer.out_proj.bias
        self.project, self.output = layer.scaled_projection(), (self.like, None if bias is None else bias.detach())
        self.slopes = None if slopes is None else slopes.to(self.like).view(self.groups, -1, 1)
        self._last: State = None
        self._end = 0  # the first slot behind the last state
        self._buffer: _Buffer

    def __call__(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        if state is not self._last or self._end == self._buffer.keys.shape[2]:
            self._adopt(state)
        buffer = self._buffer
        self._end = end = self._end + 1
        length = min(self.window - 1, end)
        heads = nn.functional.linear(x_t.detach(), *self.project)
        read = self._read(heads, max(end - self.window, 0), end)
        keys, values = (cache.narrow(2, end - length, length) for cache in (buffer.keys, buffer.values))
        self._last = {"keys": keys, "values": values, "count": buffer.counts[end]}
        return nn.functional.linear(read, *self.output), self._last

    def _read(self, heads: Tensor, begin: int, end: int) -> Tensor:
        """Write the last element of a cache, and read it: (B, (H + 2G)d) to (B, D)."""
        buffer, rows, heads = self._buffer, len(heads), heads.unflatten(1, (-1, self.head_size))
        turned = heads[:, : -self.groups]
        if self.rotary is not None and buffer.turns is not None:
            turned = self.rotary.rotate(turned, buffer.turns[end - 1])
        buffer.keys[:, :, end - 1] = turned[:, self.heads :]
        buffer.values[:, :, end - 1] = heads[:, -self.groups :]
        queries = turned[:, : self.heads].reshape(rows * self.groups, self.heads // self.groups, self.head_size)
        # The heads of one key side by side: a product for each row and key head.
        scores = queries @ buffer.keys[:, :, begin:end].transpose(2, 3).flatten(0, 1)
        if buffer.penalties is not None:
            scores = scores.unflatten(0, (rows, -1)).sub(buffer.penalties[..., begin - end :]).flatten(0, 1)
        if buffer.empty is not None:
            empty = buffer.empty[..., begin:end]
            scores = scores.unflatten(0, (rows, -1)).masked_fill(empty, -torch.inf).flatten(0, 1)
        read = scores.softmax(-1) @ buffer.values[:, :, begin:end].flatten(0, 1)
        return read.view(rows, self.heads * self.head_size)

    def _adopt(self, state: State) -> None:
        """Copy the cache of a state into a buffer with room behind it."""
        keys, values, count = state["keys"], state["values"], state["count"]
        rows, groups, cached, size = keys.shape
        length = cached + max(cached, ROOM)
        copies = []
        # Written in place later, whatever mode the caller is in then.
        with torch.inference_mode(False), torch.no_grad():
            for cache in (keys, values):
                copies.append(self.like.new_empty(rows, groups, length, size))
                copies[-1][:, :, :cached] = cache
        # The position of the element in each slot, (slots, B); the slots before a row's first hold nothing.
        places = torch.arange(length + 1, device=keys.device).unsqueeze(1) - cached + count
        alike = bool((count == count[:1]).all())
        full = alike and bool((count >= cached).all())
        turns = None
        if self.rotary is not None:
            wanted = places[:, :1] if alike else places
            turns = self.rotary.rotations(wanted, size, keys).unsqueeze(2)  # (slots, B or 1, 1, d/2)
        penalties = None if self.slopes is None else self.slopes * torch.arange(length, device=keys.device).flip(0)
        empty = None if full else (places[:-1] < 0).t()[:, None, None]
        self._buffer = _Buffer(copies[0], copies[1], places.unbind(), turns, penalties, empty)
        self._end = cached


class _Buffer(NamedTuple):
    """A cache with room behind it."""

    keys: Tensor  # (B, G, slots, d)
    values: Tensor  # (B, G, slots, d)
    # (B,) elements that have been read before each slot is filled, for all slots and the one after them
    counts: tuple[Tensor, ...]
    turns: Tensor | None  # (slots + 1, B or 1, 1, d/2) of the element in each slot; see `rotations`
    # (G, H/G, slots) of the scores by ALiBi, for the last slots of a window the last ones; or None
    penalties: Tensor | None
    empty: Tensor | None  # (B, 1, 1, slots) which slots hold nothing; None where every slot holds something


_BLOCKS = (32, 128)  # queries of a block, fewest and most: products of small ones are slow, large ones read too much


def banded_attention(
    queries: Tensor, keys: Tensor, values: Tensor, window: int, slopes: Tensor | None = None
) -> Tensor:
    r"""Attention output of each query, (B, H, T, d), over its own key and the W − 1 keys before it.

    .. math:: y_t = \sum_{s = t - W + 1}^{t} \mathrm{softmax}_s(q_t^\top k_s / \sqrt d - m_h (t - s))\, v_s

    Each block of S queries reads the keys of the block itself and of the blocks before it that hold the W − 1 others,
    so that there are about T·(S + W) scores and not T². Keys and values are (B, G, n + T, d), n < W; the queries belong
    to the last T. `slopes` are m of ALiBi (Press et al. 2022), (H,); `None` is 0.
    """
    heads, time, size = queries.shape[1:]
    cached = keys.shape[2] - time
    block = min(max(window // 2, _BLOCKS[0]), _BLOCKS[1])
    blocks, earlier = -(-time // block), -(-(window - 1) // block)
    behind = blocks * block - time
    queries = nn.functional.pad(queries * size**-0.5, (0, 0, 0, behind)).unflatten(2, (blocks, block))

    def of_blocks(x: Tensor) -> Tensor:
        """(B, G, n + T, d) -> (B, H, blocks, keys of a block, d)."""
        x = x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)
        x = nn.functional.pad(x, (0, 0, earlier * block - cached, behind))
        x = x.unflatten(2, (earlier + blocks, block))
        return torch.cat([x[:, :, first : first + blocks] for first in range(earlier + 1)], 3)

    slots = torch.arange((blocks + earlier) * block, device=queries.device).unfold(0, (earlier + 1) * block, block)
    real = slots >= earlier * block - cached  # (blocks, keys of a block): what is before the first key is padding
    far = slots[0, -block:].unsqueeze(1) - slots[0]  # (S, keys of a block) from each key to each query
    read = _in_window(far, window) & real.unsqueeze(1)
    scores = queries @ of_blocks(keys).transpose(3, 4)
    bias = torch.zeros((), dtype=scores.dtype, device=scores.device).masked_fill(~read, -torch.inf)
    if slopes is not None:
        bias = bias - slopes.to(bias).view(-1, 1, 1, 1) * far
    weights = (scores + bias).softmax(-1)
    return (weights @ of_blocks(values)).flatten(2, 3)[:, :, :time]


def _in_window(far: Tensor, window: int) -> Tensor:
    return (far >= 0) & (far < window)


class PreparedDilatedStack:
    r"""A function equal to `DilatedStack.step`, for many steps with the same weights.

    The taps on past inputs are one product for all layers. Each layer then takes a product for its value and its gate,
    a tanh of both, and a product for the residual. :math:`\sigma(a) = (1 + \tanh(a/2))/2`, whose halves are in the
    weights. Products of this size cost no more than a call: on a CPU they are NumPy's, whose calls are cheap. Features
    come first and rows last, (N, B), so that all parts of an array are contiguous.
    """

    @torch.no_grad()
    def __init__(
        self,
        stack: DilatedStack,
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
