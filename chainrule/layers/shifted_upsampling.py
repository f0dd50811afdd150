"""Twice as many rows and columns, none of which knows more than the coarser pixel it was made of."""

from typing import final

from torch import Tensor, nn


@final
class ShiftedUpsampling(nn.Module):
    r"""A transposed convolution of stride 2, the way back from `ShiftedConv2d` (Salimans et al. 2017, PixelCNN++).

    .. math:: y_{2I+a,\, 2J+b} = c + \sum_{v} W_{a,b-2v} \, x_{I,J+v}

    Coarse row I becomes rows 2I and 2I + 1. Moved up (`reads_right`), a column between two coarse ones reads both;
    otherwise coarse pixel (I, J) becomes the four pixels from (2I, 2J) on, and is the only one they read.

    Args:
        channels: M channels of x and y.
        reads_right: as in `ShiftedConv2d`.

    >>> import torch
    >>> ShiftedUpsampling(8, reads_right=False)(torch.zeros(1, 8, 2, 3), width=5).shape
    torch.Size([1, 8, 4, 5])
    """

    def __init__(self, channels: int, *, reads_right: bool):
        super().__init__()
        self.convolution = nn.ConvTranspose2d(channels, channels, (2, 3 if reads_right else 2), 2)
        self.reads_right = reads_right
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights; biases are zero."""
        nn.init.normal_(self.weight, std=self.weight.shape[0] ** -0.5)
        assert self.convolution.bias is not None
        nn.init.zeros_(self.convolution.bias)

    @property
    def weight(self) -> Tensor:
        """W, (M in, M out, 2, 3 or 2)."""
        return self.convolution.weight

    @property
    def bias(self) -> Tensor:
        """c, (M,)."""
        assert self.convolution.bias is not None
        return self.convolution.bias

    def forward(self, x: Tensor, width: int) -> Tensor:
        """(B, M, H, ⌈width / 2⌉) to (B, M, 2H, width)."""
        first = int(self.reads_right)
        columns: Tensor = self.convolution(x)[:, :, :, first : first + width]
        return columns
