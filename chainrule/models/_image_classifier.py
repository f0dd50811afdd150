"""Classifiers of images: pixels as numbers, the distribution of the label, the objective; a convolutional network."""

from abc import abstractmethod
from typing import Annotated, final

import torch
from torch import Tensor, nn

from chainrule._base import Context, LikelihoodModel
from chainrule._ranges import check_shares, check_sizes
from chainrule.heads import Categorical
from chainrule.models._conditioned import check_one_label_a_row
from chainrule.models._image_model import ImageInput
from chainrule.option_error import OptionError
from chainrule.ranges import Layers, Probability, Range, Size


class ImageClassifier(LikelihoodModel):
    r"""p(y | x) of the label y of an image x.

    .. math:: p(y \mid x) = \mathrm{softmax}(W\,f(2x / (V - 1) - 1) + b)

    with f the features of a subclass, of pixels brought to [-1, 1]. `forward` takes images (B, C, H, W), integers in
    [0, V), and returns the distribution of their labels; `log_prob(labels, images)` is its logarithm.

    Args:
        image_shape: (C, H, W).
        num_classes: labels are integers in [0, num_classes).
        levels: V, values that a channel of a pixel may have.
        label_smoothing: share of the training objective that is spread evenly over the labels (Szegedy et al. 2016);
            `log_prob` has none.
        mixup: α of mixup (Zhang et al. 2018), 0 for none; see `training_objective`. `log_prob` has none.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_classes: int,
        levels: int = 256,
        label_smoothing: float = 0.0,
        mixup: float = 0.0,
    ):
        super().__init__()
        self.images = ImageInput(image_shape, levels)
        self.image_shape = self.images.image_shape
        check_sizes(num_classes=num_classes)
        check_shares(label_smoothing=label_smoothing)
        if not 0 <= mixup < float("inf"):
            raise OptionError("mixup", f"expected a finite number >= 0, got {mixup}")
        self.num_classes, self.levels = num_classes, levels
        self.label_smoothing, self.mixup = label_smoothing, mixup

    def _add_output(self, features: int) -> None:
        """Make W and b; the labels begin equally likely."""
        self.output = nn.Linear(features, self.num_classes)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """f: numbers (B, C, H, W) in [-1, 1] to (B, D)."""

    def forward(self, images: Tensor) -> Categorical:
        """Return the distribution of the labels, of batch shape (B,), given images (B, C, H, W)."""
        return self._labels(self._numbers(images))

    def _labels(self, x: Tensor) -> Categorical:
        return Categorical(self.output(self.features(x)))

    def _numbers(self, images: Context) -> Tensor:
        """Images, checked, as numbers in [-1, 1]."""
        if not isinstance(images, Tensor):
            raise ValueError(f"images: expected a tensor (B, C, H, W), got {type(images).__name__}")
        return self.scaled(self.images.checked(images, "images"))

    def scaled(self, images: Tensor) -> Tensor:
        """Pixels in [0, V) brought to [-1, 1], in the type of the weights."""
        return images.to(self.output.weight.dtype) * (2 / (self.levels - 1)) - 1

    def log_prob(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """log p(y | x) of labels (B,) given images as `context`, (B,), nats."""
        if lengths is not None:
            raise ValueError("lengths: a label has none; leave it None")
        if context is None:
            raise ValueError("context: expected the images (B, C, H, W) that the labels are of, got None")
        distribution = self.forward(context)
        check_one_label_a_row(x, *distribution.batch_shape)
        return distribution.log_prob(x)

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        r"""log p of the labels, smoothed, of images that are mixed in training mode.

        .. math:: \lambda \log p(y_i \mid z) + (1 - \lambda) \log p(y_j \mid z), \qquad
            z = \lambda x_i + (1 - \lambda) x_j, \quad \lambda \sim \mathrm{Beta}(\alpha, \alpha)

        with a partner j of each image i, drawn from the batch, and λ for each (mixup).
        """
        if not (self.training and self.mixup):
            return (
                self._smoothed(self.forward(context), x) if self.label_smoothing else self.log_prob(x, context, lengths)
            )
        images = self._numbers(context)
        check_one_label_a_row(x, len(images))
        images = images.expand(len(x), -1, -1, -1)
        mixup = images.new_full((len(x),), self.mixup)
        share = torch.distributions.Beta(mixup, mixup, validate_args=False).sample()  # nothing waits for a GPU
        partner = torch.randperm(len(x), device=x.device)
        distribution = self._labels(torch.lerp(images[partner], images, share.view(-1, 1, 1, 1)))
        return share * self._smoothed(distribution, x) + (1 - share) * self._smoothed(distribution, x[partner])

    def _smoothed(self, distribution: Categorical, labels: Tensor) -> Tensor:
        check_one_label_a_row(labels, *distribution.batch_shape)
        spread = distribution.logits.log_softmax(-1).mean(-1)
        return (1 - self.label_smoothing) * distribution.log_prob(labels) + self.label_smoothing * spread


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
            raise OptionError(
                "stages",
                f"{stages} halve an image of {image_shape[1]}×{image_shape[2]} pixels to nothing",
                "take fewer",
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
