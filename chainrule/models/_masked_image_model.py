"""Image models of masked convolutions, with a score for every value of every element."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from chainrule.heads import Categorical
from chainrule.layers._pixel_logits import PixelLogits, RasterLogits
from chainrule.layers._raster_convolutions import RasterConvolutions
from chainrule.layers._raster_layer import PIXELS, RasterBody
from chainrule.models._dependencies import raster_dependencies
from chainrule.models._labels import checked_labels
from chainrule.models._raster_model import Conditional, RasterModel, RasterScan
from chainrule.state import State


class MaskedImageModel(RasterModel):
    """A first convolution of type A, a body of layers, and `PixelLogits` for a categorical distribution."""

    head: PixelLogits

    @abstractmethod
    def rows(self, pixels: Tensor, above: State, label: Tensor | None) -> tuple[Tensor, State]:
        """A block of whole rows in one pass.

        Args:
            pixels: (B, C, n, W) numbers from -1 to 1.
            above: from `blank_rows`, or from the rows above.
            label: (B,) integers.

        Returns:
            Scores (B, C·V, n, W), and `above` for the rows that follow.
        """

    @abstractmethod
    def narrow(self) -> "MaskedImageModel":
        """A model of the same depth and kernels, as narrow as can be: it reads what this one reads."""

    @abstractmethod
    def body(self) -> tuple[RasterConvolutions, RasterBody]:
        """The convolution that reads the image and the layers after it, prepared for single elements."""

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Categorical:
        """All conditionals, batch shape (B, C, H, W); `lengths` changes none, as none sees what comes after it."""
        self.images.checked(x)
        return self.conditionals(x, self.blank_rows(len(x)), checked_labels(context, len(x), self.num_classes))[0]

    def conditionals(self, x: Tensor, above: State, label: Tensor | None) -> tuple[Categorical, State]:
        scores, above = self.rows(self._scaled(x, above[PIXELS]), above, label)
        return Categorical(scores.unflatten(1, (-1, self.levels)).movedim(2, -1)), above

    def prepared_scan(self) -> RasterScan:
        return _MaskedScan(self)

    def visible_past(self, length: int) -> Tensor:
        """Which earlier elements can influence which conditional, followed through the masks, (T, T) booleans."""
        with torch.device("cpu"), torch.random.fork_rng(devices=()):
            narrow = self.narrow()

        def read(pixels: Tensor) -> Tensor:
            scores, _ = narrow.rows(pixels, narrow.blank_rows(len(pixels)), None)
            return scores.unflatten(1, (self.image_shape[0], -1)).sum(2)  # (B, C, H, W)

        return raster_dependencies(narrow, read, self.image_shape)[:length, :length]


class _MaskedScan(RasterScan):
    """A row is (from_above, seen), by the names of the convolutions."""

    def __init__(self, model: MaskedImageModel):
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
