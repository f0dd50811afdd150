"""Convolutions shifted down and right, so that an output reads no pixel after its own."""

from typing import final

from torch import Tensor, nn


@final
class ShiftedConv2d(nn.Module):
    r"""A convolution moved up, or up and to the left, by its padding (Salimans et al. 2017, PixelCNN++).

    .. math:: y_{IJ} = b + \sum_{u=-1}^{0} \sum_{v=-1}^{r} W_{uv} \, x_{nI+u,\, nJ+v}

    Moved up (`reads_right`, r = 1), it reads a column to both sides; moved up and to the left (r = 0), the present
    column and the one to the left. There is no weight to be masked. The image is taken to be zero outside its borders.
    With stride n = 2 the output halves the rows and columns, rounded up: row I knows rows 2I - 1 and 2I, so that
    what it is made of is known when row 2I is.

    Args:
        in_channels: N channels read.
        out_channels: M channels made.
        reads_right: whether the column to the right is read too, as may be where x does not depend on the present row.
        stride: n, 1 or 2.

    >>> import torch
    >>> ShiftedConv2d(3, 8, reads_right=True, stride=2)(torch.zeros(1, 3, 5, 8)).shape
    torch.Size([1, 8, 3, 4])
    """

    def __init__(self, in_channels: int, out_channels: int, *, reads_right: bool, stride: int = 1):
        super().__init__()
        self.convolution = nn.Conv2d(in_channels, out_channels, (2, 3 if reads_right else 2), stride)
        self.stride = stride
        self.reads_right = reads_right
        self.reset_parameters()

    def reset_parameters(self, gain: float = 1.0) -> None:
        """Draw the weights: outputs have `gain` times the deviation of inputs; biases are zero."""
        nn.init.normal_(self.weight, std=gain * self.weight[0].numel() ** -0.5)
        nn.init.zeros_(self.bias)

    @property
    def weight(self) -> Tensor:
        """W, (M, N, 2, 3 or 2)."""
        return self.convolution.weight

    @property
    def bias(self) -> Tensor:
        """b, (M,)."""
        assert self.convolution.bias is not None
        return self.convolution.bias

    def forward(self, x: Tensor) -> Tensor:
        """Read a whole image, (B, N, H, W) to (B, M, H, W), or half the rows and columns with stride 2."""
        return self.below(nn.functional.pad(x, (0, 0, 1, 0)))

    def below(self, rows: Tensor) -> Tensor:
        """Read rows together with the one over them, (B, N, 1 + H, W) to (B, M, H, W)."""
        convolved: Tensor = self.convolution(nn.functional.pad(rows, (1, int(self.reads_right))))
        return convolved


@final
class ShiftedUpsampling(nn.Module):
    r"""A transposed convolution of stride 2, the way back from `ShiftedConv2d` (Salimans et al. 2017, PixelCNN++).

    .. math:: y_{2I+a,\, 2J+b} = c + \sum_{v} W_{a,b-2v} \, x_{I,J+v}

    Coarse row I becomes rows 2I and 2I + 1. Moved up (`reads_right`), a column between two coarse ones reads both;
    otherwise coarse pixel (I, J) becomes the four pixels from (2I, 2J) on, and is the only one they read.
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
