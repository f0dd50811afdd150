"""The streams of the PixelCNN++: shifted convolutions, gated residual blocks at several resolutions, mixtures."""

from typing import cast, final

import torch
from torch import Tensor, nn

from chainrule.heads import DiscretizedLogisticMixture, PixelLogisticMixture
from chainrule.layers._masked_conv2d import MaskedConv2d, RasterLayer
from chainrule.layers._pointwise import concatenated_elu
from chainrule.state import State


class _Shifted(nn.Module):
    convolution: nn.Conv2d | nn.ConvTranspose2d

    @property
    def weight(self) -> Tensor:
        """W, (M, N, 2, 3 or 2); transposed, (M in, M out, 2, 3 or 2)."""
        return self.convolution.weight

    @property
    def bias(self) -> Tensor:
        assert self.convolution.bias is not None
        return self.convolution.bias


@final
class ShiftedConv2d(_Shifted):
    r"""A convolution moved up, or up and to the left, by its padding (Salimans et al. 2017, PixelCNN++).

    .. math:: y_{IJ} = b + \sum_{u=-1}^{0} \sum_{v=-1}^{r} W_{uv} \, x_{nI+u,\, nJ+v}

    Moved up (`reads_right`, r = 1), it reads a column to both sides; moved up and to the left (r = 0), the present
    column and the one to the left. There is no weight to be masked. The image is taken to be zero outside its borders.
    With stride n = 2 the output halves the rows and columns, rounded up: row I knows rows 2I - 1 and 2I, so that
    what it is made of is known when row 2I is.

    Args:
        in_channels: N channels read.
        out_channels: M channels made.
        reads_right: whether the column to the right is read too, as may be where x does not depend on the present row.
        stride: n, 1 or 2.

    >>> import torch
    >>> ShiftedConv2d(3, 8, reads_right=True, stride=2)(torch.zeros(1, 3, 5, 8)).shape
    torch.Size([1, 8, 3, 4])
    """

    def __init__(self, in_channels: int, out_channels: int, *, reads_right: bool, stride: int = 1):
        super().__init__()
        self.convolution = nn.Conv2d(in_channels, out_channels, (2, 3 if reads_right else 2), stride)
        self.stride = stride
        self.reads_right = reads_right
        self.reset_parameters()

    def reset_parameters(self, gain: float = 1.0) -> None:
        """Draw the weights: outputs have `gain` times the deviation of inputs; biases are zero."""
        nn.init.normal_(self.weight, std=gain * self.weight[0].numel() ** -0.5)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, *, with_above: bool = False) -> Tensor:
        """Read a whole image, (B, N, H, W) to (B, M, H, W), or half the rows and columns with stride 2.

        `with_above`: x begins with the row above, (B, N, 1 + H, W).
        """
        convolved: Tensor = self.convolution(nn.functional.pad(x, (1, int(self.reads_right), int(not with_above), 0)))
        return convolved


