"""Transformers that classify an image as a sequence of patches, or of convolutional tokens."""

from typing import Annotated, Literal, final

import torch
from torch import Tensor, nn

from chainrule._ranges import Layers, Probability, Range, Size
from chainrule.layers._positions import grid_sinusoids
from chainrule.layers._residual_block import shrink_residuals
from chainrule.layers._row_encoders import EncoderBlock
from chainrule.models._image_classifier import ImageClassifier

MOST_SINGLE_PIXELS = 1024  # of an image whose patches are pixels, where nobody asked for it
START = 0.5  # of the sinusoids that positions begin as
USUAL_PATCHES = (4, 3, 2, 5, 6, 7, 8)  # pixels to a side, the first that fits


@final
class VisionTransformer(ImageClassifier):
    r"""A classifier of images by attention between patches (Dosovitskiy et al. 2021, ViT).

    .. math:: z = [e;\ W p_1; \ldots; W p_T] + P, \qquad z \leftarrow \mathrm{block}_l(z), \qquad
        f(x) = \mathrm{norm}(z)_0

    p are the T patches of P×P pixels, side by side; e is a learnt class token, P learnt positions, which begin as
    sinusoids of row and column. With mean pooling
    (Beyer et al. 2022) there is no e, and f is the mean of norm(z) over the patches.

    Args:
        image_shape: (C, H, W), height and width multiples of `patch_size`.
        num_classes: labels are integers in [0, num_classes).
        levels: V, values that a channel of a pixel may have.
        patch_size: P, pixels to a side of a patch; None takes what fits, about 4.
        model_size: D features of a patch, a multiple of `num_heads`.
        num_layers: blocks.
        num_heads: heads of attention in each block.
        pooling: "token", the features of a class token, or "mean", their mean over the patches.
        dropout: probability of zeroing, in training, what a branch adds.
        label_smoothing: share of the training objective that is spread evenly over the labels.
        mixup: α of mixup in training: pairs of images are averaged with weights from Beta(α, α); 0 turns it off. If not
            given, the task uses 1 for 40 passes over the images or more, else 0.

    >>> model = VisionTransformer((1, 8, 8), num_classes=3, levels=2, model_size=8, num_layers=1, num_heads=2)
    >>> images = torch.randint(2, (2, 1, 8, 8))
    >>> model(images).probs.shape, model.attended(images)[0].shape
    (torch.Size([2, 3]), torch.Size([2, 2, 4, 4]))
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_classes: int,
        levels: int = 256,
        *,
        patch_size: Annotated[int, Range(1, 256)] | None = None,
        model_size: Size = 96,
        num_layers: Layers = 6,
        num_heads: Layers = 4,
        pooling: Literal["token", "mean"] = "mean",
        dropout: Probability = 0.0,
        label_smoothing: Probability = 0.05,
        mixup: Annotated[float, Range(0.0, 100.0)] = 0.0,
    ):
        super().__init__(image_shape, num_classes, levels, label_smoothing, mixup)
        if patch_size is None:
            patch_size = usual_patch(*image_shape[1:])
        check_patches(image_shape, patch_size)
        self.patches = nn.Conv2d(image_shape[0], model_size, patch_size, patch_size)
        if pooling not in ("token", "mean"):
            raise ValueError(f"pooling: expected token or mean, got {pooling!r}")
        self.class_token = nn.Parameter(torch.zeros(model_size)) if pooling == "token" else None
        start = START * grid_sinusoids(*self.grid(), model_size).float()
        if self.class_token is not None:
            start = torch.cat([torch.zeros(1, model_size), start])
        self.positions = nn.Parameter(start)
        self.blocks = nn.ModuleList(
            EncoderBlock(model_size, num_heads, position=None, dropout=dropout) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(model_size)
        shrink_residuals(self.blocks)
        self._add_output(model_size)

    def features(self, x: Tensor) -> Tensor:
        z = self._tokens(x)
        for block in encoder_blocks(self.blocks):
            z = block(z)
        return self.norm(z).mean(1) if self.class_token is None else self.norm(z[:, 0])

    def attended(self, images: Tensor) -> list[Tensor]:
        """Attention of every block, (B, H, T, T) each; a class token, if there is one, comes before the patches."""
        return block_attention(self._tokens(self.scaled(images)), self.blocks)

    def pooling_weights(self, images: Tensor) -> Tensor:
        """Share of each place in the features, (B, T)."""
        places = self.positions.new_ones(len(images), len(self.positions))
        if self.class_token is not None:
            places[:, 1:] = 0
        return places / places.sum(1, keepdim=True)

    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        size = self.patches.kernel_size[0]
        return self.image_shape[1] // size, self.image_shape[2] // size

    def _tokens(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        if self.class_token is not None:
            patches = torch.cat([self.class_token.expand(len(x), 1, -1), patches], 1)
        return patches + self.positions


def largest_divisor(height: int, width: int, most: int) -> int:
    """Return the largest divisor of both sides that is at most `most`.

    >>> largest_divisor(8, 12, 7), largest_divisor(14, 14, 4), largest_divisor(5, 5, 4)
    (4, 2, 1)
    """
    return max(size for size in range(1, most + 1) if height % size == 0 == width % size)


def usual_patch(height: int, width: int) -> int:
    """Return the first of `USUAL_PATCHES` that divides both sides; where none does, 1 for a small image.

    >>> usual_patch(28, 28), usual_patch(14, 21), usual_patch(25, 25), usual_patch(13, 13), usual_patch(97, 97)
    (4, 7, 5, 1, 4)
    """
    fitting = [size for size in USUAL_PATCHES if height % size == 0 == width % size]
    return fitting[0] if fitting else 1 if height * width <= MOST_SINGLE_PIXELS else USUAL_PATCHES[0]


def check_patches(image_shape: tuple[int, int, int], patch_size: int) -> None:
    """Raise ValueError unless patches fill an image, with sizes that would do."""
    _, height, width = image_shape
    if patch_size < 1 or height % patch_size or width % patch_size:
        fitting = [size for size in range(2, min(height, width) + 1) if height % size == 0 == width % size]
        raise ValueError(
            f"patch_size: expected a divisor of {height} and {width}, the height and width of the images, got "
            f"{patch_size}: {', '.join(map(str, fitting[:6])) or '1'} would do"
        )


def block_attention(z: Tensor, blocks: nn.ModuleList) -> list[Tensor]:
    """Attention (B, H, T, T) of each block of a stack that reads z (B, T, D)."""
    weights = []
    for block in encoder_blocks(blocks):
        weights.append(block.mixer.attended(block.norm1(z)))
        z = block(z)
    return weights


def encoder_blocks(blocks: nn.ModuleList) -> list[EncoderBlock]:
    """Return the blocks, typed."""
    return [block for block in blocks if isinstance(block, EncoderBlock)]


@final
class CompactTransformer(ImageClassifier):
    r"""A classifier by attention between convolutional tokens (Hassani et al. 2021, CCT).

    .. math:: z = \mathrm{tokens}(x) + P, \qquad z \leftarrow \mathrm{block}_l(z), \qquad
        f(x) = \sum_t \mathrm{softmax}_t(w^\top z_t)\, z_t

    The tokens are the places of a small convolutional network of 3×3 convolutions, each with max pooling by 2, so that
    neighbours overlap. Sequence pooling replaces a class token.

    Args:
        image_shape: (C, H, W).
        num_classes: labels are integers in [0, num_classes).
        levels: V, values that a channel of a pixel may have.
        convolutions: layers of the tokeniser; each halves height and width.
        model_size: D features of a token, a multiple of `num_heads`.
        num_layers: blocks.
        num_heads: heads of attention in each block.
        dropout: probability of zeroing, in training, what a branch adds.
        label_smoothing: share of the training objective that is spread evenly over the labels.
        mixup: α of mixup in training: pairs of images are averaged with weights from Beta(α, α); 0 turns it off. If not
            given, the task uses 0.4 for 40 passes over the images or more, else 0.

    >>> import torch
    >>> model = CompactTransformer((1, 8, 8), num_classes=3, levels=2, model_size=8, num_layers=1, num_heads=2)
    >>> model(torch.randint(2, (2, 1, 8, 8))).probs.shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_classes: int,
        levels: int = 256,
        *,
        convolutions: Annotated[int, Range(1, 6)] = 2,
        model_size: Size = 96,
        num_layers: Layers = 4,
        num_heads: Layers = 4,
        dropout: Probability = 0.0,
        label_smoothing: Probability = 0.05,
        mixup: Annotated[float, Range(0.0, 100.0)] = 0.0,
    ):
        super().__init__(image_shape, num_classes, levels, label_smoothing, mixup)
        channels, height, width = image_shape
        layers: list[nn.Module] = []
        for index in range(convolutions):
            inside = model_size if index == convolutions - 1 else max(8, model_size // 2)
            layers += [nn.Conv2d(channels, inside, 3, padding=1), nn.MaxPool2d(3, 2, padding=1), nn.ReLU()]
            channels, height, width = inside, (height + 1) // 2, (width + 1) // 2
        self.tokens = nn.Sequential(*layers)
        self._grid = height, width
        self.positions = nn.Parameter(START * grid_sinusoids(height, width, model_size).float())
        self.blocks = nn.ModuleList(
            EncoderBlock(model_size, num_heads, position=None, dropout=dropout) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(model_size)
        self.pool = nn.Linear(model_size, 1)
        for module in layers:
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        shrink_residuals(self.blocks)
        self._add_output(model_size)

    def features(self, x: Tensor) -> Tensor:
        z = self._read(x)
        return (self.pool(z).softmax(1) * z).sum(1)

    def pooling_weights(self, images: Tensor) -> Tensor:
        """Share of each token in the features, (B, T)."""
        return self.pool(self._read(self.scaled(images))).softmax(1).squeeze(2)

    def attended(self, images: Tensor) -> list[Tensor]:
        """Attention of every block, (B, H, T, T) each."""
        return block_attention(self._places(self.scaled(images)), self.blocks)

    def grid(self) -> tuple[int, int]:
        """Rows and columns of tokens."""
        return self._grid

    def _read(self, x: Tensor) -> Tensor:
        z = self._places(x)
        for block in encoder_blocks(self.blocks):
            z = block(z)
        return self.norm(z)

    def _places(self, x: Tensor) -> Tensor:
        z: Tensor = self.tokens(x)
        return z.flatten(2).transpose(1, 2) + self.positions
