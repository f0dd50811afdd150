"""The distribution of all values of a row, each of its column's own kind."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from chainrule.heads.head import Head
from chainrule.heads.table_column import TableColumn


class TableRow(Head):
    """The conditionals of the D columns of a table, batch shape (B, D).

    Args:
        parts: distributions of columns of a kind, batch shape (B, G).
        places: for each part the numbers of its G columns; together a permutation of 0, ..., D−1.

    >>> from chainrule.heads.column import Column, ColumnGroup
    >>> code = TableColumn(ColumnGroup([Column("categorical", categories=2)]), torch.zeros(1, 1, 2))
    >>> number = TableColumn(ColumnGroup([Column("real")]), torch.zeros(1, 1, 1 + 3))
    >>> TableRow([code, number], [[1], [0]]).log_prob(torch.tensor([[0.0, 1.0]]))
    tensor([[-0.9199, -0.6931]], dtype=torch.float64)
    """

    def __init__(self, parts: Sequence[TableColumn], places: Sequence[Sequence[int]]):
        self.parts = list(parts)
        device = parts[0].outputs.device
        self._places = [torch.as_tensor(list(place), device=device) for place in places]
        self._back = torch.cat(self._places).argsort()
        super().__init__(torch.Size((*parts[0].batch_shape[:-1], len(self._back))), validate_args=False)

    @property
    def support(self) -> constraints.Constraint | None:
        """That of every column where it is the same; else None."""
        supports = [part.support for part in self.parts]
        same = all(repr(support) == repr(supports[0]) and type(support) is type(supports[0]) for support in supports)
        return supports[0] if same else None

    def log_prob(self, value: Tensor) -> Tensor:
        """(..., B, D), nats; value (..., B, D), broadcast against the batch shape."""
        value = value.expand(torch.broadcast_shapes(value.shape, self._batch_shape))
        pairs = zip(self.parts, self._places, strict=True)
        return self._in_place([part.log_prob(value.index_select(-1, place)) for part, place in pairs])

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw every value from its conditional, float64 of shape sample_shape + batch shape."""
        return self._in_place([part.sample(sample_shape, generator=generator) for part in self.parts])

    def _in_place(self, columns: list[Tensor]) -> Tensor:
        return torch.cat(columns, -1).index_select(-1, self._back)