@final
class ShiftedUpsampling(_Shifted):
    r"""A transposed convolution of stride 2, the way back from `ShiftedConv2d` (Salimans et al. 2017, PixelCNN++).

    .. math:: y_{2I+a,\, 2J+b} = c + \sum_{v} W_{a,b-2v} \, x_{I,J+v}

    Coarse row I becomes rows 2I and 2I + 1. Moved up (`reads_right`), a column between two coarse ones reads both;
    otherwise coarse pixel (I, J) becomes the four pixels from (2I, 2J) on, and is the only one they read.
    """

    def __init__(self, channels: int, *, reads_right: bool):
        super().__init__()
        self.convolution = nn.ConvTranspose2d(channels, channels, (2, 3 if reads_right else 2), 2)
        self.reads_right = reads_right
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights; biases are zero."""
        nn.init.normal_(self.weight, std=self.weight.shape[0] ** -0.5)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, width: int) -> Tensor:
        """(B, M, H, ⌈width / 2⌉) to (B, M, 2H, width)."""
        first = int(self.reads_right)
        columns: Tensor = self.convolution(x)[:, :, :, first : first + width]
        return columns


@final
class GatedResidualBlock(RasterLayer):
    r"""Two shifted convolutions and a gate around an identity (Salimans et al. 2017, PixelCNN++).

    .. math:: c = W_1 * f(x) + W_b f(s_b) + W_s f(s) + b_1, \qquad
        (a_1, a_2) = W_2 * f(c) + b_2 + W_y y, \qquad x' = x + a_1 \odot \sigma(a_2)

    f is `concatenated_elu`, s_b what another stream found at the same place, s a shortcut from an earlier layer, y a
    label.
    """

    def __init__(
        self,
        channels: int,
        *,
        reads_right: bool,
        neighbour: bool = False,
        shortcut: bool = False,
        num_classes: int | None = None,
    ):
        super().__init__()
        self.first = ShiftedConv2d(2 * channels, channels, reads_right=reads_right)
        self.second = ShiftedConv2d(2 * channels, 2 * channels, reads_right=reads_right)
        self.neighbour = nn.Conv2d(2 * channels, channels, 1, bias=False) if neighbour else None
        self.shortcut = nn.Conv2d(2 * channels, channels, 1, bias=False) if shortcut else None
        self.label_bias = None if num_classes is None else nn.Embedding(num_classes, 2 * channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights; at first a block adds a tenth of what it reads, and a label does little."""
        self.first.reset_parameters()
        self.second.reset_parameters(gain=0.1)
        for convolution in (self.neighbour, self.shortcut):
            if convolution is not None:
                nn.init.normal_(convolution.weight, std=convolution.weight.shape[1] ** -0.5)
        if self.label_bias is not None:
            nn.init.normal_(self.label_bias.weight, std=0.1)

    def blank_rows(self, like: Tensor) -> State:
        """Zeros that the two convolutions read above the image, (B, 2M, 1, W) each."""
        blank = like.new_zeros(like.shape[0], 2 * like.shape[1], 1, like.shape[3])
        return blank, blank

    def forward(
        self,
        x: Tensor,
        above: State = None,
        label: Tensor | None = None,
        neighbour: Tensor | None = None,
        shortcut: Tensor | None = None,
        *,
        dropout: float = 0.0,
    ) -> tuple[Tensor, State]:
        """Read a block of n whole rows; see `RasterLayer.forward`.

        `above` are the inputs of the two convolutions in the row above, (B, 2M, 1, W) each.
        """
        over_first, over_second = self.blank_rows(x) if above is None else above
        read = concatenated_elu(x)
        c = self.first(torch.cat([over_first, read], 2), with_above=True)
        for convolution, features in ((self.neighbour, neighbour), (self.shortcut, shortcut)):
            if convolution is not None and features is not None:
                c = c + convolution(concatenated_elu(features))
        again = nn.functional.dropout(concatenated_elu(c), dropout)
        a = self.second(torch.cat([over_second, again], 2), with_above=True)
        if self.label_bias is not None:
            a = a + self.label_bias(label).unsqueeze(-1).unsqueeze(-1)
        return x + nn.functional.glu(a, 1), (read[:, :, -1:], again[:, :, -1:])


