"""Layers of a PixelCNN that read an image in raster order, block of rows by block of rows."""

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor, nn

from chainrule.layers._masked_conv2d import MaskedConv2d, MaskType
from chainrule.layers._pointwise import gate
from chainrule.state import State


class RasterLayer(nn.Module, ABC):
    """A layer that reads an image in raster order, as a `SequenceLayer` reads a sequence.

    The state `above` holds what is needed of earlier rows. Any division of an image into blocks of whole rows gives
    the same output and the same last state.
    """

    reads_image = False  # whether `forward` also takes the rows (B, C, n, W) of the image

    @abstractmethod
    def forward(self, x: Tensor, above: State = None, label: Tensor | None = None) -> tuple[Tensor, State]:
        """Read a block of n whole rows: x' (B, M, n, W) from x (B, M, n, W), and `above` for the rows that follow.

        `above` is from `blank_rows` or `forward`; `None` is `blank_rows`. Labels are (B,) integers.
        """

    @abstractmethod
    def blank_rows(self, like: Tensor) -> State:
        """`above` at the top of images as wide as `like`, (B, M, n, W)."""


@final
class MaskedResidualBlock(RasterLayer):
    r"""A narrow masked convolution between two 1×1 ones, around an identity (van den Oord et al. 2016).

    .. math:: h' = h + W_3\,\mathrm{relu}(W_2 * \mathrm{relu}(W_1\,\mathrm{relu}(h) + b_1) + b_2)

    All three are of type B. A label adds a bias to b_2.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int,
        channel_groups: int = 1,
        *,
        num_classes: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        half = channels // 2
        self.narrowing = MaskedConv2d(channels, half, 1, "B", channel_groups)
        self.middle = MaskedConv2d(half, half, kernel_size, "B", channel_groups)
        self.widening = MaskedConv2d(half, channels, 1, "B", channel_groups, bias=False)
        self.label_bias = None if num_classes is None else nn.Embedding(num_classes, half)
        self.dropout = dropout
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights; the weights of labels start with little effect."""
        for convolution in (self.narrowing, self.middle, self.widening):
            convolution.reset_parameters()
        if self.label_bias is not None:
            nn.init.normal_(self.label_bias.weight, std=0.1)

    def forward(self, x: Tensor, above: State = None, label: Tensor | None = None) -> tuple[Tensor, State]:
        above = self.blank_rows(x) if above is None else above
        rows = torch.cat([above, self.narrowing(x.relu()).relu()], 2)
        b = self.middle.below(rows)
        if self.label_bias is not None:
            b = b + self.label_bias(label).unsqueeze(-1).unsqueeze(-1)
        c = nn.functional.dropout(b.relu(), self.dropout, self.training)
        return x + self.widening(c), rows[:, :, rows.shape[2] - above.shape[2] :]

    def blank_rows(self, like: Tensor) -> State:
        """Zeros that W_2 reads above the image, (B, M/2, rows above, W)."""
        return like.new_zeros(len(like), self.middle.weight.shape[1], self.middle.rows_above, like.shape[3])


@final
class GatedStacks(nn.Module):
    r"""One layer of vertical and horizontal stacks with gated units (van den Oord et al. 2016, Gated PixelCNN).

    .. math:: a = W_v * v, \quad v' = \tanh(a_1) \odot \sigma(a_2), \qquad
        b = W_h * h + W_{vh} a, \quad h' = h + W_r (\tanh(b_1) \odot \sigma(b_2))

    The vertical stack v reads its rows down to the present one; the model feeds it the image shifted down by a
    row, so that it never meets the present row of the image and needs no mask. The horizontal stack h reads the present
    row to the left, through masks over channel groups, and what the vertical stack found above. Pixels above, to the
    right as well, are within reach of the vertical stack, pixels to the left within reach of the horizontal one:
    there is no blind spot. A label adds a bias to a and to b. A layer of type A reads the image and has no residual.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        kernel_size: int,
        mask_type: MaskType,
        channel_groups: int = 1,
        *,
        num_classes: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        side = kernel_size // 2
        self.horizontal = MaskedConv2d(
            in_channels, 2 * channels, (1, kernel_size), mask_type, channel_groups, parts=2, bias=False
        )
        self.residual = MaskedConv2d(channels, channels, 1, "B", channel_groups, bias=False)
        self.vertical = nn.Conv2d(in_channels, 2 * channels, (side + 1, kernel_size), padding=(0, side))
        self.vertical_to_horizontal = nn.Conv2d(2 * channels, 2 * channels, 1)
        self.label_bias = None if num_classes is None else nn.Embedding(num_classes, 4 * channels)
        self.dropout = dropout
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights: products keep the variance of their input, biases are zero, labels do little."""
        self.horizontal.reset_parameters()
        self.residual.reset_parameters()
        for convolution in (self.vertical, self.vertical_to_horizontal):
            nn.init.normal_(convolution.weight, std=convolution.weight[0].numel() ** -0.5)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)
        if self.label_bias is not None:
            nn.init.normal_(self.label_bias.weight, std=0.1)

    @property
    def rows_above(self) -> int:
        """The number of rows above the present one that the vertical stack reads."""
        return self.vertical.kernel_size[0] - 1

    def forward(self, v: Tensor, h: Tensor, label: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both stacks over a whole image, (B, N, H, W) to (B, M, H, W); row i of v may depend on rows above i only."""
        below, features = self.down(nn.functional.pad(v, (0, 0, self.rows_above, 0)), label)
        return self.drop(below), self.across(h, features)

    def down(self, v: Tensor, label: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run the vertical stack over H rows below those it reads above them, (B, N, rows above + H, W).

        Returns v', (B, M, H, W), before dropout, and what is found above each pixel, for the horizontal stack: W_vh a
        and biases, (B, 2M, H, W).
        """
        a = self.vertical(v)
        if self.label_bias is None:
            return gate(a), self.vertical_to_horizontal(a)
        vertical, horizontal = self.label_bias(label).unsqueeze(-1).unsqueeze(-1).chunk(2, 1)  # (B, 2M, 1, 1) each
        a = a + vertical
        return gate(a), self.vertical_to_horizontal(a) + horizontal

    def across(self, h: Tensor, features: Tensor) -> Tensor:
        """Run the horizontal stack over H rows: h' (B, M, H, W) from h (B, N, H, W) and `down`'s (B, 2M, H, W)."""
        out = self.residual(self.drop(gate(self.horizontal(h) + features)))
        return out if self.horizontal.mask_type == "A" else h + out

    def drop(self, gated: Tensor) -> Tensor:
        """Dropout, in training: on v' before the next layer reads it, and on the horizontal gate."""
        return nn.functional.dropout(gated, self.dropout, self.training)
