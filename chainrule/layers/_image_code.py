"""Networks between an image and a code: dense ones, and convolutional ones that halve and double its sides."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, final

import torch
from torch import Tensor, nn

from chainrule.layers._pointwise import Linear

ImageNetwork = Literal["dense", "convolutional"]


@final
class ImageCodeEncoder(nn.Module):
    r"""Encode an image as a vector of features by gated layers.

    .. math:: h^{(l)} = (W h^{(l-1)} + b) \odot \sigma(V h^{(l-1)} + c)

    with products of matrices, or 3×3 convolutions whose stride is 2, and a last gated product to the features
    (Dauphin et al. 2017).
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        network: ImageNetwork = "dense",
        hidden_size: int = 300,
        num_layers: int = 2,
        channels: int = 32,
    ):
        super().__init__()
        layers: list[nn.Module] = []
        if network == "dense":
            layers = [nn.Flatten(), *gated_layers(_numbers(image_shape), hidden_size, num_layers)]
        else:
            before, grids = image_shape[0], halved(image_shape, num_layers - 1)
            for number in range(num_layers - 1):
                after = channels << number
                layers += [nn.Conv2d(before, 2 * after, 3, stride=2, padding=1), nn.GLU(1)]
                before = after
            layers += [nn.Flatten(), *gated_layers(before * _numbers(grids[-1]), hidden_size, 1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, image: Tensor) -> Tensor:
        """Numbers (B, C, H, W) to features (B, M)."""
        features: Tensor = self.layers(image)
        return features


@final
class ImageCodeDecoder(nn.Module):
    """Decode a code into numbers for every pixel by the layers of an `ImageCodeEncoder` in reverse order."""

    def __init__(
        self,
        code_size: int,
        image_shape: Sequence[int],
        outputs: int,
        network: ImageNetwork = "dense",
        hidden_size: int = 300,
        num_layers: int = 2,
        channels: int = 32,
    ):
        super().__init__()
        self.grid = (outputs, *image_shape[1:])
        if network == "dense":
            last = Linear(hidden_size, outputs * _numbers(image_shape[1:]))
            self.layers = nn.Sequential(
                *gated_layers(code_size, hidden_size, num_layers), last, nn.Unflatten(1, self.grid)
            )
            return
        grids = halved(image_shape, num_layers - 1)
        before = channels << max(num_layers - 2, 0)
        layers: list[nn.Module] = [
            *gated_layers(code_size, hidden_size, 1),
            *gated_layers(hidden_size, before * _numbers(grids[-1]), 1),
            nn.Unflatten(1, (before, *grids[-1])),
        ]
        for number in range(num_layers - 2, -1, -1):
            after = channels << max(number - 1, 0)
            (low_height, low_width), (height, width) = grids[number + 1], grids[number]
            # An even side is 2n, an odd one 2n - 1: the stride of the reader rounds up.
            extra = (height - 2 * low_height + 1, width - 2 * low_width + 1)
            layers += [
                nn.ConvTranspose2d(before, 2 * after, 3, stride=2, padding=1, output_padding=extra),
                nn.GLU(1),
            ]
            before = after
        self.layers = nn.Sequential(*layers, nn.Conv2d(before, outputs, 3, padding=1))

    def forward(self, code: Tensor) -> Tensor:
        """(B, code size) to (B, N, H, W)."""
        numbers: Tensor = self.layers(code)
        return numbers


def gated_layers(inputs: int, hidden_size: int, num_layers: int) -> list[nn.Module]:
    """Dense layers whose units are gated: (.., inputs) to (.., hidden_size)."""
    sizes = [inputs, *[hidden_size] * num_layers]
    return [part for before, after in pairwise(sizes) for part in (Linear(before, 2 * after), nn.GLU(-1))]


def halved(image_shape: Sequence[int], times: int) -> list[tuple[int, int]]:
    """(H, W) of an image, and after each halving, rounded up.

    >>> halved((1, 28, 7), 2)
    [(28, 7), (14, 4), (7, 2)]
    """
    grids = [(image_shape[1], image_shape[2])]
    for _ in range(times):
        height, width = grids[-1]
        grids.append(((height + 1) // 2, (width + 1) // 2))
    return grids


def _numbers(shape: Sequence[int]) -> int:
    return int(torch.Size(shape).numel())
