"""Image models visited element by element, so that an image costs the arithmetic of one pass over it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from chainrule.heads import Categorical, DiscretizedLogisticMixture
from chainrule.kernels._raster_bodies import RasterLogits
from chainrule.kernels._raster_convolutions import PIXELS
from chainrule.state import State

if TYPE_CHECKING:
    from chainrule.models._raster_model import MaskedImageModel

Conditional = Categorical | DiscretizedLogisticMixture


class RasterScan(ABC):
    """The weights of an image model, prepared for visiting an image element by element.

    A row is a tree of tensors: contributions of the rows above, and features of the elements seen so far.
    """

    @abstractmethod
    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, State]:
        """`above`, which may move on, and a row before its first element."""

    @abstractmethod
    def predict(self, row: State) -> tuple[Conditional, State]:
        """Return the conditional of the next element, (B,), and the row."""

    @abstractmethod
    def read(self, x_prev: Tensor, row: State) -> tuple[State, bool]:
        """Return the row with one more element, (B,) integers, and whether it is full."""

    @abstractmethod
    def end_row(self, above: State, row: State) -> State:
        """`above` for the next row, from a full one."""


class MaskedScan(RasterScan):
    """A row is (from_above, seen), by the names of the convolutions."""

    def __init__(self, model: "MaskedImageModel"):
        self.model = model
        self.first, self.body = model.body()
        self.head = RasterLogits(model.head)
        self.convolutions = {PIXELS: self.first, **self.body.convolutions, **self.head.convolutions}
        self.whole_rows = self.body.whole_rows | {PIXELS}

    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, State]:
        above, from_above = self.body.begin_row(above, label)
        if PIXELS not in from_above:
            from_above = {**from_above, PIXELS: self.first.from_above(above[PIXELS])}
        return above, (from_above, {name: part.begin_row(above[PIXELS]) for name, part in self.convolutions.items()})

    def predict(self, row: State) -> tuple[Conditional, State]:
        from_above, seen = row
        column, group = divmod(self.first.count(seen[PIXELS]), self.model.image_shape[0])
        (h,) = self.first.known(group, seen[PIXELS], from_above[PIXELS], column)
        h, body = self.body.element(h, group, column, from_above, seen)
        scores, head = self.head.element(h, group, seen)
        seen = {**seen, **{name: self._see(name, seen[name], new) for name, new in {**body, **head}.items()}}
        return Categorical(scores), (from_above, seen)

    def read(self, x_prev: Tensor, row: State) -> tuple[State, bool]:
        from_above, seen = row
        pixels = self._see(
            PIXELS, seen[PIXELS], [self.model._scaled(x_prev, self.model.head.hidden.weight).unsqueeze(1)]
        )
        channels, _, width = self.model.image_shape
        return (from_above, {**seen, PIXELS: pixels}), self.first.count(pixels) == channels * width

    def end_row(self, above: State, row: State) -> State:
        _, seen = row
        full = {name: self.convolutions[name].row(seen[name], self.model.image_shape[2]) for name in self.whole_rows}
        image = torch.cat([above[PIXELS], full[PIXELS]], 2)[:, :, 1:]
        return {**self.body.end_row(above, full), PIXELS: image}

    def _see(self, name: str, seen: list[Tensor], features: Sequence[Tensor]) -> list[Tensor]:
        return self.convolutions[name].see(seen, features, whole_row=name in self.whole_rows)
