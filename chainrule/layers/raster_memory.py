"""Memory of the elements of a row while an image is visited one element at a time."""

from collections.abc import Sequence

import torch
from torch import Tensor


class RasterMemory:
    """Features of L layers at the elements seen so far: of convolutions, or of a recurrence that carries them on.

    Args:
        layers: L.
        sizes: features of a layer in each channel group of a pixel.
        left: pixels to the left that are read.
    """

    def __init__(self, layers: int, sizes: Sequence[int], left: int):
        self.layers = layers
        self.groups = len(sizes)
        self.left = left
        self._in = list(sizes)

    def begin_row(self, like: Tensor) -> list[Tensor]:
        """Features to the left of a row: zeros, an entry (B, L, in) for each element. `like` has B rows."""
        return [like.new_zeros(len(like), self.layers, size) for size in self._in] * self.left

    def see(self, seen: list[Tensor], features: Sequence[Tensor], *, whole_row: bool = False) -> list[Tensor]:
        """Put the features of one more element to those seen; what no later element reads is dropped.

        Args:
            seen: from `begin_row` or `see`.
            features: of the element, those of each of the L layers, (B, in of the group).
            whole_row: drop nothing: the row below will ask for it.
        """
        if not whole_row and not self.left and self.groups == 1:
            return seen
        seen = [*seen, torch.stack(list(features), 1) if self.layers > 1 else features[0].unsqueeze(1)]
        if whole_row:
            return seen
        group = self.count(seen) % self.groups
        return seen[len(seen) - self.left * self.groups - group :]

    def count(self, seen: list[Tensor]) -> int:
        """How many elements were seen since the row began, of those that are kept."""
        return len(seen) - self.left * self.groups

    def row(self, seen: list[Tensor], width: int) -> Tensor:
        """The features of a row whose every element was seen: (B, L·in, 1, W)."""
        row = torch.cat(seen[self.left * self.groups :], 2)  # (B, L, W·in)
        return row.view(len(row), self.layers, width, -1).transpose(2, 3).flatten(1, 2).unsqueeze(2)
