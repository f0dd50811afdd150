"""A Swin Transformer: attention in shifted windows, at ever coarser resolutions."""

from collections.abc import Sequence
from typing import Annotated, final

import torch
from torch import Tensor, nn

from chainrule._ranges import Layers, Probability, Range, Size, check_sizes
from chainrule.layers._pointwise import Linear
from chainrule.layers._residual_block import ResidualBlock, shrink_residuals
from chainrule.layers._window_attention import WindowAttention
from chainrule.models._image_classifier import ImageClassifier
from chainrule.models._vision_transformer import check_patches, largest_divisor


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
                    raise ValueError(
                        f"stages: {stage + 1} stages need an even number of places to merge, got {height}×{width} "
                        f"after {stage}: take {stage}"
                    )
                layers.append(PatchMerging(model_size))
                height, width, model_size, num_heads = height // 2, width // 2, 2 * model_size, 2 * num_heads
            side = largest_divisor(height, width, window)
            if side == 1 < min(height, width, window):
                raise ValueError(
                    f"window: no window of 2 to {window} places fits {height}×{width} places, and a place alone sees "
                    "no other: crop or pad the images, or name another patch_size"
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

    def window_layers(self) -> Sequence[WindowAttention]:
        """Return the attention of every block, in order."""
        return [block.mixer for block in self.stages if isinstance(block, SwinBlock)]


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
        self.linear = Linear(4 * model_size, 2 * model_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, row::2, column::2] for column in range(2) for row in range(2)]
        return self.linear(self.norm(torch.cat(parts, 3)))
