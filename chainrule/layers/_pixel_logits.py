"""The last layers of an image network: from features of pixels to scores of their values."""

from collections.abc import Mapping, Sequence
from typing import final

import torch
from torch import Tensor, nn

from chainrule.layers._masked_conv2d import MaskedConv2d
from chainrule.layers._raster_convolutions import RasterConvolutions


@final
class PixelLogits(nn.Module):
    r"""Two masked 1×1 convolutions, from features to a score for every value of every colour channel.

    .. math:: a = W_2 \,\mathrm{relu}(W_1 \,\mathrm{relu}(h) + b_1) + b_2

    Args:
        channels: M features of a pixel.
        image_channels: C colour channels.
        levels: V values that a colour channel may have.

    >>> PixelLogits(8, image_channels=3, levels=4)(torch.zeros(2, 8, 5, 5)).shape
    torch.Size([2, 12, 5, 5])
    """

    def __init__(self, channels: int, image_channels: int, levels: int):
        super().__init__()
        self.hidden = MaskedConv2d(channels, channels, 1, "B", image_channels)
        self.output = MaskedConv2d(channels, image_channels * levels, 1, "B", image_channels)

    def forward(self, h: Tensor) -> Tensor:
        """(B, M, H, W) to (B, C·V, H, W), the scores of one colour channel after those of another."""
        return self.output(self.hidden(h.relu()).relu())


class RasterLogits:
    """`PixelLogits` prepared for single elements."""

    def __init__(self, layer: PixelLogits):
        self._hidden = RasterConvolutions([layer.hidden])
        self._scores = RasterConvolutions([layer.output])
        self.convolutions = {"hidden": self._hidden, "scores": self._scores}

    def element(
        self, h: Tensor, group: int, seen: Mapping[str, list[Tensor]]
    ) -> tuple[Tensor, Mapping[str, Sequence[Tensor]]]:
        """Scores of an element (B, V) from its features h (B, M of the group), and what later elements read."""
        h = h.relu()
        (known,) = self._hidden.known(group, seen["hidden"])
        hidden = torch.addmm(known, h, self._hidden.own[group][0]).relu()
        (known,) = self._scores.known(group, seen["scores"])
        scores = torch.addmm(known, hidden, self._scores.own[group][0])
        return scores, {"hidden": [h], "scores": [hidden]}
