"""The order of pixels from coarse to fine, in groups that are drawn at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

# Of a block of 2 × 2 pixels the first is known; then come, group by group, its right, its lower and its last one.
OFFSETS = ((0, 0), (0, 1), (1, 0), (1, 1))


@dataclass(frozen=True)
class PixelGroup:
    r"""Pixels (s(2I + a), s(2J + b)), one in each block of 2 × 2 on a grid whose lines are s apart.

    Attributes:
        spacing: s, a power of 2.
        kind: 1, 2 or 3, the number of (a, b) among `OFFSETS`: when it is drawn, those of smaller number are known.
        rows: how many rows of pixels the group has.
        columns: how many columns.
    """

    spacing: int
    kind: int
    rows: int
    columns: int

    def places(self) -> tuple[Tensor, Tensor]:
        """The row and the column of each pixel of the group, in raster order, (rows·columns,) each."""
        down, right = OFFSETS[self.kind]
        rows = self.spacing * (2 * torch.arange(self.rows) + down)
        columns = self.spacing * (2 * torch.arange(self.columns) + right)
        return rows.repeat_interleave(self.columns), columns.repeat(self.rows)


def coarse_to_fine(height: int, width: int) -> list[PixelGroup]:
    """The groups that follow the pixel in the upper left corner until all are visited (Reed et al. 2017).

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
