"""A MADE of mixed columns one column at a time, every unit computed once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from chainrule.heads.table_column import TableColumn
from chainrule.models.table_layout import TableLayout
from chainrule.state import State

Layer = tuple[Tensor, Tensor | None]


class TableSteps:
    """From the columns known so far to the next conditional.

    Features are sorted by visit and units by degree, so that slices take the place of masks: when t columns are known,
    the units of degree t are computed, from all that is known, and then the outputs of the next column. A state is
    (features, units of each hidden layer), (B, ...) each, as far as they are known. No tensor of it is written to.

    Args:
        layout: of the columns.
        order: the order of the columns.
        degrees: (M,) of the units of each hidden layer.
        layers: weight and bias of the hidden layers, and of the output.
        direct: weight from features to outputs, or None.
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
        visits = torch.tensor(self.order).argsort()
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
        known = [features]
        for part, (weight, bias), complete in zip(units, self.hidden, self.complete[1:], strict=True):
            start, stop = part.shape[1], complete[t]
            if start < stop:
                read = known[-1]
                new = torch.addmm(bias[start:stop], read, weight[start:stop, : read.shape[1]].t()).relu()
                part = torch.cat([part, new], 1)
            known.append(part)
        rows = self.layout.outputs[self.order[t]]
        assert self.bias is not None
        outputs = torch.addmm(self.bias[rows], known[-1], self.output[rows, : known[-1].shape[1]].t())
        if self.direct is not None:
            outputs = torch.addmm(outputs, features, self.direct[rows, : features.shape[1]].t())
        return self.layout.column(self.order[t], outputs), tuple(known)
