"""Log-probabilities of the rows of a table as one of their cells changes."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from chainrule.heads._table_column import TableColumn
from chainrule.heads._table_row import TableRow
from chainrule.kernels._transforms import may_prepare
from chainrule.layers._masked_linear import MaskedLinear
from chainrule.models._column_model import ColumnModel
from chainrule.models._table_layout import TableLayout
from chainrule.modes import wide

_TOGETHER = 4096  # candidates whose later factors are computed at once


class TableNetwork(ColumnModel):
    """A network of the columns of a table."""

    layout: TableLayout


class Companion(Protocol):
    """What changes the conditional of the column that the network visits last; see `TableNeighbours`."""

    target: int

    def mixed(self, column: TableColumn, x: Tensor) -> TableColumn:
        """Return the conditional of the target in rows x (B, D), whose target is not read."""


class TableCandidates:
    r"""Values that a cell of column j may take in B rows, and the factors of the row that depend on it.

    .. math:: \log p(x) = \sum_{d < j} \log p(x_d \mid x_{<d}) + \log p(x_j \mid x_{<j})
        + \sum_{d > j} \log p(x_d \mid x_{<d})

    in the order of the model: the factors before, its own, and the later ones. Units that read no column from j on are
    computed once for a row, all others for each candidate.

    Args:
        models: networks in evaluation mode, of one order, whose conditionals are averaged.
        layout: of the outputs of the mean.
        x: (B, D) rows; the value at the column is not read.
        column: j, in the layout of the table.
        counted: (B, D) booleans: the factors that count. The factors of columns that come after all known ones sum to
            1, and are left out.
        bias: (N,) added to the outputs of the mean.
        companion: changes the conditional of the last column.
    """

    own: TableColumn  # p(x_j | x_<j) of each row
    log_before: Tensor  # (B,) nats

    def __init__(
        self,
        models: Sequence[TableNetwork],
        layout: TableLayout,
        x: Tensor,
        column: int,
        counted: Tensor,
        bias: Tensor | None = None,
        companion: Companion | None = None,
    ):
        order = models[0].order
        place = order.index(column)
        later = sorted(other for other in order[place + 1 :] if bool(counted[:, other].any()))
        self._networks = [_Network(model, x, column, later) for model in models]
        row = layout.mean_row([network.row for network in self._networks], bias)
        logs = torch.where(counted, row.log_prob(x), 0.0)
        self.own = layout.mean_column(column, [network.own for network in self._networks], bias)
        if companion is not None and companion.target == column:
            self.own = companion.mixed(self.own, x)
        self.log_before = logs[:, list(order[:place])].sum(1)
        self._x, self._counted, self._later = x[:, later], counted[:, later], layout.part(later) if later else None
        self._whole, self._column = x, column
        self._companion = companion if companion is not None and companion.target in later else None
        self._last = -1 if self._companion is None else later.index(self._companion.target)
        self._bias = bias
        if bias is not None and self._later is not None:
            self._bias = bias[self._later.places_in(layout, later).to(bias.device)]

    def log_later(self, rows: Tensor, symbols: Tensor, numbers: Tensor) -> Tensor:
        """Return the nats of the later factors, (M,), for candidates in rows (M,).

        Args:
            rows: (M,) the row of each candidate.
            symbols: (M,) its symbol in the column.
            numbers: (M,) its number, which a category lacks, and a missing value too: any finite number will do.
        """
        if self._later is None:
            return wide(torch.zeros_like(rows, dtype=torch.float32))
        parts = zip(rows.split(_TOGETHER), symbols.split(_TOGETHER), numbers.split(_TOGETHER), strict=True)
        return torch.cat([self._log_later(self._later, *part) for part in parts])

    def _log_later(self, layout: TableLayout, rows: Tensor, symbols: Tensor, numbers: Tensor) -> Tensor:
        row = layout.mean_row([network.later(rows, symbols, numbers) for network in self._networks], self._bias)
        if self._companion is not None:
            x = self._whole[rows]
            x[:, self._column] = self._values(symbols, numbers).to(x)
            row = row.replaced(self._last, self._companion.mixed(row.column(self._last), x))
        return torch.where(self._counted[rows], row.log_prob(self._x[rows]), 0.0).sum(1)

    def _values(self, symbols: Tensor, numbers: Tensor) -> Tensor:
        """Return the cells that candidates stand for, NaN for a missing number."""
        group = self.own.group
        if group.kind == "categorical":
            return symbols
        return numbers.masked_fill(symbols == group.symbols - 2, torch.nan) if group.missing else numbers

    def own_log_prob(self, rows: Tensor, values: Tensor) -> Tensor:
        """Return log p(x_j | x_<j), nats (M,), of values in rows (M,)."""
        return self.own.with_parameters(self.own.outputs[rows]).log_prob(values)


class _Network:
    """One network: the distributions of B rows, and those of later columns for each candidate of column j."""

    def __init__(self, model: TableNetwork, x: Tensor, column: int, later: Sequence[int]):
        layout = model.layout
        features = layout.read(x).to(model.output.weight.dtype)
        self._model, self._group, self._cells = model, layout.singles[column], layout.features[column]
        features[:, self._cells] = 0  # an earlier factor does not read it, a later one gets a candidate's
        outputs, activations = self._pass(features)
        self.row, self.own = layout.row(outputs), layout.column(column, outputs[:, layout.outputs[column]])
        self._features = features
        if later:
            self._rows = layout.part(later)
            self._outputs = self._rows.places_in(layout, later).to(x.device)
            self._plain = not may_prepare(model)
            if not self._plain:
                self._keep(features, activations, model.order.index(column) + 1)

    def _pass(self, features: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the outputs (B, N) of a whole row, and its units in each layer."""
        model, activations = self._model, []
        h = features
        for layer in model.hidden:
            h = layer(h).relu()
            activations.append(h)
        outputs = model.output(h)
        return (outputs if model.direct is None else outputs + model.direct(features)), activations

    def _keep(self, features: Tensor, activations: list[Tensor], degree: int) -> None:
        """Keep what units of a lower degree and other columns add to those that read the column."""
        model, self._steps = self._model, list[tuple[Tensor, Tensor]]()
        below, reads = features, torch.zeros(features.shape[1], dtype=torch.bool, device=features.device)
        self._first: Tensor | None = None
        for layer, units, degrees in zip(model.hidden, activations, model.degrees[1:], strict=True):
            assert isinstance(layer, MaskedLinear)
            assert layer.bias is not None
            own = degrees.to(features.device) >= degree
            weight = (layer.weight * layer.mask)[own]
            fixed = torch.addmm(layer.bias[own], below[:, ~reads], weight[:, ~reads].t())
            if self._first is None:
                self._first = weight[:, self._cells].t().contiguous()
            self._steps.append((fixed, weight[:, reads].t().contiguous()))
            below, reads = units, own
        weight, bias = (model.output.weight * model.output.mask)[self._outputs], model.output.bias
        assert bias is not None
        fixed = torch.addmm(bias[self._outputs], below[:, ~reads], weight[:, ~reads].t())
        direct = None if model.direct is None else (model.direct.weight * model.direct.mask)[self._outputs]
        if self._first is None:  # without hidden layers the outputs read the columns
            direct = weight
        elif direct is not None:
            fixed = fixed + features @ direct.t()
        self._last = fixed, weight[:, reads].t().contiguous()
        self._direct = None if direct is None else direct[:, self._cells].t().contiguous()

    def later(self, rows: Tensor, symbols: Tensor, numbers: Tensor) -> TableRow:
        """Return the distributions of the later columns for candidates (M,)."""
        outputs = self._whole(rows, symbols, numbers) if self._plain else self._changed(rows, symbols, numbers)
        return self._rows.row(outputs)

    def _whole(self, rows: Tensor, symbols: Tensor, numbers: Tensor) -> Tensor:
        """Return the outputs of the later columns by a whole pass, for modules that must be called."""
        features = self._features[rows]
        flags = torch.arange(self._group.symbols, device=rows.device)
        read = [(symbols.unsqueeze(1) == flags).to(features.dtype)]
        if (numeric := self._read(symbols, numbers)) is not None:
            read.append(numeric)
        features[:, self._cells] = torch.cat(read, 1)
        return self._pass(features)[0][:, self._outputs]

    def _changed(self, rows: Tensor, symbols: Tensor, numbers: Tensor) -> Tensor:
        numeric = self._read(symbols, numbers)

        def read(weights: Tensor) -> Tensor:
            """Multiply the features of the candidates with weights (F, M): one symbol is 1, and the number's."""
            chosen = weights.index_select(0, symbols)
            return chosen if numeric is None else torch.addmm(chosen, numeric, weights[self._group.symbols :])

        h: Tensor | None = None
        for fixed, weight in self._steps:
            assert self._first is not None
            h = fixed.index_select(0, rows) + (read(self._first) if h is None else h @ weight)
            h = h.relu_()
        fixed, weight = self._last
        outputs = fixed.index_select(0, rows)
        if h is not None:
            outputs = torch.addmm(outputs, h, weight)
        return outputs if self._direct is None else outputs + read(self._direct)

    def _read(self, symbols: Tensor, numbers: Tensor) -> Tensor | None:
        """Return what the network reads of each candidate beside its symbol, (M, 1 + knots); None of a category."""
        group = self._group
        if group.kind == "categorical":
            return None
        if group.missing:
            numbers = numbers.masked_fill(symbols == group.symbols - 2, torch.nan)
        return group.read_number(numbers).to(self._features.dtype)
