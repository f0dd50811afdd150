"""A small residual convolutional network for images: the baseline of the attention models."""

from typing import Annotated, final

from torch import Tensor, nn

from chainrule._ranges import Layers, Probability, Range, Size, check_shares, check_sizes
from chainrule.models._image_classifier import ImageClassifier


@final
class ConvNet(ImageClassifier):
    r"""A classifier of images by residual convolutions (He et al. 2016), with pre-activation.

    .. math:: h \leftarrow h + W_2 * \mathrm{relu}(n_2(W_1 * \mathrm{relu}(n_1(h))))

    in stages of `blocks` blocks; each stage but the first halves height and width, and doubles the channels. n is batch
    normalisation. The features are the mean over the last stage's places.

    Args:
        image_shape: (C, H, W).
        num_classes: labels are integers in [0, num_classes).
        levels: V, values that a channel of a pixel may have.
        channels: N, features of a place in the first stage.
        stages: stages, each at half the resolution of the one before.
        blocks: residual blocks of a stage.
        dropout: probability of zeroing a feature before the output, in training.
        label_smoothing: share of the training objective that is spread evenly over the labels.
        mixup: α of mixup in training: pairs of images are averaged with weights from Beta(α, α); 0 turns it off. If not
            given, the task uses 0.4 for 40 passes over the images or more, else 0.

    >>> import torch
    >>> model = ConvNet((1, 8, 8), num_classes=3, levels=2, channels=4)
    >>> images = torch.randint(2, (2, 1, 8, 8))
    >>> model(images).probs.shape, model.eval().log_prob(torch.tensor([0, 2]), images).shape
    (torch.Size([2, 3]), torch.Size([2]))
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_classes: int,
        levels: int = 256,
        *,
        channels: Size = 32,
        stages: Annotated[int, Range(1, 8)] = 3,
        blocks: Layers = 1,
        dropout: Probability = 0.1,
        label_smoothing: Probability = 0.05,
        mixup: Annotated[float, Range(0.0, 100.0)] = 0.0,
    ):
        super().__init__(image_shape, num_classes, levels, label_smoothing, mixup)
        check_sizes(channels=channels, stages=stages, blocks=blocks)
        check_shares(dropout=dropout)
        if min(image_shape[1:]) < 1 << (stages - 1):
            raise ValueError(
                f"stages: {stages} halve an image of {image_shape[1]}×{image_shape[2]} pixels to nothing: take fewer"
            )
        self.first = nn.Conv2d(image_shape[0], channels, 3, padding=1, bias=False)
        layers: list[nn.Module] = []
        before = channels
        for stage in range(stages):
            after = channels << stage
            layers.append(_Block(before, after, stride=2 if stage else 1))
            layers += [_Block(after, after) for _ in range(blocks - 1)]
            before = after
        self.blocks = nn.Sequential(*layers)
        self.norm = nn.BatchNorm2d(before)
        self.dropout = nn.Dropout(dropout)
        self._add_output(before)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def features(self, x: Tensor) -> Tensor:
        return self.dropout(self.feature_map(x).mean((2, 3)))

    def feature_map(self, x: Tensor) -> Tensor:
        """Return the last stage's places, (B, D, rows, columns), of numbers (B, C, H, W)."""
        return self.norm(self.blocks(self.first(x))).relu()


class _Block(nn.Module):
    """Two 3×3 convolutions with a shortcut, norms and activations first."""

    def __init__(self, before: int, after: int, stride: int = 1):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(before), nn.BatchNorm2d(after)
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        plain = before == after and stride == 1
        self.shortcut = None if plain else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        activated = self.norm1(h).relu()
        y = self.conv2(self.norm2(self.conv1(activated)).relu())
        return y + (h if self.shortcut is None else self.shortcut(activated))
