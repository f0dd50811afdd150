"""The distribution of a row of a table."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from chainrule.heads._head import Head, broadcast_shapes
from chainrule.heads._table_column import ColumnGroup, TableColumn


class TableRow(Head):
    """Conditional distributions of the D columns of a table, batch shape (B, D).

    Args:
        parts: distributions of groups of columns, batch shape (B, G) each.
        indices: for each part the indices of its G columns; together a permutation of 0, ..., D−1.

    >>> from chainrule.heads import Column
    >>> code = TableColumn(ColumnGroup([Column("categorical", categories=2)]), torch.zeros(1, 1, 2))
    >>> number = TableColumn(ColumnGroup([Column("real")]), torch.zeros(1, 1, 1 + 3))
    >>> TableRow([code, number], [[1], [0]]).log_prob(torch.tensor([[0.0, 1.0]]))
    tensor([[-0.9199, -0.6931]], dtype=torch.float64)
    """

    def __init__(self, parts: Sequence[TableColumn], indices: Sequence[Sequence[int]]):
        self.parts = list(parts)
        device = parts[0].outputs.device
        self._listed = [list(map(int, index)) for index in indices]
        self._indices = [torch.as_tensor(index, device=device) for index in self._listed]
        self._back = torch.cat(self._indices).argsort()
        super().__init__(torch.Size((*parts[0].batch_shape[:-1], len(self._back))), validate_args=False)

    @property
    def support(self) -> constraints.Constraint | None:
        """Support shared by all columns; None if they differ."""
        supports = [part.support for part in self.parts]
        same = all(repr(support) == repr(supports[0]) and type(support) is type(supports[0]) for support in supports)
        return supports[0] if same else None

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p of each value, (..., B, D), nats; value (..., B, D) broadcasts against the batch shape."""
        value = value.expand(broadcast_shapes(value.shape, self._batch_shape))
        pairs = zip(self.parts, self._indices, strict=True)
        return self._in_order([part.log_prob(value.index_select(-1, index)) for part, index in pairs])

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw every value from its conditional, float64 of shape sample_shape + batch shape."""
        return self._in_order([part.sample(sample_shape, generator=generator) for part in self.parts])

    def _in_order(self, columns: list[Tensor]) -> Tensor:
        return torch.cat(columns, -1).index_select(-1, self._back)

    def column(self, index: int) -> TableColumn:
        """Return the distribution of one column, batch shape (B,)."""
        part, place = self._find(index)
        group = ColumnGroup([part.group.columns[place]], single=True, knots=part.group.knots)
        return TableColumn(group, part.outputs[..., place, :])

    def replaced(self, index: int, column: TableColumn) -> "TableRow":
        """Return this row with another distribution of one column, batch shape (B,)."""
        parts, indices = list[TableColumn](), list[list[int]]()
        for part, own in zip(self.parts, self._listed, strict=True):
            kept = [place for place, other in enumerate(own) if other != index]
            if kept:
                columns = [part.group.columns[place] for place in kept]
                same = len(kept) == len(own)
                group = part.group if same else ColumnGroup(columns, knots=part.group.knots)
                parts.append(part if same else TableColumn(group, part.outputs[..., kept, :]))
                indices.append([own[place] for place in kept])
        group = ColumnGroup(column.group.columns, knots=column.group.knots)
        return TableRow([*parts, TableColumn(group, column.outputs.unsqueeze(-2))], [*indices, [index]])

    def _find(self, index: int) -> tuple[TableColumn, int]:
        """Return the part that holds a column, and the column's place in it."""
        return next(
            (part, own.index(index)) for part, own in zip(self.parts, self._listed, strict=True) if index in own
        )
