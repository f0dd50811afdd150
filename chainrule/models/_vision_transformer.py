"""Transformers that classify an image: by patches, by convolutional tokens, or in shifted windows."""

from abc import abstractmethod
from typing import Annotated, Literal, cast, final

import torch
from torch import Tensor, nn

from chainrule._ranges import check_sizes
from chainrule.layers._multi_head_attention import WindowAttention
from chainrule.layers._positions import grid_sinusoids
from chainrule.layers._row_encoders import EncoderBlock
from chainrule.layers._transformer_stack import ResidualBlock, shrink_residuals
from chainrule.models._image_classifier import ImageClassifier
from chainrule.option_error import OptionError, option
from chainrule.ranges import Layers, Probability, Range, Size

MOST_SINGLE_PIXELS = 1024  # of an image whose patches are pixels, where nobody asked for it
START = 0.5  # of the sinusoids that positions begin as
USUAL_PATCHES = (4, 3, 2, 5, 6, 7, 8)  # pixels to a side, the first that fits


class TokenTransformer(ImageClassifier):
    """Base of classifiers in which all tokens of an image attend to each other; a subclass makes and pools them."""

    def _add_blocks(self, model_size: int, num_layers: int, num_heads: int, dropout: float) -> None:
        blocks = [EncoderBlock(model_size, num_heads, position=None, dropout=dropout) for _ in range(num_layers)]
        self.blocks, self.norm = nn.ModuleList(blocks), nn.LayerNorm(model_size)
        shrink_residuals(blocks)

    @abstractmethod
    def embedded(self, x: Tensor) -> Tensor:
        """Tokens with their positions, (B, T, D), of numbers (B, C, H, W)."""

    @abstractmethod
    def pooling_weights(self, images: Tensor) -> Tensor:
        """Share of each token in the features, (B, T)."""

    @abstractmethod
    def grid(self) -> tuple[int, int]:
        """Rows and columns of tokens."""

    def attended(self, images: Tensor) -> list[Tensor]:
        """Attention of every block, (B, H, T, T) each; a class token, if there is one, comes first."""
        z, weights = self.embedded(self.scaled(images)), []
        for block in self._blocks:
            weights.append(block.mixer.attended(block.norm1(z)))
            z = block(z)
        return weights

    def _read(self, x: Tensor) -> Tensor:
        """norm(z) after all blocks, (B, T, D)."""
        z = self.embedded(x)
        for block in self._blocks:
            z = block(z)
        return self.norm(z)

    @property
    def _blocks(self) -> list[EncoderBlock]:
        return cast(list[EncoderBlock], list(self.blocks))


@final
class VisionTransformer(TokenTransformer):
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
            raise OptionError("pooling", f"expected token or mean, got {pooling!r}")
        self.class_token = nn.Parameter(torch.zeros(model_size)) if pooling == "token" else None
        start = START * grid_sinusoids(*self.grid(), model_size).float()
        if self.class_token is not None:
            start = torch.cat([torch.zeros(1, model_size), start])
        self.positions = nn.Parameter(start)
        self._add_blocks(model_size, num_layers, num_heads, dropout)
        self._add_output(model_size)

    def features(self, x: Tensor) -> Tensor:
        z = self._read(x)
        return z.mean(1) if self.class_token is None else z[:, 0]

    def pooling_weights(self, images: Tensor) -> Tensor:
        places = self.positions.new_ones(len(images), len(self.positions))
        if self.class_token is not None:
            places[:, 1:] = 0
        return places / places.sum(1, keepdim=True)

    def grid(self) -> tuple[int, int]:
        size = self.patches.kernel_size[0]
        return self.image_shape[1] // size, self.image_shape[2] // size

    def embedded(self, x: Tensor) -> Tensor:
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
        raise OptionError(
            "patch_size",
            f"expected a divisor of {height} and {width}, the height and width of the images, got {patch_size}",
            f"{', '.join(map(str, fitting[:6])) or '1'} would do",
        )


