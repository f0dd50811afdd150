"""The residual block of the PixelCNN++."""

from typing import final

import torch
from torch import Tensor, nn

from chainrule.layers._activations import concatenated_elu
from chainrule.layers._raster_layer import RasterLayer
from chainrule.layers._shifted_convolutions import ShiftedConv2d
from chainrule.state import State


@final
class GatedResidualBlock(RasterLayer):
    r"""Two shifted convolutions and a gate around an identity (Salimans et al. 2017, PixelCNN++).

    .. math:: c = W_1 * f(x) + W_b f(s_b) + W_s f(s) + b_1, \qquad
        (a_1, a_2) = W_2 * f(c) + b_2 + W_y y, \qquad x' = x + a_1 \odot \sigma(a_2)

    f is `concatenated_elu`, s_b what another stream found at the same place, s a shortcut from an earlier layer, y a
    label.

    Args:
        channels: M features of x, s_b, s and x'.
        reads_right: as in `ShiftedConv2d`.
        neighbour: whether there is another stream.
        shortcut: whether there is a shortcut.
        num_classes: number of labels; `None` without labels.

    >>> block = GatedResidualBlock(8, reads_right=False)
    >>> block(torch.zeros(2, 8, 5, 4))[0].shape
    torch.Size([2, 8, 5, 4])
    """

    def __init__(
        self,
        channels: int,
        *,
        reads_right: bool,
        neighbour: bool = False,
        shortcut: bool = False,
        num_classes: int | None = None,
    ):
        super().__init__()
        self.first = ShiftedConv2d(2 * channels, channels, reads_right=reads_right)
        self.second = ShiftedConv2d(2 * channels, 2 * channels, reads_right=reads_right)
        self.neighbour = nn.Conv2d(2 * channels, channels, 1, bias=False) if neighbour else None
        self.shortcut = nn.Conv2d(2 * channels, channels, 1, bias=False) if shortcut else None
        self.label_bias = None if num_classes is None else nn.Embedding(num_classes, 2 * channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights; at first a block adds a tenth of what it reads, and a label does little."""
        self.first.reset_parameters()
        self.second.reset_parameters(gain=0.1)
        for convolution in (self.neighbour, self.shortcut):
            if convolution is not None:
                nn.init.normal_(convolution.weight, std=convolution.weight.shape[1] ** -0.5)
        if self.label_bias is not None:
            nn.init.normal_(self.label_bias.weight, std=0.1)

    def blank_rows(self, like: Tensor) -> State:
        """Zeros that the two convolutions read above the image, (B, 2M, 1, W) each."""
        blank = like.new_zeros(like.shape[0], 2 * like.shape[1], 1, like.shape[3])
        return blank, blank

    def forward(
        self,
        x: Tensor,
        above: State = None,
        label: Tensor | None = None,
        neighbour: Tensor | None = None,
        shortcut: Tensor | None = None,
        *,
        dropout: float = 0.0,
    ) -> tuple[Tensor, State]:
        """Read a block of n whole rows; see `RasterLayer.forward`.

        Args:
            x: (B, M, n, W).
            above: inputs of the two convolutions in the row above, (B, 2M, 1, W) each; `None` is zeros.
            label: (B,) integers in [0, num_classes).
            neighbour: s_b, (B, M, n, W).
            shortcut: s, (B, M, n, W).
            dropout: probability of zeroing an input of W_2, for training.
        """
        over_first, over_second = self.blank_rows(x) if above is None else above
        read = concatenated_elu(x)
        c = self.first.below(torch.cat([over_first, read], 2))
        for convolution, features in ((self.neighbour, neighbour), (self.shortcut, shortcut)):
            if convolution is not None and features is not None:
                c = c + convolution(concatenated_elu(features))
        again = nn.functional.dropout(concatenated_elu(c), dropout)
        a = self.second.below(torch.cat([over_second, again], 2))
        if self.label_bias is not None:
            a = a + self.label_bias(label).unsqueeze(-1).unsqueeze(-1)
        return x + nn.functional.glu(a, 1), (read[:, :, -1:], again[:, :, -1:])
