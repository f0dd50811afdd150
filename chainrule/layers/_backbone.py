"""A published image network, a ResNet, with weights that the user has, in the place of `ImageEncoder`."""

from pathlib import Path
from typing import final

from torch import Tensor, nn

from chainrule.layers._image_encoder import standardised


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
