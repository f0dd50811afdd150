"""Tables of mixed columns: a masked autoencoder, and a VAE of rows."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, final

import torch
from torch import Tensor, nn

from chainrule._base import Context
from chainrule._checks import length_mask, refuse_context
from chainrule._executor import Executor
from chainrule._ranges import check_shares, check_sizes
from chainrule.heads._table_column import Column, TableColumn
from chainrule.heads._table_row import TableRow
from chainrule.kernels._transforms import may_prepare
from chainrule.layers._masked_linear import MaskedLinear, made_degrees
from chainrule.models._column_model import checked_order
from chainrule.models._table_candidates import Companion, TableCandidates, TableNetwork
from chainrule.models._table_layout import TableLayout
from chainrule.modes import wide
from chainrule.option_error import OptionError
from chainrule.ranges import Probability, Range, Size
from chainrule.state import State

Layer = tuple[Tensor, Tensor | None]


class TableSteps:
    """From the columns known so far to the next conditional.

    Features are sorted by visit and units by degree, so that slices take the place of masks: when t columns are known,
    the units of degree t are computed, from all that is known, and then the outputs of the next column. A state is
    (features, units of each hidden layer), (B, ...) each, as far as they are known. No tensor of it is written to.
    """

    def __init__(
        self,
        layout: TableLayout,
        order: Sequence[int],
        degrees: Sequence[Tensor],
        layers: Sequence[Layer],
        direct: Tensor | None,
    ):
        self.layout, self.order = layout, list(order)
        device = layers[-1][0].device
        visits = torch.tensor(self.order, device="cpu").argsort()
        # Place 0 are the features, then one place a layer; `complete` counts what is known when t columns are.
        degrees = [visits[layout.feature_columns] + 1, *degrees]
        ranks = [part.argsort(stable=True).to(device) for part in degrees]
        self.complete = [
            torch.bincount(part, minlength=len(order) + 1).cumsum(0)[: len(order) + 1].tolist() for part in degrees
        ]
        self.hidden = [
            (weight.index_select(0, above).index_select(1, below), bias.index_select(0, above))
            for (weight, bias), above, below in zip(layers[:-1], ranks[1:], ranks[:-1], strict=True)
            if bias is not None
        ]
        weight, self.bias = layers[-1]
        self.output = weight.index_select(1, ranks[-1])
        self.direct = None if direct is None else direct.index_select(1, ranks[0])

    def step(self, x_prev: Tensor | None, state: State) -> tuple[TableColumn, State]:
        features, *units = state
        t = 0
        if x_prev is not None:
            column = self.order[self.complete[0].index(features.shape[1])]
            read = self.layout.read_column(column, x_prev).to(features.dtype)
            features = torch.cat([features, read], 1)
            t = self.complete[0].index(features.shape[1])
            if t == len(self.order):
                raise ValueError(f"x_prev: expected one of the first {t - 1} columns, got the last: nothing follows it")
        activations = [features]
        for part, (weight, bias), complete in zip(units, self.hidden, self.complete[1:], strict=True):
            start, stop = part.shape[1], complete[t]
            if start < stop:
                read = activations[-1]
                new = torch.addmm(bias[start:stop], read, weight[start:stop, : read.shape[1]].t()).relu()
                part = torch.cat([part, new], 1)
            activations.append(part)
        rows = self.layout.outputs[self.order[t]]
        assert self.bias is not None
        outputs = torch.addmm(self.bias[rows], activations[-1], self.output[rows, : activations[-1].shape[1]].t())
        if self.direct is not None:
            outputs = torch.addmm(outputs, features, self.direct[rows, : features.shape[1]].t())
        return self.layout.column(self.order[t], outputs), tuple(activations)


@final
class TableMADE(TableNetwork):
    r"""A dense network whose masks make its outputs the conditionals of D columns of any kind.

    .. math:: h^{(l)} = \mathrm{relu}((W^{(l)} \odot M^{(l)}) h^{(l-1)} + b^{(l)}), \qquad h^{(0)} = f(x), \qquad
        p(x_d \mid x_{<d}) = \mathrm{column}_d\left((V \odot M^V) h^{(L)} + (A \odot M^A) f(x) + c\right)

    It is MADE (Germain et al. 2015) with masks between columns instead of binary units: a column is read as several
    features f (a 1 for its category, or for a frequent value, its standardised number, and ramps of that, which make
    the first layer piecewise linear in it: Gorishniy et al. 2022), and written as the parameters of its distribution,
    a `TableColumn`; all features and all parameters of a column have its degree.
    Without hidden layers it is a chain of regressions, logistic ones for categories.

    x is (B, D) in any type, float64 to keep large integers: codes of categories, numbers, NaN where a number is
    missing. A value that its column cannot hold has probability 0, and is read as the nearest that it can.

    Args:
        columns: the D columns.
        hidden_size: units of each layer.
        num_layers: hidden layers; 0 makes all connections direct.
        order: a permutation of the columns, in the order they are visited; None visits them in the table's order.
        components: mixture components of a numeric column.
        knots: pieces of the piecewise linear functions that the first layer may be of a number; 0 for linear ones.
        direct: connect each column to later outputs directly, past the hidden layers (A); of a number itself and its
            ramps, not of the single values that are frequent: few rows would teach these many weights.
        dropout: share of hidden units dropped in training, in `forward` only. If not given, the task takes 0.5 for few
            rows.
        weights: (D,) weight of each column's log-likelihood in `training_objective`; None weights all by 1.

    >>> columns = [Column("categorical", categories=3), Column("real", centre=170.0, scale=10.0, missing=True)]
    >>> model = TableMADE(columns, hidden_size=8, num_layers=1, order=[1, 0])
    >>> x = model.sample(4, generator=torch.Generator().manual_seed(0))
    >>> x.shape, model(x).log_prob(x).shape, model.log_prob(x).shape
    (torch.Size([4, 2]), torch.Size([4, 2]), torch.Size([4]))
    """

    def __init__(
        self,
        columns: Sequence[Column],
        hidden_size: Size = 256,
        num_layers: Annotated[int, Range(0, 256)] = 2,
        order: Sequence[int] | Tensor | None = None,
        *,
        components: Annotated[int, Range(1, 1 << 10)] = 8,
        knots: Annotated[int, Range(0, 1 << 10)] = 16,
        direct: bool = True,
        dropout: Probability = 0.1,
        weights: Sequence[float] | None = None,
    ):
        super().__init__()
        if not columns:
            raise ValueError("columns: expected at least one, got none")
        if weights is not None and (len(weights) != len(columns) or min(weights) < 0):
            raise ValueError(f"weights: expected {len(columns)} numbers >= 0, one for each column, got {weights!r:.80}")
        if num_layers < 0:
            raise OptionError("num_layers", f"expected an integer >= 0, got {num_layers}")
        check_sizes(hidden_size=hidden_size, components=components)
        check_shares(dropout=dropout)
        self.columns, self.hidden_sizes, self.dropout = tuple(columns), (hidden_size,) * num_layers, dropout
        self.sequence_length, self._weights = len(columns), None if weights is None else tuple(weights)
        self.order = tuple(checked_order(order, len(columns)).tolist())
        self.layout = TableLayout(columns, components, knots)
        *hidden, output = self._masks()
        self.hidden = nn.ModuleList(MaskedLinear(mask) for mask in hidden)
        self.output = MaskedLinear(output)
        self.direct = MaskedLinear(self._direct_mask(), bias=False) if direct and num_layers else None
        self._reset()

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> TableRow:
        """Return all conditionals; only later columns read columns after `lengths`."""
        refuse_context(context)
        return self.layout.row(self._outputs(x))

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        r"""Return :math:`\sum_d w_d \log p(x_d \mid x_{<d})` of each row, (B,), nats; w are the `weights`."""
        if self._weights is None:
            return super().training_objective(x, context, lengths)
        logs = self(x, context, lengths).log_prob(x)
        if lengths is not None:
            logs = torch.where(self.from_sequence(length_mask(lengths, x.shape[1])), logs, 0.0)
        return (logs * logs.new_tensor(self._weights)).sum(1)

    def _outputs(self, x: Tensor) -> Tensor:
        """Return the parameters of all conditionals, (B, N)."""
        features = self.layout.read(self.wide(x, "x")).to(self.output.weight.dtype)
        return self.network(features)

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        refuse_context(context)
        empty = self.output.weight.new_zeros(batch_size, 0)
        if not may_prepare(self):
            return wide(empty)
        return (empty,) * (len(self.hidden) + 1)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[TableColumn, State]:
        return (self._steps().step if may_prepare(self) else self._called)(x_prev, state)

    def prepare(self) -> Executor:
        if not may_prepare(self):
            return Executor(self, self._called)
        with torch.no_grad():
            return Executor(self, self._steps().step)

    def _called(self, x_prev: Tensor | None, state: State) -> tuple[TableColumn, State]:
        """Step by `forward` of all columns, for modules that must be called; the state is the known columns."""
        columns, x, t = self.with_column(state, x_prev)
        outputs = self._outputs(x)
        column = self.order[t]
        return self.layout.column(column, outputs[:, self.layout.outputs[column]]), columns

    def candidates(
        self, x: Tensor, column: int, counted: Tensor, companion: Companion | None = None
    ) -> TableCandidates:
        """Return what changes of rows (B, D) as the cell of a column does; see `TableCandidates`."""
        return TableCandidates([self], self.layout, x, column, counted, companion=companion)

    def exclude(self, symbols: Sequence[int | None]) -> None:
        """Give one symbol of each column probability 0 from now on, whatever is known; see `TableLayout.exclude`."""
        assert self.output.bias is not None
        self.layout.exclude(self.output.bias, symbols)

    @property
    def degrees(self) -> list[Tensor]:
        """Degrees of the columns, then of the units of each hidden layer; see `made_degrees`."""
        # On the processor, also where weights are made without memory.
        return made_degrees(torch.tensor(self.order, device="cpu"), self.hidden_sizes)

    def _masks(self) -> list[Tensor]:
        """Masks of the hidden layers and of the output."""
        columns, *hidden = self.degrees
        read, written = columns[self.layout.feature_columns], columns[self.layout.output_columns]
        masks = [above.unsqueeze(1) >= below for below, above in pairwise([read, *hidden])]
        return [*masks, written.unsqueeze(1) > (hidden[-1] if hidden else read)]

    def _direct_mask(self) -> Tensor:
        """Mask of the direct connections, (outputs, features)."""
        columns = self.degrees[0]
        read, written = columns[self.layout.feature_columns], columns[self.layout.output_columns]
        return (written.unsqueeze(1) > read) & ~self.layout.atom_features

    def _reset(self) -> None:
        """Begin as the network without direct connections, its conditionals near the priors of the columns."""
        assert self.output.bias is not None
        if self.output.bias.is_meta:  # there is nothing to fill, and some operators there import a compiler
            return
        if self.direct is not None:
            nn.init.zeros_(self.direct.weight)
        with torch.no_grad():
            self.layout.initialise(self.output.bias)

    def _steps(self) -> TableSteps:
        layers = [(layer.weight, layer.bias) for layer in (*self.hidden, self.output)]
        direct = None if self.direct is None else self.direct.weight * self.direct.mask
        return TableSteps(self.layout, self.order, self.degrees[1:], layers, direct)
