"""The residual block of the PixelCNN."""

from typing import final

import torch
from torch import Tensor, nn

from chainrule.layers._masked_conv2d import MaskedConv2d
from chainrule.layers._raster_layer import RasterLayer
from chainrule.state import State


@final
class MaskedResidualBlock(RasterLayer):
    r"""A narrow masked convolution between two 1×1 ones, around an identity (van den Oord et al. 2016).

    .. math:: h' = h + W_3\,\mathrm{relu}(W_2 * \mathrm{relu}(W_1\,\mathrm{relu}(h) + b_1) + b_2)

    All three are of type B. A label adds a bias to b_2.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int,
        channel_groups: int = 1,
        *,
        num_classes: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        half = channels // 2
        self.narrowing = MaskedConv2d(channels, half, 1, "B", channel_groups)
        self.middle = MaskedConv2d(half, half, kernel_size, "B", channel_groups)
        self.widening = MaskedConv2d(half, channels, 1, "B", channel_groups, bias=False)
        self.label_bias = None if num_classes is None else nn.Embedding(num_classes, half)
        self.dropout = dropout
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights; the weights of labels start with little effect."""
        for convolution in (self.narrowing, self.middle, self.widening):
            convolution.reset_parameters()
        if self.label_bias is not None:
            nn.init.normal_(self.label_bias.weight, std=0.1)

    def forward(self, x: Tensor, above: State = None, label: Tensor | None = None) -> tuple[Tensor, State]:
        above = self.blank_rows(x) if above is None else above
        rows = torch.cat([above, self.narrowing(x.relu()).relu()], 2)
        b = self.middle.below(rows)
        if self.label_bias is not None:
            b = b + self.label_bias(label).unsqueeze(-1).unsqueeze(-1)
        c = nn.functional.dropout(b.relu(), self.dropout, self.training)
        return x + self.widening(c), rows[:, :, rows.shape[2] - above.shape[2] :]

    def blank_rows(self, like: Tensor) -> State:
        """Zeros that W_2 reads above the image, (B, M/2, rows above, W)."""
        return like.new_zeros(len(like), self.middle.weight.shape[1], self.middle.rows_above, like.shape[3])
