"""The protocol of layers over images: blocks of rows, the memory between them, and stacks of such layers."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from chainrule.state import State


class RasterLayer(nn.Module, ABC):
    """A layer that reads an image in raster order, as a `SequenceLayer` reads a sequence.

    The state `above` holds what is needed of earlier rows. Any division of an image into blocks of whole rows gives
    the same output and the same last state.
    """

    reads_image = False  # whether `forward` also takes the rows (B, C, n, W) of the image

    @abstractmethod
    def forward(self, x: Tensor, above: State = None, label: Tensor | None = None) -> tuple[Tensor, State]:
        """Read a block of n whole rows: x' (B, M, n, W) from x (B, M, n, W), and `above` for the rows that follow.

        `above` is from `blank_rows` or `forward`; `None` is `blank_rows`. Labels are (B,) integers.
        """

    @abstractmethod
    def blank_rows(self, like: Tensor) -> State:
        """`above` at the top of images as wide as `like`, (B, M, n, W)."""
