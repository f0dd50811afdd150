"""Attention over a memory: additive, multiplicative, or of several heads."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from chainrule._ranges import check_sizes
from chainrule.kernels._transforms import values_are_known
from chainrule.layers._multi_head_attention import MultiHeadAttention, attention_weights, scaled_dot_product
from chainrule.layers._packing import real_steps
from chainrule.state import Shared, State, leaves


class Attention(nn.Module, ABC):
    r"""A soft look-up: a query reads a weighted mean of a memory's positions.

    .. math:: \alpha = \mathrm{softmax}_s\, e(q, k_s), \qquad z = \sum_s \alpha_s v_s

    `AdditiveAttention` and `MultiplicativeAttention` say what the score e is. Keys and values depend on the memory
    alone: `remember` computes them once, and they are kept in a state while any number of queries read them. Positions
    past a row's length get the weight 0 and are never read; in a row of length 0 all weights are 0, and so is z.

    Args:
        memory_size: N, features of a position of the memory.
        query_size: Q, features of a query.
        key_size: K, features of a key.
        value_size: P, of a value v_s = W_v m_s; None reads the memory directly, v_s = m_s. A linear layer after
            z can be merged into W_v: it is then computed once for each position and not once for each query.
    """

    def __init__(self, memory_size: int, query_size: int, key_size: int, value_size: int | None):
        super().__init__()
        check_sizes(memory_size=memory_size, query_size=query_size, key_size=key_size, value_size=value_size)
        self.memory_size, self.query_size, self.key_size = memory_size, query_size, key_size
        self.output_size = memory_size if value_size is None else value_size
        self.weight_value = None if value_size is None else nn.Parameter(torch.empty(value_size, memory_size))

    @abstractmethod
    def _keys(self, memory: Tensor) -> Tensor:
        """(B, S, N) -> (B, S, K)."""

    @abstractmethod
    def _scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(B, T, Q), (B, S, K) -> (B, T, S)."""

    def reset_parameters(self) -> None:
        """Draw the weights, so that each output is about as large as an input."""
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
            else:
                nn.init.zeros_(parameter)

    def remember(self, memory: Tensor, lengths: Tensor | None = None) -> State:
        """Prepare a memory for all queries.

        Args:
            memory: (B, S, N), such as an encoder's outputs, or the positions of a grid.
            lengths: (B,) real positions of each row, 0 allowed; None if all are real. Padding may be NaN.

        Returns:
            A state, batch first: "keys" (B, S, K), "values" (B, S, P) and "real" (B, S) booleans.

        Raises:
            ValueError: the memory is of another width, or the lengths do not fit it.
        """
        if memory.dim() != 3 or memory.shape[2] != self.memory_size:
            raise ValueError(f"memory: expected shape (B, S, {self.memory_size}), got {tuple(memory.shape)}")
        real = real_steps(memory, lengths)
        if real is None:
            real = torch.ones(memory.shape[:2], dtype=torch.bool, device=memory.device)
        else:
            memory = memory.masked_fill(~real.unsqueeze(2), 0)
        values = memory if self.weight_value is None else nn.functional.linear(memory, self.weight_value)
        return {"keys": self._keys(memory), "values": values, "real": real}

    def forward(self, query: Tensor, remembered: State) -> tuple[Tensor, Tensor]:
        """Read the memory.

        Args:
            query: (B, Q), or several of each row, (B, T, Q).
            remembered: from `remember`, or `Shared`.

        Returns:
            z, (B, P) or (B, T, P), and the weights α, (B, S) or (B, T, S).
        """
        if isinstance(remembered, Shared):
            read, weights = _side_by_side(query, remembered, self)
            return read, weights
        queries = query if query.dim() == 3 else query.unsqueeze(1)
        real = remembered["real"].unsqueeze(1)
        scores = self._scores(queries, remembered["keys"])
        # The least finite number, not -inf: a row without a real position would be 0/0. The product makes it 0.
        weights = scores.masked_fill(~real, torch.finfo(scores.dtype).min).softmax(2) * real
        values = remembered["values"]
        read = torch.bmm(weights.to(values.dtype), values)
        return (read, weights) if query.dim() == 3 else (read.squeeze(1), weights.squeeze(1))