@final
class GatedPyramid(nn.Module):
    r"""A stream of gated residual blocks at several resolutions (Salimans et al. 2017, PixelCNN++).

    .. math:: s_0 = x, \quad s_k = \mathrm{down}_k(s_{k-1}), \qquad
        u_0 = \mathrm{grow}(\mathrm{coarser}(\mathrm{shrink}(s_L))), \quad u_k = \mathrm{up}_k(u_{k-1}, s_{L+1-k})

    Every resolution halves the rows and columns; L `layers` lead down at each of them. `coarser` is a pyramid again,
    and at the last one u_0 = s_L. Every part reads the present row and those above, so that a row of the result is
    known when the same row of x is.

    One block of rows passes on (`above`) the last row that each convolution read; of coarse
    features, the row that is still to come (`kept`). It has a row when the next row of x is an odd one.
    """

    def __init__(
        self,
        channels: int,
        layers: int,
        resolutions: int,
        *,
        reads_right: bool,
        neighbour: bool = False,
        num_classes: int | None = None,
    ):
        super().__init__()

        def blocks(count: int, shortcut: bool) -> nn.ModuleList:
            return nn.ModuleList(
                GatedResidualBlock(
                    channels,
                    reads_right=reads_right,
                    neighbour=neighbour,
                    shortcut=shortcut,
                    num_classes=num_classes,
                )
                for _ in range(count)
            )

        self.down = blocks(layers, shortcut=False)
        self.coarser: GatedPyramid | None = None
        if resolutions > 1:
            self.shrink = ShiftedConv2d(channels, channels, reads_right=reads_right, stride=2)
            self.coarser = GatedPyramid(
                channels,
                layers,
                resolutions - 1,
                reads_right=reads_right,
                neighbour=neighbour,
                num_classes=num_classes,
            )
            self.grow = ShiftedUpsampling(channels, reads_right=reads_right)
        self.up = blocks(layers + (resolutions > 1), shortcut=True)

    @property
    def resolutions(self) -> int:
        """The number of resolutions."""
        return 1 if self.coarser is None else 1 + self.coarser.resolutions

    @property
    def down_blocks(self) -> list[GatedResidualBlock]:
        """The blocks before what is coarser."""
        return cast(list[GatedResidualBlock], list(self.down))

    @property
    def up_blocks(self) -> list[GatedResidualBlock]:
        """The blocks after it, each with a shortcut from one before it."""
        return cast(list[GatedResidualBlock], list(self.up))

    def blank_rows(self, like: Tensor) -> State:
        """`above` at the top of an image as wide as `like`, (B, M, 1, W)."""
        above = {
            "down": [block.blank_rows(like) for block in self.down_blocks],
            "up": [block.blank_rows(like) for block in self.up_blocks],
        }
        if self.coarser is None:
            return above
        coarser = self.coarser.blank_rows(like.new_zeros(like[:, :, :, ::2].shape))
        return {**above, "shrink": torch.zeros_like(like), "kept": like[:, :, :0], "coarser": coarser}

    def rows(
        self,
        x: Tensor,
        above: State,
        label: Tensor | None = None,
        neighbour: State = None,
        *,
        dropout: float = 0.0,
    ) -> tuple[Tensor, State, State]:
        """Read a block of whole rows (B, M, n, W), with the features of the other stream in these rows.

        Returns the features (B, M, n, W); the features of every block, for the other stream; `above` for what follows.
        """
        shortcuts = [x]
        features: dict[str, State] = {"down": [], "up": [], "coarser": None}
        after: dict[str, State] = {"down": [], "up": []}
        for index, block in enumerate(self.down_blocks):
            near = None if neighbour is None else neighbour["down"][index]
            x, over = block(x, above["down"][index], label, near, dropout=dropout)
            shortcuts.append(x)
            features["down"].append(x)
            after["down"].append(over)
        if self.coarser is None:
            x = shortcuts.pop()
        else:
            far = None if neighbour is None else neighbour["coarser"]
            x, features["coarser"], coarse_after = self._through_coarser(self.coarser, x, above, label, far, dropout)
            after.update(coarse_after)
        for index, block in enumerate(self.up_blocks):
            near = None if neighbour is None else neighbour["up"][index]
            x, over = block(x, above["up"][index], label, near, shortcuts.pop(), dropout=dropout)
            features["up"].append(x)
            after["up"].append(over)
        return x, features, after

    def _through_coarser(
        self, coarser: "GatedPyramid", x: Tensor, above: State, label: Tensor | None, neighbour: State, dropout: float
    ) -> tuple[Tensor, State, dict[str, State]]:
        pending, count = above["kept"], x.shape[2]
        rows, start = torch.cat([above["shrink"], x], 2), pending.shape[2]
        new = (count - start + 1) // 2  # coarse rows: one for every even row of these
        features, coarse_above = None, above["coarser"]
        if new:
            coarse = self.shrink(rows[:, :, start : start + 2 * new], with_above=True)
            coarse, features, coarse_above = coarser.rows(coarse, coarse_above, label, neighbour, dropout=dropout)
            pending = torch.cat([pending, self.grow(coarse, x.shape[3])], 2)
        after = {"shrink": rows[:, :, -1:], "kept": pending[:, :, count:], "coarser": coarse_above}
        return pending[:, :, :count], features, after


