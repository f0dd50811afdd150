"""Masked convolutions, and the layers of a PixelCNN that read an image in raster order, by blocks of rows."""

from abc import ABC, abstractmethod
from functools import partial
from typing import Literal, final

import torch
from torch import Tensor, nn

from chainrule._buffers import fixed_buffer
from chainrule.layers._pointwise import gate
from chainrule.option_error import OptionError
from chainrule.state import State

MaskType = Literal["A", "B"]


def spatial_mask(height: int, width: int, mask_type: MaskType) -> Tensor:
    """Return the pixels that a kernel may read, in raster order (van den Oord et al. 2016), (height, width) booleans.

    Rows above and pixels to the left; the present pixel only with type B.

    >>> spatial_mask(3, 3, "A").int()
    tensor([[1, 1, 1],
            [1, 0, 0],
            [0, 0, 0]], dtype=torch.int32)
    >>> spatial_mask(3, 3, "B").int()
    tensor([[1, 1, 1],
            [1, 1, 0],
            [0, 0, 0]], dtype=torch.int32)

    Args:
        height: of the kernel, odd.
        width: of the kernel, odd.
        mask_type: "A" for the layer that reads the image, "B" for every later one.

    Raises:
        ValueError: a size is not odd, or the type is neither.
    """
    for name, size in (("height", height), ("width", width)):
        if size < 1 or size % 2 == 0:
            raise OptionError("kernel_size", f"expected an odd {name}, so that a pixel is in the middle, got {size}")
    if mask_type not in ("A", "B"):
        raise ValueError(f"mask_type: expected 'A' (first layer) or 'B' (later layers), got {mask_type!r}")
    centre = (height // 2) * width + width // 2
    last = centre if mask_type == "B" else centre - 1
    return (torch.arange(height * width) <= last).view(height, width)


def channel_group_of(channels: int, groups: int, parts: int = 1, device: torch.device | str | None = None) -> Tensor:
    """Return the group of each channel, (channels,) integers: contiguous groups, whose sizes differ by at most one.

    Channels in several `parts`, as the two halves of a gate, are equal runs, each divided on its own.

    >>> channel_group_of(8, 3)
    tensor([0, 0, 0, 1, 1, 1, 2, 2])
    >>> channel_group_of(6, 3, parts=2)
    tensor([0, 1, 2, 0, 1, 2])
    """
    if parts < 1 or channels % parts:
        raise OptionError("channels", f"expected a multiple of {parts}, one run for each part, got {channels}")
    size = channels // parts
    if not 1 <= groups <= size:
        raise ValueError(
            f"channel_groups: expected 1 to {size}, so that none of the groups of {size} channels is empty, "
            f"got {groups}"
        )
    return (torch.arange(size, device=device) * groups // size).repeat(parts)


def convolution_mask(in_groups: Tensor, out_groups: Tensor, height: int, width: int, mask_type: MaskType) -> Tensor:
    """Return the weights of a masked convolution that may differ from zero, (out, in, height, width) booleans.

    Earlier pixels are read with all their channels. At the present pixel the mask is block-triangular over channel
    groups: a channel reads the channels of earlier groups, and with type B its own group too.

    >>> groups = channel_group_of(3, 3)
    >>> convolution_mask(groups, groups, 3, 3, "A")[:, :, 1, 1].int()
    tensor([[0, 0, 0],
            [1, 0, 0],
            [1, 1, 0]], dtype=torch.int32)
    """
    earlier = spatial_mask(height, width, "A")
    mask = earlier.expand(len(out_groups), len(in_groups), height, width).clone()
    spatial_mask(height, width, mask_type)  # refuses a type that is neither
    readers, read = out_groups.unsqueeze(1), in_groups.unsqueeze(0)
    mask[:, :, height // 2, width // 2] = read < readers if mask_type == "A" else read <= readers
    return mask


@final
class MaskedConv2d(nn.Module):
    r"""A convolution whose output at a pixel reads earlier pixels in raster order (van den Oord et al. 2016).

    .. math:: y_{ij} = b + \sum_{u, v} (M \odot W)_{uv} \, x_{i+u, j+v}

    Type A leaves the present pixel out, type B reads it. With several channel groups the present pixel is read group by
    group: type A reads strictly earlier groups, type B its own too. The image is taken to be zero outside its borders,
    and the output has its size. The weight has the shape that `torch.nn.Conv2d` gives it; what lies below the present
    row is masked, and no arithmetic is spent on it.

    Args:
        in_channels: N channels read.
        out_channels: M channels made.
        kernel_size: odd, or the pair (height, width) of odd sizes.
        mask_type: "A" for the layer that reads the image, "B" for every later one.
        channel_groups: colour channels whose order is kept; both N and M are divided into this number of contiguous
            groups, whose sizes differ by at most one.
        parts: M is this many equal runs of channels, each divided into groups on its own: 2 for the halves of a gate.
        bias: whether b is added.

    >>> layer = MaskedConv2d(3, 6, 3, "A", channel_groups=3)
    >>> layer(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 6, 8, 8])
    """

    mask: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        mask_type: MaskType,
        channel_groups: int = 1,
        *,
        parts: int = 1,
        bias: bool = True,
    ):
        super().__init__()
        height, width = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
        self.mask_type: MaskType = mask_type
        self.channel_groups = channel_groups
        self.parts = parts
        channels = (in_channels, out_channels, channel_groups, parts)
        fixed_buffer(self, "mask", partial(_mask, *channels, height, width, mask_type))
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, height, width))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights, uniform with variance 1 / (inputs that an output reads); biases are zero."""
        if self.weight.is_meta:  # there are none, and sums there import a compiler, which takes seconds
            return
        inputs = self.mask.flatten(1).sum(1).clamp_min(1).view(-1, 1, 1, 1)
        with torch.no_grad():
            self.weight.uniform_(-1, 1).mul_((3 / inputs) ** 0.5)
            if self.bias is not None:
                self.bias.zero_()

    @property
    def rows_above(self) -> int:
        """The number of rows above the present one that are read."""
        return self.mask.shape[2] // 2

    def groups_of_channels(self) -> tuple[Tensor, Tensor]:
        """Return the channel group of each output and of each input channel, (out,) and (in,) integers."""
        outputs, inputs = self.mask.shape[:2]
        groups = self.channel_groups
        return channel_group_of(outputs, groups, self.parts, "cpu"), channel_group_of(inputs, groups, device="cpu")

    def masked_weight(self) -> Tensor:
        """M ⊙ W without the rows below the present one, (out, in, rows above + 1, width)."""
        rows = slice(self.rows_above + 1)
        return self.weight[:, :, rows] * self.mask[:, :, rows]

    def forward(self, x: Tensor, *, with_above: bool = False) -> Tensor:
        """Read a whole image, (B, N, H, W) to (B, M, H, W); or H rows `with_above`, (B, N, rows above + H, W)."""
        rows = x if with_above else nn.functional.pad(x, (0, 0, self.rows_above, 0))
        return nn.functional.conv2d(rows, self.masked_weight(), self.bias, padding=(0, self.mask.shape[3] // 2))

    def extra_repr(self) -> str:
        out_channels, in_channels, height, width = self.mask.shape
        return (
            f"{in_channels}, {out_channels}, kernel_size=({height}, {width}), mask_type={self.mask_type!r}, "
            f"channel_groups={self.channel_groups}"
        )


def _mask(
    in_channels: int, out_channels: int, groups: int, parts: int, height: int, width: int, mask_type: MaskType
) -> Tensor:
    in_groups, out_groups = channel_group_of(in_channels, groups), channel_group_of(out_channels, groups, parts)
    return convolution_mask(in_groups, out_groups, height, width, mask_type)


@final
class PixelLogits(nn.Module):
    r"""Two masked 1×1 convolutions, from features to a score for every value of every colour channel.

    .. math:: a = W_2 \,\mathrm{relu}(W_1 \,\mathrm{relu}(h) + b_1) + b_2
    """

    def __init__(self, channels: int, image_channels: int, levels: int):
        super().__init__()
        self.hidden = MaskedConv2d(channels, channels, 1, "B", image_channels)
        self.output = MaskedConv2d(channels, image_channels * levels, 1, "B", image_channels)

    def forward(self, h: Tensor) -> Tensor:
        """Map (B, M, H, W) to (B, C·V, H, W), the scores ordered by colour channel."""
        return self.output(self.hidden(h.relu()).relu())


class RasterLayer(nn.Module, ABC):
    """A layer that reads an image in raster order, as a `SequenceLayer` reads a sequence.

    The state `above` holds what is needed of earlier rows. Any division of an image into blocks of whole rows gives
    the same output and the same last state.
    """

    is_closed = True  # see `ResidualBlock`
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
        b = self.middle(rows, with_above=True)
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