class AdditiveAttention(Attention):
    r"""Attention by a small network (Bahdanau, Cho and Bengio 2015).

    .. math:: e(q, m_s) = w^\top \tanh(W_q q + W_m m_s + b)

    It makes a vector of K numbers for each pair of a query and a position, where the multiplicative one makes a single
    product. Arguments are as for `Attention`.

    >>> attention = AdditiveAttention(memory_size=3, query_size=4, key_size=5)
    >>> remembered = attention.remember(torch.zeros(2, 6, 3), lengths=torch.tensor([4, 0]))
    >>> z, weights = attention(torch.zeros(2, 4), remembered)
    >>> z.shape, weights
    (torch.Size([2, 3]), tensor([[0.2500, 0.2500, 0.2500, 0.2500, 0.0000, 0.0000],
            [0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000]], grad_fn=<SqueezeBackward1>))
    """

    def __init__(self, memory_size: int, query_size: int, key_size: int, value_size: int | None = None):
        super().__init__(memory_size, query_size, key_size, value_size)
        self.weight_query = nn.Parameter(torch.empty(key_size, query_size))
        self.weight_memory = nn.Parameter(torch.empty(key_size, memory_size))
        self.bias = nn.Parameter(torch.empty(key_size))
        self.weight_score = nn.Parameter(torch.empty(1, key_size))
        self.reset_parameters()

    def _keys(self, memory: Tensor) -> Tensor:
        return nn.functional.linear(memory, self.weight_memory, self.bias)

    def _scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        projected = nn.functional.linear(queries, self.weight_query)
        hidden = torch.tanh(projected.unsqueeze(2) + keys.unsqueeze(1))  # (B, T, S, K)
        return nn.functional.linear(hidden, self.weight_score).squeeze(3)


class MultiplicativeAttention(Attention):
    r"""Attention by a product (Luong, Pham and Manning 2015: "general"; "dot" where there is no matrix).

    .. math:: e(q, m_s) = q^\top W m_s \qquad\text{or}\qquad e(q, m_s) = q^\top m_s

    W m_s is the key, so that a query costs no more under the one than under the other.

    Args:
        memory_size: N.
        query_size: Q.
        value_size: P, or None; see `Attention`.
        dot: leave W out, which needs N = Q.

    Raises:
        ValueError: a size is out of range, or N and Q differ where there is no W.

    >>> attention = MultiplicativeAttention(memory_size=2, query_size=2, dot=True)
    >>> memory = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> attention(torch.tensor([[3.0, 3.0]]), attention.remember(memory))[1]
    tensor([[0.5000, 0.5000]])
    """

    def __init__(self, memory_size: int, query_size: int, value_size: int | None = None, *, dot: bool = False):
        super().__init__(memory_size, query_size, query_size, value_size)
        if dot and memory_size != query_size:
            raise ValueError(f"dot: needs memory_size = query_size, got {memory_size} and {query_size}: leave it False")
        self.weight_memory = None if dot else nn.Parameter(torch.empty(query_size, memory_size))
        self.reset_parameters()

    def _keys(self, memory: Tensor) -> Tensor:
        return memory if self.weight_memory is None else nn.functional.linear(memory, self.weight_memory)

    def _scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return torch.bmm(queries, keys.transpose(1, 2))


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
            lengths: (B,) real positions of each row, 0 allowed; None if all are real.

        Returns:
            A state, batch first: "keys" and "values" (B, G, S, d), and "real" (B, S) booleans.
        """
        memory, real = self._checked(memory, lengths)
        heads = self._split(self._projected(memory, slice(self.model_size, None)))
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
            return _side_by_side(x, remembered, lambda *given: [self(*given)])[0]
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
        return self._split(self._projected(x, slice(self.model_size)))

    @staticmethod
    def _mask(real: Tensor) -> Tensor:
        """Real positions; all of them in a row that has none, whose result is then replaced by zeros."""
        return (real | ~real.any(1, keepdim=True))[:, None, None]


def _side_by_side(query: Tensor, shared: Shared, attend: Callable[[Tensor, State], Sequence[Tensor]]) -> list[Tensor]:
    """Attend with queries (B, ..., D) whose rows share rows of a memory: each memory row is read once."""
    order = shared.rows.argsort(stable=True)
    rows = shared.rows[order]
    column = torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows, rows)
    column = torch.empty_like(column).index_copy(0, order, column)
    queries = query.new_zeros(len(leaves(shared.values)[0]), int(column.max()) + 1, *query.shape[1:])
    queries[shared.rows, column] = query
    parts = attend(queries.flatten(1, -2), shared.values)
    return [part.unflatten(1, queries.shape[1:-1])[shared.rows, column] for part in parts]
