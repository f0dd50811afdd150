"""The base of models of the columns of a row: their order, a dense network under masks, and drawn masks."""

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel
from chainrule.layers._masked_linear import MaskedLinear, made_degrees, made_masks


class ColumnModel(AutoregressiveModel):
    """A model of D columns, visited in an order, by a dense network whose masks follow from degrees.

    `forward` takes the columns in their layout, `step` in the order of visits. A subclass makes the layers.
    """

    sequence_length: int
    order: Any  # a permutation of the columns, in the order of visits
    hidden: nn.ModuleList
    output: MaskedLinear
    direct: MaskedLinear | None
    dropout: float

    @property
    @abstractmethod
    def degrees(self) -> list[Tensor]:
        """Degrees of the columns, then of the units of each hidden layer; see `made_degrees`."""

    def network(self, features: Tensor, first: Tensor | None = None, last: Tensor | None = None) -> Tensor:
        """Outputs (B, N) of features; `first` is added in the first hidden layer, `last` to the outputs."""
        h = features
        for number, layer in enumerate(self.hidden):
            activation = layer(h)
            if number == 0 and first is not None:
                activation = activation + first
            h = nn.functional.dropout(activation.relu(), self.dropout, self.training)
        outputs: Tensor = self.output(h)
        if self.direct is not None:
            outputs = outputs + self.direct(features)
        return outputs if last is None else outputs + last

    def to_sequence(self, x: Tensor) -> Tensor:
        return self.wide(x, "x").index_select(1, torch.as_tensor(self.order, device=x.device))

    def from_sequence(self, sequence: Tensor) -> Tensor:
        back = torch.as_tensor(self.order, device=sequence.device).argsort()
        return self.wide(sequence, "sequence").index_select(1, back)

    def wide(self, x: Tensor, name: str) -> Tensor:
        """x, if it has all columns."""
        if x.dim() != 2 or x.shape[1] != self.sequence_length:
            raise ValueError(f"{name}: expected shape (B, D) with D = {self.sequence_length}, got {tuple(x.shape)}")
        return x

    def visible_past(self, length: int) -> Tensor:
        if length != self.sequence_length:
            raise ValueError(f"length: expected {self.sequence_length}, the columns of every row, got {length}")
        later = torch.ones(length, length, dtype=torch.bool, device="cpu").tril(-1)
        if self.direct is not None or not len(self.hidden):
            return later
        reach = torch.eye(length, dtype=torch.bool, device="cpu")  # of places in the order
        read = torch.arange(1, length + 1, device="cpu")
        for degrees in [*(part.cpu() for part in self.degrees[1:]), torch.arange(length, device="cpu")]:
            reach = (degrees.unsqueeze(1) >= read).float() @ reach.float() > 0
            read = degrees
        return reach & later

    def with_column(self, columns: Tensor, x_prev: Tensor | None) -> tuple[Tensor, Tensor, int]:
        """The first columns (B, t) with one more, an x that begins with them, and t; for steps by whole passes."""
        if x_prev is not None:
            columns = torch.cat([columns, x_prev.to(columns).unsqueeze(1)], 1)
        t = columns.shape[1]
        if t == self.sequence_length:
            raise ValueError(f"x_prev: expected one of the first {t - 1} columns, got the last: nothing follows it")
        return columns, self.from_sequence(nn.functional.pad(columns, (0, self.sequence_length - t))), t


def checked_order(order: Sequence[int] | Tensor | None, size: int) -> Tensor:
    """A permutation of `size` columns on the processor; ascending where none, or none with values, is given."""
    with torch.device("cpu"):  # also where weights are made without memory, and the order comes with them
        if order is None or (isinstance(order, Tensor) and order.is_meta):
            return torch.arange(size)
        order = torch.as_tensor(order)
    if order.shape != (size,) or order.sort().values.tolist() != list(range(size)):
        got = order.tolist() if order.numel() < 20 else f"shape {tuple(order.shape)}"
        raise ValueError(f"order: expected a permutation of 0 to {size - 1}, got {got}")
    return order


