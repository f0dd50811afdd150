"""A convolution that reads only what comes before, in raster order."""

from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from chainrule._buffers import fixed_buffer
from chainrule.layers._convolution_masks import MaskType, channel_group_of, convolution_mask


@final
class MaskedConv2d(nn.Module):
    r"""A convolution whose output at a pixel reads earlier pixels in raster order (van den Oord et al. 2016).

    .. math:: y_{ij} = b + \sum_{u, v} (M \odot W)_{uv} \, x_{i+u, j+v}

    Type A leaves the present pixel out, type B reads it. With several channel groups the present pixel is read group by
    group: type A reads strictly earlier groups, type B its own too. The image is taken to be zero outside its borders,
    and the output has its size. The weight has the shape that `torch.nn.Conv2d` gives it; what lies below the present
    row is masked, and no arithmetic is spent on it.

    Args:
        in_channels: N channels read.
        out_channels: M channels made.
        kernel_size: odd, or the pair (height, width) of odd sizes.
        mask_type: "A" for the layer that reads the image, "B" for every later one.
        channel_groups: colour channels whose order is kept; both N and M are divided into as many contiguous groups,
            whose sizes differ by one at most.
        parts: M is this many equal runs of channels, each divided into groups on its own: 2 for the halves of a gate.
        bias: whether b is added.

    Raises:
        ValueError: an even kernel, an unknown type, or fewer channels than groups.

    >>> layer = MaskedConv2d(3, 6, 3, "A", channel_groups=3)
    >>> layer(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 6, 8, 8])
    """

    mask: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        mask_type: MaskType,
        channel_groups: int = 1,
        *,
        parts: int = 1,
        bias: bool = True,
    ):
        super().__init__()
        height, width = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
        self.mask_type: MaskType = mask_type
        self.channel_groups = channel_groups
        self.parts = parts
        channels = (in_channels, out_channels, channel_groups, parts)
        fixed_buffer(self, "mask", partial(_mask, *channels, height, width, mask_type))
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, height, width))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights, uniform with variance 1 / (inputs that an output reads); biases are zero."""
        inputs = self.mask.flatten(1).sum(1).clamp_min(1).view(-1, 1, 1, 1)
        with torch.no_grad():
            self.weight.uniform_(-1, 1).mul_((3 / inputs) ** 0.5)
            if self.bias is not None:
                self.bias.zero_()

    @property
    def rows_above(self) -> int:
        """How many rows above the present one are read."""
        return self.mask.shape[2] // 2

    def groups_of_channels(self) -> tuple[Tensor, Tensor]:
        """The channel group of each output and of each input channel, (out,) and (in,) integers."""
        outputs, inputs = self.mask.shape[:2]
        groups = self.channel_groups
        return channel_group_of(outputs, groups, self.parts, "cpu"), channel_group_of(inputs, groups, device="cpu")

    def masked_weight(self) -> Tensor:
        """M ⊙ W without the rows below the present one, (out, in, rows above + 1, width)."""
        rows = slice(self.rows_above + 1)
        return self.weight[:, :, rows] * self.mask[:, :, rows]

    def forward(self, x: Tensor) -> Tensor:
        """Read a whole image, (B, N, H, W) to (B, M, H, W)."""
        return self.below(nn.functional.pad(x, (0, 0, self.rows_above, 0)))

    def below(self, rows: Tensor) -> Tensor:
        """Read H rows together with those above them, (B, N, rows above + H, W) to (B, M, H, W)."""
        return nn.functional.conv2d(rows, self.masked_weight(), self.bias, padding=(0, self.mask.shape[3] // 2))

    def extra_repr(self) -> str:
        out_channels, in_channels, height, width = self.mask.shape
        return (
            f"{in_channels}, {out_channels}, kernel_size=({height}, {width}), mask_type={self.mask_type!r}, "
            f"channel_groups={self.channel_groups}"
        )


def _mask(
    in_channels: int, out_channels: int, groups: int, parts: int, height: int, width: int, mask_type: MaskType
) -> Tensor:
    in_groups, out_groups = channel_group_of(in_channels, groups), channel_group_of(out_channels, groups, parts)
    return convolution_mask(in_groups, out_groups, height, width, mask_type)