@final
class GatedStreams(nn.Module):
    r"""A vertical stream that sees the rows above, and a horizontal one that also sees the pixels to the left.

    .. math:: v = \mathrm{pyramid}_v(W_v * \mathrm{rows\ above}), \qquad h = \mathrm{pyramid}_h(W_h * x;\ v)

    x has `in_channels` channels, v and h have M `channels`.
    """

    def __init__(self, in_channels: int, channels: int, layers: int, resolutions: int, num_classes: int | None = None):
        super().__init__()
        self.above = nn.Conv2d(in_channels, channels, (2, 3), padding=(0, 1))
        self.first = MaskedConv2d(in_channels, channels, 3, "A")
        self.vertical = GatedPyramid(channels, layers, resolutions, reads_right=True, num_classes=num_classes)
        self.horizontal = GatedPyramid(
            channels, layers, resolutions, reads_right=False, neighbour=True, num_classes=num_classes
        )

    def reset_parameters(self) -> None:
        """Draw the weights that read the rows above."""
        nn.init.normal_(self.above.weight, std=self.above.weight[0].numel() ** -0.5)
        assert self.above.bias is not None
        nn.init.zeros_(self.above.bias)

    def blank_rows(self, batch_size: int, width: int) -> State:
        """`above` at the top of an image: two rows of it, and what both streams keep."""
        channels, in_channels = self.above.weight.shape[:2]
        blank = self.above.weight.new_zeros(batch_size, channels, 1, width)
        return {
            "pixels": blank.new_zeros(batch_size, in_channels, 2, width),
            "vertical": self.vertical.blank_rows(blank),
            "horizontal": self.horizontal.blank_rows(blank),
        }

    def forward(self, x: Tensor, above: State, label: Tensor | None, *, dropout: float = 0.0) -> tuple[Tensor, State]:
        """Read a block of whole rows (B, N, n, W): h (B, M, n, W), and `above` for the rows that follow."""
        image = torch.cat([above["pixels"], x], 2)
        v = self.above(image[:, :, :-1])
        _, features, vertical = self.vertical.rows(v, above["vertical"], label, dropout=dropout)
        h = self.first(image[:, :, 1:], with_above=True)
        h, _, horizontal = self.horizontal.rows(h, above["horizontal"], label, features, dropout=dropout)
        return h, {"pixels": image[:, :, x.shape[2] :], "vertical": vertical, "horizontal": horizontal}


@final
class PixelMixtures(nn.Conv2d):
    """Features (B, M, n, W) to a `PixelLogisticMixture` for each pixel, of K components over C colours."""

    def __init__(self, channels: int, colours: int, components: int, levels: int):
        super().__init__(channels, PixelLogisticMixture.num_parameters(colours, components), 1)
        self.colours, self.components, self.levels = colours, components, levels

    def spread(self) -> None:
        """Begin with the same mixture at every pixel: evenly spaced components, each as wide as their spacing."""
        nn.init.normal_(self.weight, std=0.1 * self.weight.shape[1] ** -0.5)
        assert self.bias is not None
        nn.init.zeros_(self.bias)
        with torch.no_grad():
            biases = self.bias.view(-1, self.components)
            biases[1 : 1 + self.colours] = (2 * torch.arange(self.components) + 1) / self.components - 1
            biases[1 + self.colours : 1 + 2 * self.colours] = -torch.tensor(self.components).log()

    def forward(self, h: Tensor) -> Tensor:
        """The parameters of the mixtures, (B, P, n, W)."""
        with torch.autocast(h.device.type, enabled=False):  # a mean in bfloat16 may be off by half a level of 256
            return super().forward(nn.functional.elu(h.to(self.weight.dtype)))

    def mixture(self, parameters: Tensor) -> PixelLogisticMixture:
        """The joint distribution of the colours of pixels (..), from their parameters (.., P)."""
        return PixelLogisticMixture.from_parameters(parameters, self.colours, self.levels)

    def coloured(self, parameters: Tensor, x: Tensor) -> DiscretizedLogisticMixture:
        """The conditional of each colour, batch shape (B, C, n, W), given the earlier colours of x."""
        each = self.mixture(parameters.movedim(1, 3)).conditionals(x.movedim(1, 3))
        return each.with_parameters(*(part.movedim(3, 1) for part in each.parameters))