class AgnosticColumnModel(ColumnModel):
    """A column model whose order and degrees are buffers, saved with the weights, and can be drawn anew."""

    hidden_sizes: tuple[int, ...]
    lowest_degree: int  # 0 where units may read a condition alone

    def add_layers(self, order: Tensor, direct: bool) -> None:
        """Make the layers; the direct connections begin as if there were none."""
        degrees = made_degrees(order, self.hidden_sizes, lowest=self.lowest_degree)
        *masks, output = made_masks(degrees)
        self.hidden = nn.ModuleList(MaskedLinear(mask) for mask in masks)
        self.output = MaskedLinear(output)
        self.direct = MaskedLinear(made_masks(degrees[:1])[0], bias=False) if direct else None
        if self.direct is not None:
            nn.init.zeros_(self.direct.weight)
        self._set_degrees(order, degrees[1:])
        self.register_load_state_dict_post_hook(_loaded)

    @property
    def degrees(self) -> list[Tensor]:
        hidden = [self.get_buffer(f"degrees_{number}") for number in range(len(self.hidden_sizes))]
        return [self.order.argsort() + 1, *hidden]

    def with_masks(self, order: Tensor, degrees: Sequence[Tensor]) -> Self:
        """This model with the same weights under other masks: the parameters are shared, and trained together.

        Args:
            order: (D,) a permutation of the columns.
            degrees: (M,) integers from 0 to D-1 for each hidden layer.

        Raises:
            ValueError: the order is no permutation, or the degrees do not fit the hidden layers.
        """
        order = checked_order(order, self.sequence_length)
        sizes = tuple(len(part) for part in degrees)
        if sizes != self.hidden_sizes:
            raise ValueError(f"degrees: expected one for each unit, {self.hidden_sizes}, got {sizes}")
        _check_degrees(degrees, self.sequence_length)
        shared = {id(tensor): tensor for tensor in (*self.parameters(), *self.buffers())}
        other = copy.deepcopy(self, shared)
        other._set_degrees(order, degrees)
        return other

    def resampled(self, generator: torch.Generator, order: Sequence[int] | Tensor | None = None) -> Self:
        """This model under drawn masks, sharing its parameters: one batch of agnostic training (section 4.2-4.3).

        Args:
            generator: source of the order and of the units' degrees.
            order: a permutation of the columns; None draws one. With the model's own, only the connections change.

        >>> from chainrule.models import MADE
        >>> model = MADE(num_features=3, hidden_sizes=[8])
        >>> other = model.resampled(torch.Generator().manual_seed(0))
        >>> other.order, other.output.weight is model.output.weight
        (tensor([2, 0, 1]), True)
        """
        if order is None:
            order = torch.randperm(self.sequence_length, generator=generator, device=generator.device)
        order = checked_order(torch.as_tensor(order, device="cpu"), self.sequence_length)
        degrees = made_degrees(order, self.hidden_sizes, lowest=self.lowest_degree, generator=generator)
        return self.with_masks(order, degrees[1:])

    def _set_degrees(self, order: Tensor, degrees: Sequence[Tensor]) -> None:
        device = self.output.mask.device
        self.register_buffer("order", order.to(device))
        for number, part in enumerate(degrees):
            self.register_buffer(f"degrees_{number}", part.to(device))
        _remask(self)


def _check_degrees(degrees: Sequence[Tensor], size: int) -> None:
    if any(part.min() < 0 or part.max() >= size for part in degrees):
        raise ValueError(f"degrees: expected integers from 0 to {size - 1}, got others")


def _loaded(model: AgnosticColumnModel, *_: object) -> None:
    """Check the degrees of a file before the masks follow from them."""
    if not model.order.is_meta:
        checked_order(model.order, model.sequence_length)
        _check_degrees(model.degrees[1:], model.sequence_length)
    _remask(model)


def _remask(model: AgnosticColumnModel) -> None:
    """Masks follow from the degrees: after drawing these or loading them."""
    if model.order.is_meta:  # nothing to sort, and sorting would import a compiler, which takes seconds
        return
    degrees = model.degrees
    for layer, mask in zip((*model.hidden, model.output), made_masks(degrees), strict=True):
        layer.mask = mask
    if model.direct is not None:
        (model.direct.mask,) = made_masks(degrees[:1])
