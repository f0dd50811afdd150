"""The masks of an image model: the pixels and colours that its weights may read."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.data.images.source import Pixels
from chainrule.layers.masked_conv2d import MaskedConv2d

_CELL = 14  # pixels of a drawn weight
_ALLOWED, _PART, _MASKED, _LINE = (0, 114, 178), (146, 196, 226), (238, 239, 241), (150, 154, 160)


@dataclass(frozen=True)
class MaskImage:
    """A mask, and the layers that have it.

    Attributes:
        layers: their names in the model.
        mask_type: "A", which leaves the present pixel out, or "B".
        taps: (height, width) the share of pairs of channels that each tap connects: 1 everywhere above and to the left,
            0 below and to the right, in between at the present pixel.
        groups: (G, G) booleans: true where a colour's features read another's at the present pixel.
    """

    layers: tuple[str, ...]
    mask_type: str
    taps: Tensor
    groups: Tensor

    @property
    def title(self) -> str:
        """In a line, as a heading."""
        height, width = self.taps.shape
        count = f"{len(self.layers)} layers" if len(self.layers) > 1 else "1 layer"
        return f"type {self.mask_type}, {height}×{width}, {count}"

    def pixels(self) -> Pixels:
        """(H', W', 3): the taps as squares, and for several colours the present pixel's table at their right."""
        taps = _squares(self.taps)
        if self.groups.numel() == 1:
            return taps
        table = _squares(self.groups.double())
        height = max(len(taps), len(table))
        parts = [np.pad(part, ((0, height - len(part)), (0, 8), (0, 0)), constant_values=255) for part in (taps, table)]
        return np.concatenate(parts, 1)


def mask_images(model: nn.Module) -> list[MaskImage]:
    """The different masks of a model's convolutions, in the order in which they come.

    >>> from chainrule.models import PixelCNN
    >>> for mask in mask_images(PixelCNN((1, 8, 8), levels=2, channels=8, layers=3, kernel_size=3)):
    ...     print(mask.title)
    type A, 7×7, 1 layer
    type B, 1×1, 8 layers
    type B, 3×3, 3 layers
    """
    found: dict[tuple[object, ...], tuple[list[str], MaskedConv2d]] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, MaskedConv2d):
            height, width = layer.mask.shape[2:]
            found.setdefault((layer.mask_type, height, width, layer.channel_groups), ([], layer))[0].append(name)
    return [_image(tuple(names), layer) for names, layer in found.values()]


def _image(names: tuple[str, ...], layer: MaskedConv2d) -> MaskImage:
    mask = layer.mask.double().cpu()
    outputs, inputs = (groups.cpu() for groups in layer.groups_of_channels())
    centre = layer.mask[:, :, mask.shape[2] // 2, mask.shape[3] // 2].cpu()
    colours = torch.arange(layer.channel_groups, device="cpu")
    groups = torch.stack(
        [torch.stack([centre[outputs == reader][:, inputs == read].any() for read in colours]) for reader in colours]
    )
    return MaskImage(names, layer.mask_type, mask.mean((0, 1)), groups)


def _squares(shares: Tensor) -> Pixels:
    """Squares between lines: allowed, in part, masked."""
    height, width = shares.shape
    drawn = np.full((height * _CELL + 1, width * _CELL + 1, 3), _LINE, np.uint8)
    for row in range(height):
        for column in range(width):
            share = float(shares[row, column])
            colour = _ALLOWED if share == 1 else _PART if share > 0 else _MASKED
            square = drawn[row * _CELL + 1 : (row + 1) * _CELL, column * _CELL + 1 : (column + 1) * _CELL]
            square[:] = colour
    return drawn