@final
class SwinTransformer(ImageClassifier):
    r"""A classifier by attention inside windows, shifted in every other block (Liu et al. 2021, Swin).

    Patches of P×P pixels are places with D features. Each stage has half the resolution and twice the features of the
    previous one. Its blocks attend inside windows of M×M places; every other block shifts its windows by M // 2, so
    that information crosses their borders. Between stages 2×2 places are merged into one (patch merging). If one window
    spans a side, nothing is shifted along it. The features are the mean over the places of the last stage.

    Args:
        image_shape: (C, H, W), height and width multiples of `patch_size`.
        num_classes: labels are integers in [0, num_classes).
        levels: V, values that a channel of a pixel may have.
        patch_size: P, pixels per side of a patch; None takes 2 if the stages can halve the rest, else 1. If not given,
            the task takes 4 if a budget allows few steps.
        window: M, maximum places per side of a window; a stage takes the largest divisor of its height and width.
        model_size: D features of a place in the first stage, a multiple of `num_heads`.
        blocks: blocks in each stage.
        stages: number of stages; None takes 2 if the places can be halved, else 1.
        num_heads: heads of attention in the first stage; they double with the features.
        dropout: probability of zeroing, in training, what a branch adds.
        label_smoothing: share of the training objective that is spread evenly over the labels.
        mixup: α of mixup in training: pairs of images are averaged with weights from Beta(α, α); 0 turns it off. If not
            given, the task uses 1 for 40 passes over the images or more, else 0.

    >>> model = SwinTransformer((1, 16, 16), num_classes=3, levels=2, model_size=8, num_heads=2)
    >>> model(torch.randint(2, (2, 1, 16, 16))).probs.shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_classes: int,
        levels: int = 256,
        *,
        patch_size: Annotated[int, Range(1, 256)] | None = None,
        window: Annotated[int, Range(1, 64)] = 7,
        model_size: Size = 48,
        blocks: Layers = 2,
        stages: Annotated[int, Range(1, 6)] | None = None,
        num_heads: Layers = 3,
        dropout: Probability = 0.0,
        label_smoothing: Probability = 0.05,
        mixup: Annotated[float, Range(0.0, 100.0)] = 0.0,
    ):
        super().__init__(image_shape, num_classes, levels, label_smoothing, mixup)
        channels, height, width = image_shape
        if patch_size is None:
            halved = 2 ** (2 if stages is None else stages)
            patch_size = 1 if height % halved or width % halved else 2
        check_patches(image_shape, patch_size)
        height, width = height // patch_size, width // patch_size
        if stages is None:
            stages = 1 if height % 2 or width % 2 else 2
        check_sizes(window=window, blocks=blocks, stages=stages)
        self.patches = nn.Conv2d(channels, model_size, patch_size, patch_size)
        layers: list[nn.Module] = [nn.LayerNorm(model_size)]
        for stage in range(stages):
            if stage:
                if height % 2 or width % 2:
                    raise OptionError(
                        "stages",
                        f"{stage + 1} stages need an even number of places to merge, got {height}×{width} "
                        f"after {stage}",
                        f"take {stage}",
                    )
                layers.append(PatchMerging(model_size))
                height, width, model_size, num_heads = height // 2, width // 2, 2 * model_size, 2 * num_heads
            side = largest_divisor(height, width, window)
            if side == 1 < min(height, width, window):
                raise OptionError(
                    "window",
                    f"no window of 2 to {window} places fits {height}×{width} places, and a place alone sees no other",
                    f"crop or pad the images, or name another {option('patch_size')}",
                )
            for index in range(blocks):
                shift = side // 2 if index % 2 and side < max(height, width) else 0
                layers.append(SwinBlock(model_size, num_heads, height, width, side, shift, dropout))
        self.stages = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(model_size)
        shrink_residuals(layers)
        self._add_output(model_size)

    def features(self, x: Tensor) -> Tensor:
        return self.feature_map(x).mean((2, 3))

    def feature_map(self, x: Tensor) -> Tensor:
        """Return the last stage's places, (B, D, rows, columns), of numbers (B, C, H, W)."""
        h = self.stages(self.patches(x).permute(0, 2, 3, 1))
        return self.norm(h).permute(0, 3, 1, 2)


class SwinBlock(ResidualBlock):
    """Window attention and a feed-forward network over (B, height, width, D), norms first."""

    def __init__(
        self, model_size: int, num_heads: int, height: int, width: int, window: int, shift: int, dropout: float
    ):
        super().__init__(
            WindowAttention(model_size, num_heads, height, width, window, shift), model_size, dropout=dropout
        )

    def forward(self, x: Tensor) -> Tensor:
        return self._after_mixer(x, self.mixer(self._mixer_input(x)))


class PatchMerging(nn.Module):
    """2×2 places (B, H, W, D) to one with twice the features, (B, H / 2, W / 2, 2D)."""

    def __init__(self, model_size: int):
        super().__init__()
        self.norm = nn.LayerNorm(4 * model_size)
        self.linear = nn.Linear(4 * model_size, 2 * model_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, row::2, column::2] for column in range(2) for row in range(2)]
        return self.linear(self.norm(torch.cat(parts, 3)))
