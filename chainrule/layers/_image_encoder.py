"""Images to grids of features, by a small residual network or a published ResNet; and to short codes and back."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal, final

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


@final
class Backbone(nn.Module):
    """The last feature map of a `ResNet`, as a grid."""

    def __init__(self, name: str, *, trained: bool = False):
        super().__init__()
        self.network = ResNet(name)
        self.output_size = self.network.output_size
        self.trained = trained
        self.network.requires_grad_(trained)

    def load(self, path: Path) -> None:
        """Take weights from a safetensors file, without the classifier's."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            weights = load_file(path)
        except FileNotFoundError:
            raise FileNotFoundError(f"{path}: no such file: expected the weights of the image network") from None
        except SafetensorError as error:
            raise ValueError(f"{path}: expected a safetensors file ({error}): convert the weights first") from None
        needed = self.network.state_dict()
        # Counts of batches seen in training, which some files leave out: unused with running means of fixed momentum.
        weights = {name: count for name, count in needed.items() if name.endswith("num_batches_tracked")} | weights
        missing = [name for name in needed if name not in weights or weights[name].shape != needed[name].shape]
        if missing:
            raise ValueError(
                f"{path}: expected the weights of a network with {missing[0]!r} {tuple(needed[missing[0]].shape)}, "
                f"got none of this name and shape, nor of {len(missing) - 1} more: name the network that they belong to"
            )
        self.network.load_state_dict({name: weights[name] for name in needed})

    def train(self, mode: bool = True) -> "Backbone":
        """Set the mode; a frozen network also keeps its running means."""
        super().train(mode)
        if not self.trained:
            self.network.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) of values from 0 to 255, to a grid (B, S, N)."""
        features: Tensor = self.network(standardised(images, self.network.conv1.weight))
        return features.flatten(2).transpose(1, 2)


_BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}


@final
class ResNet(nn.Module):
    """A residual network up to its last feature map: 18, 34 or 50 layers without pooling and classifier.

    The parameters have the names and shapes under which weights trained on ImageNet are published (conv1, bn1,
    layer1.0.conv1, ..., layer4.1.bn2). The 50 layers stride in the 3×3 convolution, as those weights expect.

    Source: He, Zhang, Ren and Sun (2016), https://arxiv.org/abs/1512.03385
    """

    def __init__(self, name: str):
        super().__init__()
        if name not in _BLOCKS:
            raise ValueError(f"name: expected {', '.join(_BLOCKS)}, got {name!r}: take one of them")
        block = Bottleneck if name == "resnet50" else BasicBlock
        self.output_size = 512 * block.EXPANSION
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        layers, before = [], 64
        for number, repeats in enumerate(_BLOCKS[name]):
            inside, after = 64 << number, (64 << number) * block.EXPANSION
            first = block(before, inside, stride=2 if number else 1)
            layers.append(nn.Sequential(first, *(block(after, inside) for _ in range(repeats - 1))))
            before = after
        self.layer1, self.layer2, self.layer3, self.layer4 = layers

    def forward(self, x: Tensor) -> Tensor:
        """x (B, 3, H, W), standardised, to (B, N, H / 32, W / 32), rounded up."""
        h = self.maxpool(self.bn1(self.conv1(x)).relu())
        return self.layer4(self.layer3(self.layer2(self.layer1(h))))


@final
class BasicBlock(nn.Module):
    r"""Two 3×3 convolutions with a shortcut.

    .. math:: y = \mathrm{relu}(S x + n_2(W_2 * \mathrm{relu}(n_1(W_1 * x))))
    """

    EXPANSION = 1

    def __init__(self, before: int, channels: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = _shortcut(before, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, N, H, W), to y (B, N', H / stride, W / stride)."""
        h = self.bn1(self.conv1(x)).relu()
        return (self.downsample(x) + self.bn2(self.conv2(h))).relu()


@final
class Bottleneck(nn.Module):
    """A 3×3 convolution between two 1×1 ones, which reduce the channels and restore them, with a shortcut."""

    EXPANSION = 4

    def __init__(self, before: int, channels: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, 4 * channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * channels)
        self.downsample = _shortcut(before, 4 * channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, N, H, W), to y (B, 4 channels, H / stride, W / stride)."""
        h = self.bn1(self.conv1(x)).relu()
        h = self.bn2(self.conv2(h)).relu()
        return (self.downsample(x) + self.bn3(self.conv3(h))).relu()


def _shortcut(before: int, after: int, stride: int) -> nn.Module:
    if stride == 1 and before == after:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))


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
            last = nn.Linear(hidden_size, outputs * _numbers(image_shape[1:]))
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
    return [part for before, after in pairwise(sizes) for part in (nn.Linear(before, 2 * after), nn.GLU(-1))]


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
