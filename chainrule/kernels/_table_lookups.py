"""The first layer of a table's network by lookups: most features of a row are 0, one symbol of each column is 1."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from chainrule.models._table_layout import TableLayout

_FEWEST_ROWS = 64  # the table of weights is made anew for each batch
_SPARSE = 6  # features a lookup, at least: of fewer, a dense product is faster


class FeatureLookups:
    """The features of rows as places in a table of weights, and their values: one for a category, four for a number.

    Of the ramps of a number those below it are 1, one is a fraction, and the rest is 0: the table holds the sums of the
    weights of the first ramps, so that two lookups read them all.

    Args:
        layout: of the columns.
    """

    def __init__(self, layout: "TableLayout"):
        self._parts = list(zip(layout.groups, layout.places, strict=True))
        self._starts = [[layout.features[index].start for index in places] for places in layout.places]
        self._size = max((layout.features[index].stop for places in layout.places for index in places), default=0)
        numeric = sum(len(places) for group, places in self._parts if group.kind != "categorical")
        self._lookups = len(layout.columns) + (3 if layout.knots else 1) * numeric

    def pays(self, x: Tensor, weight: Tensor) -> bool:
        """Return whether lookups are faster than a product with all features of rows (B, D)."""
        on_cpu = x.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64)
        return on_cpu and len(x) >= _FEWEST_ROWS and self._size >= _SPARSE * self._lookups

    def of(self, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """(B, D) values -> places (B, J) in a table of weights, and what these are multiplied with."""
        places, values, base = list[Tensor](), list[Tensor](), self._size
        for (group, columns), first in zip(self._parts, self._starts, strict=True):
            cells, starts = x.index_select(1, torch.tensor(columns)), torch.tensor(first)
            symbols = group.symbol(cells) - group.unread
            places.append(starts + symbols.clamp(min=0))
            values.append((symbols >= 0).to(dtype))
            if group.kind == "categorical":
                continue
            numbers = group.standard(cells)
            starts = starts + (group.symbols - group.unread)  # of the number, behind the symbols
            places.append(starts.expand_as(symbols))
            values.append(numbers.to(dtype))
            if group.knots:
                position = group.position(numbers)
                ramp = position.long().clamp(max=group.knots - 1)
                sums = base + group.knots * torch.arange(len(columns))
                places += [starts + 1 + ramp, sums + ramp]
                values += [(position - ramp).to(dtype), torch.ones_like(position, dtype=dtype)]
                base += group.knots * len(columns)
        return torch.cat(places, 1), torch.cat(values, 1)

    def table(self, weight: Tensor) -> Tensor:
        """(M, F) weights -> (R, M): those of each feature, and the sums of those of the first ramps of each number."""
        rows = [weight.t()]
        for (group, _), first in zip(self._parts, self._starts, strict=True):
            if group.kind != "categorical" and group.knots:
                start = group.symbols - group.unread + 1
                ramps = torch.tensor(first).unsqueeze(1) + start + torch.arange(group.knots)
                of_ramps = rows[0][ramps]  # (G, K, M)
                rows.append((of_ramps.cumsum(1) - of_ramps).flatten(0, 1))
        return torch.cat(rows).contiguous()


def looked_up(table: Tensor, places: Tensor, values: Tensor) -> Tensor:
    """Return the sum of rows of a table (R, M) at places (B, J), multiplied with values (B, J): (B, M)."""
    return nn.functional.embedding_bag(places, table, mode="sum", per_sample_weights=values)
