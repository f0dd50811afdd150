"""Causal self-attention over a bounded past, as a sequence layer."""

from typing import final

import torch
from torch import Tensor

from chainrule._ranges import check_sizes
from chainrule.kernels import enabled
from chainrule.kernels._cached_steps import CausalAttentionSteps, Rotary, banded_attention
from chainrule.kernels._transforms import may_prepare, values_are_known
from chainrule.layers._multi_head_attention import (
    MultiHeadAttention,
    attention_weights,
    distances,
    scaled_dot_product,
    visible_keys,
)
from chainrule.layers._positions import distance_slopes, rotate, rotations
from chainrule.layers._sequence_layer import LayerStep, SequenceLayer, stepping
from chainrule.state import State

_BANDED = 6  # windows in a chunk from which bands of scores are faster than all of them with a mask


@final
class CausalAttention(MultiHeadAttention, SequenceLayer):
    r"""Multi-head attention in which each element reads itself and the elements before it, the last W in all.

    .. math:: y_t = W_o\,[\mathrm{head}_h]_h + b_o, \qquad
        \mathrm{head}_h = \sum_{s = t - W + 1}^{t} \alpha_{ts} v_s, \qquad
        \alpha_{ts} \propto \exp(q_t^\top k_s / \sqrt d)

    The state is the cache: the keys and values of the last W − 1 elements at most, whatever the length of the stream,
    the newest last, and how many elements each row has read. For every element it holds 2·G·d numbers. Rows may have
    read different numbers of elements. Any chunking of a sequence gives the same as the whole, also where a chunk
    crosses the window's edge.

    `forward` and `step` copy the cache into a new state. `prepare` returns a step that writes into room behind the
    keys of the state it made last, so that growing costs a constant time for each element; a state it returned stays
    what it was. See `MultiHeadAttention` for the weights, which move to and from torch.nn.

    Args:
        model_size: D, a multiple of `num_heads`.
        num_heads: H, of queries.
        window: W, elements that a query may read, itself included.
        num_kv_heads: G, of keys and values, a divisor of H; `None` is H.
        position: "rotary", "alibi" or `None`.
        bias: whether the projections have biases.

    >>> layer = CausalAttention(model_size=8, num_heads=2, window=3)
    >>> x = torch.randn(2, 5, 8)
    >>> whole, _ = layer(x)
    >>> first, state = layer(x[:, :4])
    >>> last, state = layer.step(x[:, 4], state)
    >>> torch.allclose(whole[:, 4], last, atol=1e-6), state["keys"].shape
    (True, torch.Size([2, 2, 2, 4]))
    """

    def __init__(
        self,
        model_size: int,
        num_heads: int,
        window: int,
        *,
        num_kv_heads: int | None = None,
        position: str | None = "rotary",
        bias: bool = True,
    ):
        super().__init__(model_size, num_heads, num_kv_heads=num_kv_heads, position=position, bias=bias)
        check_sizes(window=window)
        self.window = window

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        x, real = self._checked(x, lengths)
        queries, keys, values, even, state = self._read(x, state)
        if even and enabled() and x.shape[1] >= _BANDED * self.window:
            heads = banded_attention(queries, keys, values, self.window, self.slopes())
        else:
            mask = self._mask(queries, keys, even, state)
            heads = scaled_dot_product(queries, keys, values, mask, causal=mask is None and x.shape[1] > 1)
        y = self._joined(heads)
        if real is not None:
            y = y * real.unsqueeze(2)
        return y, self._after(keys, values, state, x.shape[1], lengths)

    def initial_state(self, batch_size: int) -> State:
        """Return an empty cache: "keys" and "values" (B, G, 0, d), "count" (B,) elements read."""
        weight, shape = self.in_proj_weight, (batch_size, self.num_kv_heads, 0, self.head_size)
        empty = torch.zeros(shape, dtype=weight.dtype, device=weight.device)  # a tensor where the weight is divided
        count = torch.zeros(batch_size, dtype=torch.long, device=empty.device)
        return {"keys": empty, "values": empty, "count": count}

    def prepare(self) -> LayerStep:
        if not may_prepare(self):
            return stepping(self)
        return CausalAttentionSteps(self, Rotary(rotations, rotate) if self.position == "rotary" else None)

    def scaled_projection(self) -> tuple[Tensor, Tensor | None]:
        """Return the weights and biases of queries, divided by √d, keys and values, without gradients."""
        scale = torch.ones_like(self.in_proj_weight[:, :1].detach())
        scale[: self.model_size] = self.head_size**-0.5
        bias = self.in_proj_bias
        return self.in_proj_weight.detach() * scale, None if bias is None else bias.detach() * scale.squeeze(1)

    def slopes(self) -> Tensor | None:
        """Return ALiBi's slope of each head, (H,); `None` for other positions."""
        alibi = self.position == "alibi"
        return distance_slopes(self.num_heads, self.in_proj_weight.device) if alibi else None

    def attended(self, x: Tensor, state: State = None) -> Tensor:
        """α of a chunk, (B, H, T, n + T), n elements in the cache; 0 where a query may not read."""
        x, _ = self._checked(x, None)
        queries, keys, _, even, state = self._read(x, state)
        mask = self._mask(queries, keys, even, state)
        if mask is None:
            mask = visible_keys(x.shape[1], keys.shape[2] - x.shape[1], self.window, x.device)
        return attention_weights(queries, keys, mask)

    def _read(self, x: Tensor, state: State) -> tuple[Tensor, Tensor, Tensor, bool, State]:
        """Queries of the chunk, keys and values of the cache and the chunk, and the state before.

        The fourth says whether all rows have read equally many elements before.
        """
        fresh = state is None
        state = self._checked_state(state, len(x))
        time = x.shape[1]
        first = 0 if fresh else _common(state["count"], state["keys"].shape[2])
        if first is None:
            positions = state["count"].unsqueeze(1) + torch.arange(time, device=x.device)
        else:
            positions = torch.arange(first, first + time, device=x.device)
        queries, keys, values = self._heads(x, positions)
        if state["keys"].shape[2]:
            keys = torch.cat([state["keys"].to(keys.dtype), keys], 2)
            values = torch.cat([state["values"].to(values.dtype), values], 2)
        return queries, keys, values, first is not None, state

    def _mask(self, queries: Tensor, keys: Tensor, even: bool, state: State) -> Tensor | None:
        """Return a mask of the keys that queries may read, or the bias of their scores.

        There is no mask where the causal one will do, or a single element reads all of its cache.
        """
        time = queries.shape[2]
        cached = keys.shape[2] - time
        if even and self.position != "alibi" and (time == 1 or (cached == 0 and time <= self.window)):
            return None
        mask = visible_keys(time, cached, self.window, queries.device)[None, None]  # of (T, n + T)
        if not even:  # the cache of a row that has read less begins with slots that hold nothing
            held = torch.arange(-cached, time, device=queries.device) >= -state["count"].unsqueeze(1)
            mask = mask & held[:, None, None]
        if (slopes := self.slopes()) is not None:
            slopes = slopes.to(queries).view(-1, 1, 1)
            return (-slopes * distances(time, cached, queries.device)).masked_fill(~mask, -torch.inf)
        return mask

    def _after(self, keys: Tensor, values: Tensor, state: State, time: int, lengths: Tensor | None) -> State:
        """Return the state after a chunk of `time` elements, the last of `keys`."""
        length = min(self.window - 1, keys.shape[2])
        if lengths is None:
            begin = keys.shape[2] - length
            return {"keys": keys[:, :, begin:], "values": values[:, :, begin:], "count": state["count"] + time}
        lengths = lengths.to(keys.device, torch.long)
        count = state["count"] + lengths
        if (
            keys.device.type == "cpu" and len(count) and values_are_known(count)
        ):  # no slot that no row fills; of a GPU they are masked
            length = min(length, int(count.max()))
        # The newest real element of a row is at n + length - 1; slots before the first are never read.
        slots = torch.arange(-length, 0, device=keys.device) + (keys.shape[2] - time + lengths).unsqueeze(1)
        slots = slots.clamp(min=0)[:, None, :, None].expand(-1, keys.shape[1], -1, keys.shape[3])
        return {"keys": keys.gather(2, slots), "values": values.gather(2, slots), "count": count}

    def _checked_state(self, state: State, rows: int) -> State:
        if state is None:
            return self.initial_state(rows)
        if not isinstance(state, dict) or state.keys() != {"keys", "values", "count"}:
            raise ValueError('state: expected {"keys", "values", "count"} of this layer, got another: use its own')
        shape = tuple(state["keys"].shape)
        wanted = (rows, self.num_kv_heads, min(shape[2], self.window - 1) if len(shape) == 4 else 0, self.head_size)
        if shape != wanted or state["values"].shape != wanted or state["count"].shape != (rows,):
            raise ValueError(
                f"state: expected keys and values ({rows}, {self.num_kv_heads}, up to {self.window - 1}, "
                f"{self.head_size}) and count ({rows},), got {shape}, {tuple(state['values'].shape)} and "
                f"{tuple(state['count'].shape)}"
            )
        return state


def _common(count: Tensor, cached: int) -> int | None:
    """Return the number of elements that all rows have read, which fill the cache.

    `None` where rows differ, where some of the `cached` slots hold nothing, where the numbers are not known, or where
    asking would stop a GPU.
    """
    if count.device.type != "cpu" or not len(count) or not values_are_known(count):
        return None
    first = int(count[0])
    return first if first >= cached and bool((count == first).all()) else None
