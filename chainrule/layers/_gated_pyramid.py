"""Streams of the PixelCNN++: gated residual blocks at several resolutions."""

from typing import cast, final

import torch
from torch import Tensor, nn

from chainrule.layers._pointwise import concatenated_elu
from chainrule.layers._raster_layer import RasterLayer
from chainrule.layers._shifted_convolutions import ShiftedConv2d, ShiftedUpsampling
from chainrule.state import State


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
        c = self.first.below(torch.cat([over_first, read], 2))
        for convolution, features in ((self.neighbour, neighbour), (self.shortcut, shortcut)):
            if convolution is not None and features is not None:
                c = c + convolution(concatenated_elu(features))
        again = nn.functional.dropout(concatenated_elu(c), dropout)
        a = self.second.below(torch.cat([over_second, again], 2))
        if self.label_bias is not None:
            a = a + self.label_bias(label).unsqueeze(-1).unsqueeze(-1)
        return x + nn.functional.glu(a, 1), (read[:, :, -1:], again[:, :, -1:])


@final
class GatedPyramid(nn.Module):
    r"""A stream of gated residual blocks at several resolutions (Salimans et al. 2017, PixelCNN++).

    .. math:: s_0 = x, \quad s_k = \mathrm{down}_k(s_{k-1}), \qquad
        u_0 = \mathrm{grow}(\mathrm{coarser}(\mathrm{shrink}(s_L))), \quad u_k = \mathrm{up}_k(u_{k-1}, s_{L+1-k})

    Every resolution halves the rows and columns; `coarser` is a pyramid again, and at the last one u_0 = s_L.
    Every part reads the present row and those above, so that a row of the result is known when the same row of x is.

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
            coarse = self.shrink.below(rows[:, :, start : start + 2 * new])
            coarse, features, coarse_above = coarser.rows(coarse, coarse_above, label, neighbour, dropout=dropout)
            pending = torch.cat([pending, self.grow(coarse, x.shape[3])], 2)
        after = {"shrink": rows[:, :, -1:], "kept": pending[:, :, count:], "coarser": coarse_above}
        return pending[:, :, :count], features, after
