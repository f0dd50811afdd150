"""A causal Transformer block that also reads a memory, and its attention over it."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from chainrule.kernels._plain_modules import may_prepare
from chainrule.kernels._transforms import values_are_known
from chainrule.layers._causal_attention import CausalAttention
from chainrule.layers._feed_forward import FeedForward
from chainrule.layers._linear import linear
from chainrule.layers._multi_head_attention import MultiHeadAttention
from chainrule.layers._pointwise import dropout, norm_layer
from chainrule.layers._scaled_dot_product import attention_weights, scaled_dot_product
from chainrule.state import Shared, State, leaves

DecoderStep = Callable[[Tensor, State, State], tuple[Tensor, State]]


class DecoderBlock(nn.Module):
    """Causal attention, attention to a memory, and a feed-forward network, each with a norm and a residual.

    The state belongs to the causal attention; the memory does not change and is a separate argument.
    """

    def __init__(
        self,
        model_size: int,
        num_heads: int,
        window: int,
        *,
        num_kv_heads: int | None = None,
        position: str | None = "rotary",
        feed_forward_size: int | None = None,
        activation: str = "gelu",
        norm: str = "layer",
        norm_first: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.mixer = CausalAttention(
            model_size, num_heads, window, num_kv_heads=num_kv_heads, position=position, bias=False
        )
        self.cross = CrossAttention(model_size, num_heads, num_kv_heads=num_kv_heads, bias=False)
        self.feed_forward = FeedForward(model_size, feed_forward_size, activation=activation, bias=False)
        self.norm1, self.norm2, self.norm3 = (norm_layer(norm, model_size) for _ in range(3))
        self.norm_first, self.dropout = norm_first, dropout

    def forward(self, x: Tensor, state: State, remembered: State) -> tuple[Tensor, State]:
        """Read a chunk x (B, T, D) from a state, None at the beginning, with the memory in sight."""
        read, state = self.mixer(self.norm1(x) if self.norm_first else x, state)
        x = self._sum(x, read, self.norm1)
        x = self._sum(x, self.cross(self.norm2(x) if self.norm_first else x, remembered), self.norm2)
        return self._sum(x, self.feed_forward(self.norm3(x) if self.norm_first else x), self.norm3), state

    def step(self, x_t: Tensor, state: State, remembered: State) -> tuple[Tensor, State]:
        """Read one element of each row, (B, D)."""
        y, state = self(x_t.unsqueeze(1), state, remembered)
        return y.squeeze(1), state

    def prepare(self) -> DecoderStep:
        """Return a function equal to `step` in evaluation while the weights stay as they are."""
        if not self.norm_first or not may_prepare(self):
            return self.step
        mix, feed_forward, cross = self.mixer.prepare(), self.feed_forward.prepare(), self.cross
        norm1, norm2, norm3 = self.norm1, self.norm2, self.norm3

        def step(x: Tensor, state: State, remembered: State) -> tuple[Tensor, State]:
            read, state = mix(norm1(x), state)
            x = x + read
            x = x + cross(norm2(x).unsqueeze(1), remembered).squeeze(1)
            return x + feed_forward(norm3(x)), state

        return step

    def last_products(self) -> list[nn.Linear]:
        """Return the last product of each residual branch; see `shrink_residuals`."""
        return [self.mixer.out_proj, self.cross.out_proj, self.feed_forward.linear2]

    def _sum(self, x: Tensor, branch: Tensor, norm: nn.Module) -> Tensor:
        x = x + dropout(branch, self.dropout, self.training)
        return x if self.norm_first else norm(x)


class CrossAttention(MultiHeadAttention):
    r"""Multi-head attention in which queries read a memory, such as an encoder's outputs.

    Keys and values depend on the memory alone: `remember` computes them once, and they are kept in a state while any
    number of queries read them. A row whose memory is empty reads zeros. The arguments are as for
    `MultiHeadAttention`, without positions: the memory knows its own.

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
        heads = self._split(linear(memory, self.in_proj_weight[begin:], bias))
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
        mask = None if real.device.type == "cpu" and values_are_known(real) and bool(real.all()) else self._mask(real)
        read = scaled_dot_product(self._queries(x), remembered["keys"], remembered["values"], mask)
        return self._joined(read if mask is None else read * real.any(1)[:, None, None, None])

    def attended(self, x: Tensor, remembered: State) -> Tensor:
        """α, (B, H, T, S); 0 in padding, and everywhere in a row whose memory is empty."""
        real = remembered["real"]
        return attention_weights(self._queries(x), remembered["keys"], self._mask(real)) * real[:, None, None]

    def _queries(self, x: Tensor) -> Tensor:
        size = self.model_size
        bias = None if self.in_proj_bias is None else self.in_proj_bias[:size]
        return self._split(linear(x, self.in_proj_weight[:size], bias))

    @staticmethod
    def _mask(real: Tensor) -> Tensor:
        """Real positions; all of them in a row that has none, whose result is then replaced by zeros."""
        return (real | ~real.any(1, keepdim=True))[:, None, None]

    def _side_by_side(self, x: Tensor, shared: Shared) -> Tensor:
        """Attend with queries (B, T, D) whose rows share rows of a memory: each memory row is read once."""
        order = shared.rows.argsort(stable=True)
        rows, time = shared.rows[order], x.shape[1]
        column = torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows, rows)
        column = torch.empty_like(column).index_copy(0, order, column)
        width = int(column.max()) + 1
        queries = x.new_zeros(len(leaves(shared.values)[0]), width, time, x.shape[2])
        queries[shared.rows, column] = x
        read = self(queries.flatten(1, 2), shared.values).unflatten(1, (width, time))
        return read[shared.rows, column]
