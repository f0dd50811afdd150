"""The protocol of layers over images: blocks of rows, the memory between them, and stacks of such layers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from chainrule.state import State


class RasterLayer(nn.Module, ABC):
    """A layer that reads an image in raster order, as a `SequenceLayer` reads a sequence.

    The state `above` holds what is needed of earlier rows. Any division of an image into blocks of whole rows gives
    the same output and the same last state.
    """

    @abstractmethod
    def forward(self, x: Tensor, above: State = None, label: Tensor | None = None) -> tuple[Tensor, State]:
        """Read a block of n whole rows.

        Args:
            x: (B, M, n, W).
            above: from `blank_rows` or `forward`; `None` is `blank_rows`.
            label: (B,) integers in [0, num_classes).

        Returns:
            x', (B, M, n, W), and `above` for the rows that follow.
        """

    @abstractmethod
    def blank_rows(self, like: Tensor) -> State:
        """`above` at the top of images as wide as `like`, (B, M, n, W)."""


class RasterMemory:
    """Features of L layers at the elements seen so far: of convolutions, or of a recurrence that carries them on.

    Args:
        layers: L.
        sizes: features of a layer in each channel group of a pixel.
        left: pixels to the left that are read.
    """

    def __init__(self, layers: int, sizes: Sequence[int], left: int):
        self.layers = layers
        self.groups = len(sizes)
        self.left = left
        self._in = list(sizes)

    def begin_row(self, like: Tensor) -> list[Tensor]:
        """Features to the left of a row: zeros, an entry (B, L, in) for each element. `like` has B rows."""
        return [like.new_zeros(len(like), self.layers, size) for size in self._in] * self.left

    def see(self, seen: list[Tensor], features: Sequence[Tensor], *, whole_row: bool = False) -> list[Tensor]:
        """Put the features of one more element to those seen; what no later element reads is dropped.

        Args:
            seen: from `begin_row` or `see`.
            features: of the element, those of each of the L layers, (B, in of the group).
            whole_row: drop nothing: the row below will ask for it.
        """
        if not whole_row and not self.left and self.groups == 1:
            return seen
        seen = [*seen, torch.stack(list(features), 1) if self.layers > 1 else features[0].unsqueeze(1)]
        if whole_row:
            return seen
        group = self.count(seen) % self.groups
        return seen[len(seen) - self.left * self.groups - group :]

    def count(self, seen: list[Tensor]) -> int:
        """How many elements were seen since the row began, of those that are kept."""
        return len(seen) - self.left * self.groups

    def row(self, seen: list[Tensor], width: int) -> Tensor:
        """The features of a row whose every element was seen: (B, L·in, 1, W)."""
        row = torch.cat(seen[self.left * self.groups :], 2)  # (B, L, W·in)
        return row.view(len(row), self.layers, width, -1).transpose(2, 3).flatten(1, 2).unsqueeze(2)


PIXELS = "pixels"  # the convolution that reads the image itself


class RasterBody(ABC):
    """L layers of one kind, their weights laid out for visiting an image element by element.

    Attributes:
        convolutions: by name, all that read or carry features of other elements.
        whole_rows: the names of those whose features the row below asks for.
    """

    convolutions: Mapping[str, RasterMemory]
    whole_rows: frozenset[str] = frozenset()

    @abstractmethod
    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, Mapping[str, Tensor]]:
        """Contributions of the rows above to a whole row: for each name (B, L, W, out). `above` may move on."""

    @abstractmethod
    def element(
        self, x: Tensor, group: int, column: int, from_above: Mapping[str, Tensor], seen: Mapping[str, list[Tensor]]
    ) -> tuple[Tensor, Mapping[str, Sequence[Tensor]]]:
        """Features of one element, (B, M of the group), after all layers, and by name, L tensors each.

        Args:
            x: the output of the convolution that reads the image.
            group: the colour channel of the element.
            column: of its pixel.
            from_above: from `begin_row`.
            seen: features of earlier elements, by name.
        """

    @abstractmethod
    def end_row(self, above: State, row: Mapping[str, Tensor]) -> State:
        """`above` for the next row, but for the image, from a row's features by name, (B, L·in, 1, W) each."""
