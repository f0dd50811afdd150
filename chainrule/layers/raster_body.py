"""The layers between the first of an image network and its scores, prepared for single elements."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from torch import Tensor

from chainrule.layers.raster_memory import RasterMemory
from chainrule.state import State

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
