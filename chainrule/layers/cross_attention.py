"""Attention over another sequence, whose keys and values are computed once."""

import torch
from torch import Tensor, nn

from chainrule.layers.multi_head_attention import MultiHeadAttention
from chainrule.layers.scaled_dot_product import attention_weights, scaled_dot_product
from chainrule.state import Shared, State, leaves


class CrossAttention(MultiHeadAttention):
    r"""Multi-head attention in which queries read a memory, such as an encoder's outputs.

    Keys and values depend on the memory alone: `remember` computes them once, and they are kept in a state while any
    number of queries read them. A row whose memory is empty reads zeros. The arguments are those of
    `MultiHeadAttention` without positions: the memory knows its own.

    Args:
        model_size: D, of queries and of the memory.
        num_heads: H.
        num_kv_heads: G; `None` is H.
        bias: whether the projections have biases.

    >>> layer = CrossAttention(model_size=8, num_heads=2)
    >>> remembered = layer.remember(torch.randn(2, 6, 8), torch.tensor([6, 3]))
    >>> layer(torch.randn(2, 4, 8), remembered).shape
    torch.Size([2, 4, 8])
    """

    def __init__(self, model_size: int, num_heads: int, *, num_kv_heads: int | None = None, bias: bool = True):
        super().__init__(model_size, num_heads, num_kv_heads=num_kv_heads, bias=bias)

    def remember(self, memory: Tensor, lengths: Tensor | None = None) -> State:
        """Keys and values of a memory.

        Args:
            memory: (B, S, D); padding may hold NaN.
            lengths: (B,) real positions of each row, 0 allowed; None where all are.

        Returns:
            A state, batch first: "keys" and "values" (B, G, S, d), and "real" (B, S) booleans.
        """
        memory, real = self._checked(memory, lengths)
        begin = self.model_size
        bias = None if self.in_proj_bias is None else self.in_proj_bias[begin:]
        heads = self._split(nn.functional.linear(memory, self.in_proj_weight[begin:], bias))
        keys, values = heads.chunk(2, 1)
        if real is None:
            real = torch.ones(memory.shape[:2], dtype=torch.bool, device=memory.device)
        return {"keys": keys, "values": values, "real": real}

    def forward(self, x: Tensor, remembered: State) -> Tensor:
        """Read the memory.

        Args:
            x: (B, T, D) queries.
            remembered: from `remember`, or `Shared`.

        Returns:
            (B, T, D).
        """
        if isinstance(remembered, Shared):
            return self._side_by_side(x, remembered)
        real = remembered["real"]
        if not real.shape[1]:
            return self._joined(x.new_zeros(len(x), self.num_heads, x.shape[1], self.head_size))
        # Without a mask it is faster; a GPU is not stopped for the question.
        mask = None if real.device.type == "cpu" and bool(real.all()) else self._mask(real)
        read = scaled_dot_product(self._queries(x), remembered["keys"], remembered["values"], mask)
        return self._joined(read if mask is None else read * real.any(1)[:, None, None, None])

    def attended(self, x: Tensor, remembered: State) -> Tensor:
        """α, (B, H, T, S); 0 in padding, and everywhere in a row whose memory is empty."""
        real = remembered["real"]
        return attention_weights(self._queries(x), remembered["keys"], self._mask(real)) * real[:, None, None]

    def _queries(self, x: Tensor) -> Tensor:
        size = self.model_size
        bias = None if self.in_proj_bias is None else self.in_proj_bias[:size]
        return self._split(nn.functional.linear(x, self.in_proj_weight[:size], bias))

    @staticmethod
    def _mask(real: Tensor) -> Tensor:
        """Real positions; all of them in a row that has none, whose result is then replaced by zeros."""
        return (real | ~real.any(1, keepdim=True))[:, None, None]

    def _side_by_side(self, x: Tensor, shared: Shared) -> Tensor:
        """Queries (B, T, D) of which several rows read the same row of a memory: it is read once for all of them."""
        order = shared.rows.argsort(stable=True)
        rows, time = shared.rows[order], x.shape[1]
        place = torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows, rows)
        place = torch.empty_like(place).index_copy(0, order, place)
        width = int(place.max()) + 1
        queries = x.new_zeros(len(leaves(shared.values)[0]), width, time, x.shape[2])
        queries[shared.rows, place] = x
        read = self(queries.flatten(1, 2), shared.values).unflatten(1, (width, time))
        return read[shared.rows, place]
