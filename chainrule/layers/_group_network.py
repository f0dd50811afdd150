"""The network that gives the distribution of a group of pixels, all at once, from coarser ones."""

from dataclasses import dataclass
from typing import cast, final

import torch
from torch import Tensor, nn

from chainrule.layers._pointwise import concatenated_elu


@final
class GroupNetwork(nn.Module):
    r"""Gated residual blocks of unmasked convolutions, one result for each block of 2 × 2 pixels.

    .. math:: h_0 = W_0 * x + b_0, \quad c = W_1 * f(h) + b_1, \quad (a_1, a_2) = W_2 * f(c) + b_2 + e_s + e_y, \quad
        h' = h + a_1 \odot \sigma(a_2), \quad z = W \,\mathrm{elu}(h_L) + b

    f is `concatenated_elu`, e_s and e_y belong to a scale and a label. All of x is known beforehand: nothing is masked.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        layers: int,
        out_channels: int,
        scales: int,
        *,
        num_classes: int | None = None,
    ):
        super().__init__()
        self.first = nn.Conv2d(in_channels, channels, 3, padding=1)
        self.blocks = nn.ModuleList(_Block(channels, scales, num_classes) for _ in range(layers))
        self.last = nn.Conv2d(channels, out_channels, 1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights; biases are zero, results nearly so."""
        for convolution, gain in ((self.first, 1.0), (self.last, 0.1)):
            nn.init.normal_(convolution.weight, std=gain * convolution.weight[0].numel() ** -0.5)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)
        for block in cast(list[_Block], list(self.blocks)):
            block.reset_parameters()

    @property
    def radius(self) -> int:
        """The distance, in blocks of pixels along rows and columns, at which a result reads."""
        return 1 + 2 * len(self.blocks)

    def forward(self, x: Tensor, scale: int, label: Tensor | None = None, *, dropout: float = 0.0) -> Tensor:
        """Features (B, N, H, W) of each block of pixels, of one of the scales, to (B, P, H, W)."""
        h = self.first(x)
        for block in cast(list[_Block], list(self.blocks)):
            h = block(h, scale, label, dropout)
        with torch.autocast(h.device.type, enabled=False):  # a mean in bfloat16 may be off by half a level of 256
            results: Tensor = self.last(nn.functional.elu(h.to(self.last.weight.dtype)))
            return results


class _Block(nn.Module):
    def __init__(self, channels: int, scales: int, num_classes: int | None):
        super().__init__()
        self.first = nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.second = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1)
        self.scale_bias = nn.Embedding(scales, 2 * channels)
        self.label_bias = None if num_classes is None else nn.Embedding(num_classes, 2 * channels)

    def reset_parameters(self) -> None:
        for convolution, gain in ((self.first, 1.0), (self.second, 0.1)):
            nn.init.normal_(convolution.weight, std=gain * convolution.weight[0].numel() ** -0.5)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)
        for bias in (self.scale_bias, self.label_bias):
            if bias is not None:
                nn.init.normal_(bias.weight, std=0.1)

    def forward(self, h: Tensor, scale: int, label: Tensor | None, dropout: float) -> Tensor:
        c = self.first(concatenated_elu(h))
        bias = self.scale_bias.weight[scale].view(1, -1, 1, 1)
        if self.label_bias is not None:
            bias = bias + self.label_bias(label).unsqueeze(-1).unsqueeze(-1)
        a = self.second(nn.functional.dropout(concatenated_elu(c), dropout)) + bias
        return h + nn.functional.glu(a, 1)


# Of a block of 2 × 2 pixels the first is known; then come, group by group, its right, its lower and its last one.
OFFSETS = ((0, 0), (0, 1), (1, 0), (1, 1))


@dataclass(frozen=True)
class PixelGroup:
    r"""Pixels (s(2I + a), s(2J + b)), one in each block of 2 × 2 on a grid whose lines are s apart.

    Attributes:
        spacing: s, a power of 2.
        kind: 1, 2 or 3, the number of (a, b) among `OFFSETS`: the groups of smaller number are drawn before it.
        rows: how many rows of pixels the group has.
        columns: how many columns.
    """

    spacing: int
    kind: int
    rows: int
    columns: int

    def places(self) -> tuple[Tensor, Tensor]:
        """Return the row and the column of each pixel of the group, in raster order, (rows·columns,) each."""
        down, right = OFFSETS[self.kind]
        rows = self.spacing * (2 * torch.arange(self.rows) + down)
        columns = self.spacing * (2 * torch.arange(self.columns) + right)
        return rows.repeat_interleave(self.columns), columns.repeat(self.rows)


def coarse_to_fine(height: int, width: int) -> list[PixelGroup]:
    """Return the groups that follow the pixel in the upper left corner until all are visited (Reed et al. 2017).

    Each halving of the spacing takes three of them, fewer where an image is narrow: 32×32 pixels are 15 groups.

    >>> [(group.spacing, group.kind, group.rows * group.columns) for group in coarse_to_fine(3, 4)]
    [(2, 1, 1), (2, 2, 1), (2, 3, 1), (1, 1, 4), (1, 2, 2), (1, 3, 2)]
    """
    spacing = 1
    while spacing < max(height, width):
        spacing *= 2
    groups = []
    while spacing > 1:
        spacing //= 2
        grid_rows, grid_columns = -(-height // spacing), -(-width // spacing)
        for kind, (down, right) in enumerate(OFFSETS):
            rows, columns = (grid_rows - down + 1) // 2, (grid_columns - right + 1) // 2
            if kind and rows and columns:
                groups.append(PixelGroup(spacing, kind, rows, columns))
    return groups
