"""Where the columns of a table are among the features and outputs of a network."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from chainrule.heads._table_column import Column, ColumnGroup, TableColumn, mean_outputs
from chainrule.heads._table_row import TableRow
from chainrule.modes import wide


class TableLayout:
    """Columns of a kind lie together, so that a wide table takes few operations.

    Args:
        columns: of the table.
        components: mixture components of a numeric column.
        knots: ramps of a number that a network reads; see `ColumnGroup`.
    """

    def __init__(self, columns: Sequence[Column], components: int, knots: int = 0):
        self.columns, self.components, self.knots = list(columns), components, knots
        groups: dict[tuple[str, int, bool], list[int]] = {}
        for index, column in enumerate(columns):
            groups.setdefault((column.kind, column.symbols, column.missing), []).append(index)
        self.places = list(groups.values())
        self.groups = [ColumnGroup([columns[index] for index in places], knots=knots) for places in self.places]
        self.singles = [ColumnGroup([column], single=True, knots=knots) for column in columns]
        grouped = [index for places in self.places for index in places]
        features = [columns[index].features(knots) for index in grouped]
        outputs = [columns[index].outputs(components) for index in grouped]
        self.features, self.outputs = _slices(grouped, features), _slices(grouped, outputs)
        self._feature_columns = [index for index, size in zip(grouped, features, strict=True) for _ in range(size)]
        atoms = [len(columns[index].atoms) for index in grouped]
        self._is_atom = [place < own for own, size in zip(atoms, features, strict=True) for place in range(size)]
        self._output_columns = [index for index, size in zip(grouped, outputs, strict=True) for _ in range(size)]

    @property
    def size(self) -> int:
        """N, the number of outputs."""
        return len(self._output_columns)

    @property
    def feature_columns(self) -> Tensor:
        """(F,) the column that each feature is read from."""
        return torch.tensor(self._feature_columns, device="cpu")

    @property
    def atom_features(self) -> Tensor:
        """(F,) whether a feature is 1 for one frequent number alone."""
        return torch.tensor(self._is_atom, device="cpu")

    @property
    def output_columns(self) -> Tensor:
        """(N,) the column that each output is a parameter of."""
        return torch.tensor(self._output_columns, device="cpu")

    def read(self, x: Tensor) -> Tensor:
        """(B, D) values -> (B, F) features, float64."""
        parts = zip(self.groups, self.places, strict=True)
        read = [group.read(x.index_select(1, torch.tensor(places, device=x.device))) for group, places in parts]
        return torch.cat([features.flatten(1) for features in read], 1)

    def symbols(self, x: Tensor) -> Tensor:
        """(B, D) values -> (B, D) which symbol of its column each of them is."""
        return torch.stack([self.singles[index].symbol(wide(x[:, index])) for index in range(x.shape[1])], 1)

    def row(self, outputs: Tensor) -> TableRow:
        """(B, N) outputs of a network as the distribution of a row."""
        sizes = [len(places) * self._count(places) for places in self.places]
        parts = zip(self.groups, self.places, outputs.split(sizes, 1), strict=True)
        columns = [TableColumn(group, part.unflatten(1, (len(places), -1))) for group, places, part in parts]
        return TableRow(columns, self.places)

    def read_column(self, index: int, values: Tensor) -> Tensor:
        """(B,) values of a column -> (B, its features), float64."""
        return self.singles[index].read(values)

    def column(self, index: int, outputs: Tensor) -> TableColumn:
        """(B, n) outputs for a column as the distribution of its values."""
        return TableColumn(self.singles[index], outputs)

    def mean_row(self, rows: Sequence[TableRow], bias: Tensor | None = None) -> TableRow:
        """Return the mean of the distributions of a row under K models with this layout for its components.

        Args:
            rows: of each model.
            bias: (N,) added to the outputs of the mean; see `exclude`.
        """
        if len(rows) == 1 and bias is None:
            return rows[0]
        outputs = [mean_outputs(columns).flatten(1) for columns in zip(*(row.parts for row in rows), strict=True)]
        whole = torch.cat(outputs, 1)
        return self.row(whole if bias is None else whole + bias)

    def mean_column(self, index: int, columns: Sequence[TableColumn], bias: Tensor | None = None) -> TableColumn:
        """Return the mean of the distributions of one column; see `mean_row`."""
        if len(columns) == 1 and bias is None:
            return columns[0]
        outputs = mean_outputs(columns)
        return self.column(index, outputs if bias is None else outputs + bias[self.outputs[index]])

    def part(self, which: Sequence[int]) -> "TableLayout":
        """Return the layout of some of the columns alone."""
        return TableLayout([self.columns[index] for index in which], self.components, self.knots)

    def places_in(self, whole: "TableLayout", which: Sequence[int]) -> Tensor:
        """(n,) where the outputs of this layout are among the outputs of another one, of which it is a `part`."""
        places = torch.empty(len(self._output_columns), dtype=torch.long, device="cpu")
        for index, column in enumerate(which):
            outputs = whole.outputs[column]
            places[self.outputs[index]] = torch.arange(outputs.start, outputs.stop, device="cpu")
        return places

    def coded_with(self, decimals: Sequence[int | None]) -> "TableLayout":
        """Return a copy that can code columns of real numbers with `decimals` digits after the point."""
        columns = [replace(column, decimals=digits) for column, digits in zip(self.columns, decimals, strict=True)]
        return TableLayout(columns, self.components, self.knots)

    def initialise(self, bias: Tensor) -> None:
        """Initialise a bias (N,): symbols by the prior of their column, components spread evenly over its numbers.

        Without a prior a missing value is rare, and all other symbols are equal.
        """
        for index, column in enumerate(self.columns):
            if column.prior:
                bias[self.outputs[index]][: column.symbols] = bias.new_tensor(column.prior).log()
            elif column.missing:
                bias[self.outputs[index]][column.symbols - 2].fill_(-3.0)
            if column.numeric:
                _, means, log_scales = bias[self.outputs[index]][column.symbols :].chunk(3)
                for number, mean in enumerate(means):
                    mean.fill_((2 * number + 1) / self.components - 1)
                log_scales.fill_(-0.5)

    @torch.no_grad()
    def exclude(self, bias: Tensor, symbols: Sequence[int | None]) -> None:
        """Give one symbol of each column probability 0 (e^-1e30) by a bias (N,) of outputs; `None` keeps them all."""
        if len(symbols) != len(self.columns):
            raise ValueError(f"symbols: expected {len(self.columns)}, one for each column, got {len(symbols)}")
        for index, symbol in enumerate(symbols):
            if symbol is not None:
                bias[self.outputs[index]][symbol] = -1e30

    def _count(self, places: list[int]) -> int:
        return self.columns[places[0]].outputs(self.components)


def _slices(places: list[int], sizes: list[int]) -> list[slice]:
    """Return the slice of each column, by its number."""
    slices, start = {}, 0
    for index, size in zip(places, sizes, strict=True):
        slices[index] = slice(start, start + size)
        start += size
    return [slices[index] for index in range(len(places))]
