"""Images changed at random in ways that leave their label: shifted, turned, scaled, mirrored."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Augmentation:
    """Random affine changes of images, drawn for each image.

    Args:
        shift: pixels up, down, left or right at most.
        rotate: degrees in either direction at most.
        scale: largest growth or shrinking of an image: 0.1 is a factor from 1 / 1.1 to 1.1.
        flip: whether half of the images are mirrored, left for right.

    Raises:
        ValueError: a number is out of range.

    >>> image = torch.arange(4.0).view(1, 1, 2, 2)
    >>> Augmentation()(image, np.random.default_rng(0)).equal(image)
    True
    """

    shift: float = 0.0
    rotate: float = 0.0
    scale: float = 0.0
    flip: bool = False

    def __post_init__(self) -> None:
        for name, value, most in (("shift", self.shift, 1e4), ("rotate", self.rotate, 180), ("scale", self.scale, 9)):
            if not 0 <= value <= most:
                raise ValueError(f"{name}: expected a number from 0 to {most:g}, got {value}")

    def __call__(self, images: Tensor, random: np.random.Generator) -> Tensor:
        """Change images (B, C, H, W); the same `random` draws the same changes. Beyond the border is the lowest value.

        Without rotation and scaling, shifts are whole pixels and values stay as they are; else they are interpolated.
        """
        if self.flip:
            mirrored = torch.from_numpy(random.random(len(images)) < 0.5).view(-1, 1, 1, 1)
            images = torch.where(mirrored, images.flip(3), images)
        if self.rotate or self.scale:
            return self._turned(images, random)
        most = int(self.shift)
        return _shifted(images, random.integers(-most, most + 1, (len(images), 2)), most) if most else images

    def _turned(self, images: Tensor, random: np.random.Generator) -> Tensor:
        batch, _, height, width = images.shape
        angle = math.radians(self.rotate) * random.uniform(-1, 1, batch)
        factor = (1 + self.scale) ** random.uniform(-1, 1, batch)
        moved = self.shift * random.uniform(-1, 1, (batch, 2))
        cosine, sine = np.cos(angle) / factor, np.sin(angle) / factor
        rows = np.stack([cosine, -sine * height / width, 2 * moved[:, 0] / width], 1)
        columns = np.stack([sine * width / height, cosine, 2 * moved[:, 1] / height], 1)
        maps = torch.from_numpy(np.stack([rows, columns], 1)).float()
        grid = nn.functional.affine_grid(maps, list(images.shape), align_corners=False)
        return nn.functional.grid_sample(images.float(), grid, align_corners=False)


def _shifted(images: Tensor, by: np.ndarray, most: int) -> Tensor:
    """Each image moved by its (down, right) pixels."""
    batch, channels, height, width = images.shape
    padded = nn.functional.pad(images, (most, most, most, most))
    rows = torch.arange(height) + most - torch.from_numpy(by[:, :1])  # (B, H)
    columns = torch.arange(width) + most - torch.from_numpy(by[:, 1:])
    place = torch.arange(batch).view(-1, 1, 1, 1), torch.arange(channels).view(1, -1, 1, 1)
    return padded[*place, rows.view(batch, 1, -1, 1), columns.view(batch, 1, 1, -1)]
