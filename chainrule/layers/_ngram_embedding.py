"""Embeddings of the last n symbols together, hashed into tables of bounded size."""

from typing import cast, final

import torch
from torch import Tensor, nn

from chainrule._ranges import check_shares, check_sizes
from chainrule.layers._packing import last_before_ends, zero_past_ends
from chainrule.layers._pointwise import dropout
from chainrule.layers._sequence_layer import SequenceLayer
from chainrule.state import State

_MULTIPLIER, _MIXER = 1_000_003, 0x9E37_79B1  # a prime; 2³² over the golden ratio (Knuth's multiplicative hashing)
_POSITIVE = 0x7FFF_FFFF


@final
class NgramEmbedding(SequenceLayer):
    r"""Add up embeddings of the pair, the triple, ... of symbols that ends at each place.

    .. math:: e_t = \sum_{n=2}^{N} E_n[\mathrm{bucket}_n(s_{t-n+1}, \ldots, s_t)]

    A table of order n has a row for every n-gram where they fit into it; otherwise n-grams share rows by a hash, as
    in fastText (Bojanowski et al. 2017). A recurrent layer that reads e_t and the embedding of s_t need not spend
    its state on the last few symbols: that costs one look-up an order and no product. In training `dropout` leaves out
    an n-gram, all of its features together: a rare one is easily learnt by heart.

    The layer reads integers, (B, T) or (B,) a step; its state holds the last N − 1 of them, (B, N − 1).
    """

    def __init__(
        self,
        num_symbols: int,
        embedding_size: int,
        order: int,
        *,
        buckets: int = 2**14,
        padding: int = 0,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_shares(dropout=dropout)
        check_sizes(buckets=buckets)
        self.num_symbols, self.order, self.buckets = num_symbols, order, buckets
        self.padding, self.dropout = padding, dropout
        self.tables = nn.ModuleList(
            nn.Embedding(min(num_symbols**n, buckets), embedding_size) for n in range(2, order + 1)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw small rows: most n-grams are rare, and a rare one should begin near no effect."""
        for weight in self._weights():
            if not weight.is_meta:
                nn.init.normal_(weight, std=INITIAL_STD)

    def initial_state(self, batch_size: int) -> Tensor:
        """Return the symbols before the first one, (B, N − 1): padding."""
        return torch.full((batch_size, self.order - 1), self.padding, device=self._weights()[0].device)

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Read a chunk; see `SequenceLayer.forward`.

        Args:
            x: (B, T) integers in [0, num_symbols).
            state: (B, N − 1) symbols before them.
            lengths: (B,) real symbols of each row.
        """
        x = zero_past_ends(x, lengths)
        state = self.initial_state(len(x)) if state is None else state
        past = torch.cat([state, x], 1)
        count = x.shape[1]
        total = None
        for n, weight in enumerate(self._weights(), start=2):
            columns = [past[:, self.order - 1 - back :][:, :count] for back in range(n)]
            row = nn.functional.embedding(self._buckets(columns, len(weight)), weight)
            if self.training and self.dropout:
                scale = dropout(row.new_ones(row.shape[:-1]), self.dropout, True)  # (B, T)
                row = row * scale.unsqueeze(-1)
            total = row if total is None else total + row
        assert total is not None
        return zero_past_ends(total, lengths), last_before_ends(past, self.order - 1, lengths)

    def tables_apart(self) -> tuple[list[Tensor], int]:
        """Return the tables, and the longest n-gram with a separate row."""
        exact = sum(self.num_symbols**n <= self.buckets for n in range(2, self.order + 1)) + 1
        return self._weights(), exact

    def _weights(self) -> list[Tensor]:
        return [cast(Tensor, table.weight) for table in self.tables]  # not a parameter in torch.func

    def _buckets(self, columns: list[Tensor], rows: int) -> Tensor:
        """Return the row of each n-gram; columns: s_t, s_{t-1}, ..., s_{t-n+1}."""
        exact = self.num_symbols ** len(columns) <= self.buckets
        if exact:
            return _code(columns, self.num_symbols)
        return hashed_rows(columns, rows)


def hashed_rows(columns: list[Tensor], rows: int) -> Tensor:
    """Return a row in [0, rows) for each tuple of integers; the columns are of one shape, and so is the result."""
    code = _code(columns, _MULTIPLIER)
    return ((code ^ (code >> 17)) * _MIXER & _POSITIVE) % rows


def _code(columns: list[Tensor], multiplier: int) -> Tensor:
    code = columns[-1].long()
    for column in reversed(columns[:-1]):
        code = code * multiplier + column  # 64 bits, which wrap around
    return code


INITIAL_STD = 0.3
