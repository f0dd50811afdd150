"""Models of images that keep, layer by layer, what a raster scan still needs: one image costs one pass."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from chainrule.base import Step
from chainrule.heads import Categorical
from chainrule.layers.raster_memory import RasterMemory
from chainrule.models.dependencies import raster_dependencies
from chainrule.models.image_model import ImageModel
from chainrule.state import State

PIXELS = "pixels"  # the convolutions that read the image itself


class RasterNetwork(ABC):
    """The weights of an image network, prepared for visiting an image element by element.

    Attributes:
        convolutions: by name, all that read or carry features of other elements; those named "pixels" read the image.
        whole_rows: the names of those whose features the row below asks for.
    """

    convolutions: Mapping[str, RasterMemory]
    whole_rows: frozenset[str] = frozenset({PIXELS})

    @abstractmethod
    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, Mapping[str, Tensor]]:
        """What comes to a whole row from the rows above it: for each name (B, L, W, out). `above` may move on."""

    @abstractmethod
    def element(
        self, group: int, column: int, from_above: Mapping[str, Tensor], seen: Mapping[str, list[Tensor]]
    ) -> tuple[Tensor, Mapping[str, Sequence[Tensor]]]:
        """Scores of one element (B, V), and its features by name, L tensors (B, in) each, for the elements after it."""

    @abstractmethod
    def end_row(self, above: State, row: Mapping[str, Tensor]) -> State:
        """`above` for the next row, from a row's features by name, (B, L·in, 1, W) each."""


class RasterModel(ImageModel):
    """An image model of masked convolutions; a subclass gives its parallel pass and its `RasterNetwork`.

    The state holds the rows above that are still needed (`above`), what they contribute to the present row, and what is
    still needed of the present row (`row`; `None` between rows). Its parts are replaced, never written to.
    """

    @abstractmethod
    def blank_rows(self, batch_size: int) -> State:
        """`above` at the top of the image."""

    @abstractmethod
    def rows(self, pixels: Tensor, above: State, label: Tensor | None) -> tuple[Tensor, State]:
        """A block of whole rows in one pass.

        Args:
            pixels: (B, C, n, W) numbers from -1 to 1.
            above: what is needed of the rows above.
            label: (B,) integers.

        Returns:
            Scores (B, C·V, n, W), and `above` for the rows that follow.
        """

    @abstractmethod
    def network(self) -> RasterNetwork:
        """The weights prepared for single elements."""

    @abstractmethod
    def narrow(self) -> "RasterModel":
        """A model of the same depth and kernels, as narrow as can be: it reads what this one reads."""

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Categorical:
        """All conditionals, batch shape (B, C, H, W); `lengths` changes none, as none sees what comes after it."""
        self._checked(x)
        above = self.blank_rows(len(x))
        scores, _ = self.rows(self._scaled(x, above[PIXELS]), above, self._label(context, len(x)))
        return Categorical(scores.unflatten(1, (-1, self.levels)).movedim(2, -1))

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        return {"label": self._label(context, batch_size), "above": self.blank_rows(batch_size), "row": None}

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
        return self._step(self.network(), x_prev, state)

    def stepper(self) -> Step:
        with torch.no_grad():
            network = self.network()
        return lambda x_prev, state: self._step(network, x_prev, state)

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Categorical, State]:
        """The conditionals of a chunk; its whole rows but the last in one pass, the rest element by element."""
        channels, _, width = self.image_shape
        size, network = channels * width, self.network()
        t, scores = 0, []
        while t < x.shape[1]:
            if x_prev is not None:
                state = self._read(network, x_prev, state)
            if state["row"] is None and (count := (x.shape[1] - t - 1) // size):
                above = state["above"]
                pixels = self._scaled(self.from_sequence(x[:, t : t + count * size]), above[PIXELS])
                block, above = self.rows(pixels, above, state["label"])
                scores.append(block.unflatten(1, (channels, -1)).permute(0, 3, 4, 1, 2).flatten(1, 3))  # (B, t, V)
                state, t = {**state, "above": above}, t + count * size
            element, state = self._predict(network, state)
            scores.append(element.unsqueeze(1))
            x_prev, t = x[:, t], t + 1
        return Categorical(torch.cat(scores, 1)), state

    def visible_past(self, length: int) -> Tensor:
        """Which earlier elements can influence which conditional, followed through the masks, (T, T) booleans."""
        with torch.random.fork_rng(devices=()):
            narrow = self.narrow()

        def read(pixels: Tensor) -> Tensor:
            scores, _ = narrow.rows(pixels, narrow.blank_rows(len(pixels)), None)
            return scores.unflatten(1, (self.image_shape[0], -1)).sum(2)  # (B, C, H, W)

        return raster_dependencies(narrow, read, self.image_shape)[:length, :length]

    def _step(self, network: RasterNetwork, x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
        scores, state = self._predict(network, state if x_prev is None else self._read(network, x_prev, state))
        return Categorical(scores), state

    def _read(self, network: RasterNetwork, x_prev: Tensor, state: State) -> State:
        """Put the pixel to the present row; when that is full, the row to those above."""
        from_above, seen = state["row"]
        pixels = self._scaled(x_prev, state["above"][PIXELS]).unsqueeze(1)
        first = network.convolutions[PIXELS]
        seen = {**seen, PIXELS: first.see(seen[PIXELS], [pixels], whole_row=True)}
        channels, _, width = self.image_shape
        if first.count(seen[PIXELS]) < channels * width:
            return {**state, "row": (from_above, seen)}
        row = {name: network.convolutions[name].row(seen[name], width) for name in network.whole_rows}
        return {**state, "above": network.end_row(state["above"], row), "row": None}

    def _predict(self, network: RasterNetwork, state: State) -> tuple[Tensor, State]:
        above, row = state["above"], state["row"]
        if row is None:
            above, from_above = network.begin_row(above, state["label"])
            like = above[PIXELS]
            row = from_above, {name: part.begin_row(like) for name, part in network.convolutions.items()}
        from_above, seen = row
        column, group = divmod(network.convolutions[PIXELS].count(seen[PIXELS]), self.image_shape[0])
        scores, features = network.element(group, column, from_above, seen)
        seen = {
            **seen,
            **{
                name: network.convolutions[name].see(seen[name], new, whole_row=name in network.whole_rows)
                for name, new in features.items()
            },
        }
        return scores, {**state, "above": above, "row": (from_above, seen)}
