"""Random operations on images, so many of each: RandAugment, for a whole batch at once."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# The largest amount of each operation: share of a side, radians, slope, factor less one, cut-out share of a side.
LARGEST = {
    "shift down": 0.3,
    "shift right": 0.3,
    "rotate": math.pi / 6,
    "shear rows": 0.3,
    "shear columns": 0.3,
    "brightness": 0.9,
    "contrast": 0.9,
    "cutout": 0.4,
    "nothing": 0.0,
}


@dataclass(frozen=True)
class RandomOperations:
    """Operations drawn for each image of a batch.

    Args:
        amounts: (B,) of each operation by its name; 0 where it was not drawn.
    """

    amounts: dict[str, np.ndarray]

    def moves(self, height: int, width: int) -> np.ndarray:
        """(B, 3, 3), as `Augmentation` has them: shifted, turned and sheared."""
        angle = self.amounts["rotate"]
        turned, sheared = (np.tile(np.eye(3), (len(angle), 1, 1)) for _ in range(2))
        turned[:, 0, 0] = turned[:, 1, 1] = np.cos(angle)
        turned[:, 1, 0] = np.sin(angle)
        turned[:, 0, 1] = -turned[:, 1, 0]
        turned[:, 0, 2] = self.amounts["shift right"] * width
        turned[:, 1, 2] = self.amounts["shift down"] * height
        sheared[:, 0, 1], sheared[:, 1, 0] = self.amounts["shear rows"], self.amounts["shear columns"]
        return turned @ sheared

    def coloured(self, images: Tensor, levels: int, random: np.random.Generator) -> Tensor:
        """Images (B, C, H, W) brightened, their contrast changed, and with a square cut out of them.

        Brightness multiplies values, contrast their distance from the image's mean; both are clamped to
        [0, levels - 1]. The square lies anywhere and has the lowest value.
        """
        brightness, contrast = (
            torch.from_numpy(1 + self.amounts[name]).to(images).view(-1, 1, 1, 1) for name in ("brightness", "contrast")
        )
        images = (images * brightness).clamp(0, levels - 1)
        images = images.mean((1, 2, 3), keepdim=True).lerp(images, contrast).clamp(0, levels - 1)
        batch, _, height, width = images.shape
        half = torch.from_numpy(np.abs(self.amounts["cutout"])).view(-1, 1) / 2
        middle = torch.from_numpy(random.uniform(0, 1, (2, batch, 1)))
        rows, columns = (
            ((torch.arange(side) + 0.5) / side - place).abs() < half
            for side, place in zip((height, width), middle, strict=True)
        )  # (B, H), (B, W)
        return images.masked_fill((rows.unsqueeze(2) & columns.unsqueeze(1)).unsqueeze(1), 0)


def draw_operations(batch: int, operations: int, magnitude: float, random: np.random.Generator) -> RandomOperations:
    """Draw operations for each image, each of `LARGEST` as likely as another, as RandAugment does (Cubuk et al. 2020).

    An operation has `magnitude` of its largest amount, in a direction drawn for each; one that is drawn twice adds up.

    Args:
        batch: B images.
        operations: of each image.
        magnitude: 0 to 1.
        random: draws them.
    """
    chosen = random.integers(len(LARGEST), size=(batch, operations))
    signs = random.choice((-magnitude, magnitude), size=(batch, operations))
    return RandomOperations(
        {name: ((chosen == place) * signs).sum(1) * most for place, (name, most) in enumerate(LARGEST.items())}
    )
