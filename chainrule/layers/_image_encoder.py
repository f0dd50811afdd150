"""A small residual network with squeeze-and-excitation: an image becomes a grid of features."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's channels, from 0 to 1


@final
class SqueezeExcitation(nn.Module):
    r"""Scale each channel by a gate computed from the means of all channels (Hu, Shen and Sun 2018).

    .. math:: y = x \odot \sigma\!\left(W_2 \mathrm{relu}(W_1 \bar x + b_1) + b_2\right), \qquad
        \bar x = \frac{1}{HW} \sum_{ij} x_{ij}
    """

    def __init__(self, channels: int, reduction: int = 8):
        super().__init__()
        inside = max(4, channels // reduction)
        self.squeeze, self.excite = nn.Linear(channels, inside), nn.Linear(inside, channels)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, N, H, W), scaled."""
        scale = torch.sigmoid(self.excite(self.squeeze(x.mean((2, 3))).relu()))
        return x * scale.unsqueeze(2).unsqueeze(3)


@final
class ResidualBlock(nn.Module):
    r"""Two convolutions with squeeze-and-excitation, and an identity shortcut around them (He et al. 2016).

    .. math:: y = \mathrm{relu}(S x + \mathrm{SE}(n_2(W_2 * \mathrm{relu}(n_1(W_1 * x)))))

    n is a group normalisation, which reads one image and not its neighbours in the batch. S is a 1×1 convolution
    where the shape changes, else the identity. The last gain is 0 at first: a new block changes nothing.
    """

    def __init__(self, before: int, channels: int, stride: int = 1):
        super().__init__()
        self.first = nn.Conv2d(before, channels, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.first_norm, self.second_norm = _norm(channels), _norm(channels)
        self.excitation = SqueezeExcitation(channels)
        same = stride == 1 and before == channels
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, channels, 1, stride, bias=False)
        nn.init.zeros_(self.second_norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, N, H, W), to y (B, N', H / stride, W / stride)."""
        h = self.first_norm(self.first(x)).relu()
        return (self.shortcut(x) + self.excitation(self.second_norm(self.second(h)))).relu()


@final
class ImageEncoder(nn.Module):
    """Images as grids of features: a strided convolution, then blocks that halve height and width.

    Args:
        channels: of each stage; the first has half the size of the image, each further one at half of that
            before it. The last is N.
        blocks: of each stage.

    Raises:
        ValueError: there is no stage, or a stage without channels or blocks.

    >>> encoder = ImageEncoder(channels=(16, 32, 64))
    >>> encoder(torch.zeros(2, 3, 64, 64, dtype=torch.uint8)).shape
    torch.Size([2, 64, 64])
    """

    def __init__(self, channels: Sequence[int] = (32, 64, 128), blocks: int = 1):
        super().__init__()
        if not channels or min(channels) < 1 or blocks < 1:
            raise ValueError(
                f"channels: expected at least one stage of at least one channel and block, got {tuple(channels)} and "
                f"{blocks} blocks"
            )
        self.output_size = channels[-1]
        self.stem = nn.Conv2d(3, channels[0], 5, stride=2, padding=2, bias=False)
        self.stem_norm = _norm(channels[0])
        stages: list[nn.Module] = []
        for stage, after in enumerate(channels):
            before = channels[max(stage - 1, 0)]
            stages.append(ResidualBlock(before, after, stride=2 if stage else 1))
            stages += [ResidualBlock(after, after) for _ in range(blocks - 1)]
        self.stages = nn.Sequential(*stages)

    def forward(self, images: Tensor) -> Tensor:
        """Read images.

        Args:
            images: (B, 3, H, W), values from 0 to 255.

        Returns:
            (B, S, N): the positions of the grid row by row, S = (H / 2^stages) · (W / 2^stages), rounded up.
        """
        h = self.stem_norm(self.stem(standardised(images, self.stem.weight))).relu()
        return self.stages(h).flatten(2).transpose(1, 2)


def standardised(images: Tensor, like: Tensor) -> Tensor:
    """Values from 0 to 255 as numbers about 0, each channel less its usual mean, over its usual deviation.

    >>> standardised(torch.full((1, 3, 1, 1), 255), torch.zeros(1)).flatten()
    tensor([2.2489, 2.4286, 2.6400])
    """
    if images.dim() != 4 or images.shape[1] != 3:
        raise ValueError(f"images: expected shape (B, 3, H, W), got {tuple(images.shape)}")
    mean, deviation = (like.new_tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
    return (images.to(like.dtype) / 255 - mean) / deviation


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(max(group for group in (1, 2, 4, 8) if channels % group == 0), channels)
