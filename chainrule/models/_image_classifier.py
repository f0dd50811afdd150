"""Classifiers of images: pixels as numbers, the distribution of the label, and the training objective."""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from chainrule._base import Context, LikelihoodModel
from chainrule._ranges import check_shares, check_sizes
from chainrule.heads import Categorical
from chainrule.models._conditioned import check_one_label_a_row
from chainrule.models._image_model import ImageInput


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
            raise ValueError(f"mixup: expected a finite number >= 0, got {mixup}")
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
        share = torch.distributions.Beta(self.mixup, self.mixup).sample((len(x),)).to(images)
        partner = torch.randperm(len(x), device=x.device)
        distribution = self._labels(torch.lerp(images[partner], images, share.view(-1, 1, 1, 1)))
        return share * self._smoothed(distribution, x) + (1 - share) * self._smoothed(distribution, x[partner])

    def _smoothed(self, distribution: Categorical, labels: Tensor) -> Tensor:
        check_one_label_a_row(labels, *distribution.batch_shape)
        spread = distribution.logits.log_softmax(-1).mean(-1)
        return (1 - self.label_smoothing) * distribution.log_prob(labels) + self.label_smoothing * spread
