"""Attention over a memory, additive or multiplicative."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from chainrule._ranges import check_sizes
from chainrule.layers._linear import linear
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
        values = memory if self.weight_value is None else linear(memory, self.weight_value)
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
            return self._side_by_side(query, remembered)
        queries = query if query.dim() == 3 else query.unsqueeze(1)
        real = remembered["real"].unsqueeze(1)
        scores = self._scores(queries, remembered["keys"])
        # The least finite number, not -inf: a row without a real position would be 0/0. The product makes it 0.
        weights = scores.masked_fill(~real, torch.finfo(scores.dtype).min).softmax(2) * real
        values = remembered["values"]
        read = torch.bmm(weights.to(values.dtype), values)
        return (read, weights) if query.dim() == 3 else (read.squeeze(1), weights.squeeze(1))

    def _side_by_side(self, query: Tensor, shared: Shared) -> tuple[Tensor, Tensor]:
        """Attend with queries whose rows share rows of a memory: each memory row is read once."""
        order = shared.rows.argsort(stable=True)
        rows = shared.rows[order]
        column = torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows, rows)
        column = torch.empty_like(column).index_copy(0, order, column)
        queries = query.new_zeros(len(leaves(shared.values)[0]), int(column.max()) + 1, *query.shape[1:])
        queries[shared.rows, column] = query
        read, weights = (
            tensor.unflatten(1, queries.shape[1:-1]) for tensor in self(queries.flatten(1, -2), shared.values)
        )
        return read[shared.rows, column], weights[shared.rows, column]


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
        return linear(memory, self.weight_memory, self.bias)

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
        return memory if self.weight_memory is None else linear(memory, self.weight_memory)

    def _scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return torch.bmm(queries, keys.transpose(1, 2))
