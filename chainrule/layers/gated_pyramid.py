"""One stream of the PixelCNN++: gated residual blocks down to coarser resolutions and back, with shortcuts."""

from typing import cast, final

import torch
from torch import Tensor, nn

from chainrule.layers.gated_residual_block import GatedResidualBlock
from chainrule.layers.pyramid_scan import PyramidScan
from chainrule.layers.shifted_conv2d import ShiftedConv2d
from chainrule.layers.shifted_upsampling import ShiftedUpsampling
from chainrule.state import State


@final
class GatedPyramid(nn.Module):
    r"""A stream of gated residual blocks at several resolutions (Salimans et al. 2017, PixelCNN++).

    .. math:: s_0 = x, \quad s_k = \mathrm{down}_k(s_{k-1}), \qquad
        u_0 = \mathrm{grow}(\mathrm{coarser}(\mathrm{shrink}(s_L))), \quad u_k = \mathrm{up}_k(u_{k-1}, s_{L+1-k})

    Half as many rows and columns with every resolution; `coarser` is a pyramid again, and at the last one u_0 = s_L.
    Every part reads the present row and those above, so that a row of the result is known when the same row of x is.

    What goes from one block of rows to the next (`above`) is what each convolution read in the last row; of coarse
    features, the row that is still to come (`kept`). It has a row when the next row of x is an odd one.

    Args:
        channels: M features at every resolution.
        layers: L blocks on the way down at each resolution.
        resolutions: how many there are.
        reads_right: as in `ShiftedConv2d`.
        beside: whether each block reads what a block of another stream found.
        num_classes: of the labels; `None` where there are none.

    >>> pyramid = GatedPyramid(8, layers=1, resolutions=2, reads_right=False)
    >>> x = torch.zeros(2, 8, 5, 4)
    >>> pyramid.rows(x, pyramid.blank_rows(x[:, :, :1]))[0].shape
    torch.Size([2, 8, 5, 4])
    """

    def __init__(
        self,
        channels: int,
        layers: int,
        resolutions: int,
        *,
        reads_right: bool,
        beside: bool = False,
        num_classes: int | None = None,
    ):
        super().__init__()

        def blocks(count: int, shortcut: bool) -> nn.ModuleList:
            return nn.ModuleList(
                GatedResidualBlock(
                    channels,
                    reads_right=reads_right,
                    beside=beside,
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
                beside=beside,
                num_classes=num_classes,
            )
            self.grow = ShiftedUpsampling(channels, reads_right=reads_right)
        self.up = blocks(layers + (resolutions > 1), shortcut=True)

    @property
    def resolutions(self) -> int:
        """How many there are."""
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
        beside: State = None,
        *,
        dropout: float = 0.0,
    ) -> tuple[Tensor, State, State]:
        """A block of whole rows.

        Args:
            x: (B, M, n, W).
            above: from `blank_rows`, or from the rows over these.
            label: (B,) integers.
            beside: what the other stream found in these rows.
            dropout: in the blocks, for training.

        Returns:
            The features (B, M, n, W); what every block found, for a stream beside this one; `above` for what follows.
        """
        shortcuts = [x]
        found: dict[str, State] = {"down": [], "up": [], "coarser": None}
        after: dict[str, State] = {"down": [], "up": []}
        for index, block in enumerate(self.down_blocks):
            near = None if beside is None else beside["down"][index]
            x, over = block(x, above["down"][index], label, near, dropout=dropout)
            shortcuts.append(x)
            found["down"].append(x)
            after["down"].append(over)
        if self.coarser is None:
            x = shortcuts.pop()
        else:
            far = None if beside is None else beside["coarser"]
            x, found["coarser"], coarse_after = self._through_coarser(self.coarser, x, above, label, far, dropout)
            after.update(coarse_after)
        for index, block in enumerate(self.up_blocks):
            near = None if beside is None else beside["up"][index]
            x, over = block(x, above["up"][index], label, near, shortcuts.pop(), dropout=dropout)
            found["up"].append(x)
            after["up"].append(over)
        return x, found, after

    def prepare(self) -> PyramidScan:
        """The same stream pixel by pixel, for one that reads another stream and moves up and to the left."""
        return PyramidScan(self)

    def _through_coarser(
        self, coarser: "GatedPyramid", x: Tensor, above: State, label: Tensor | None, beside: State, dropout: float
    ) -> tuple[Tensor, State, dict[str, State]]:
        kept, count = above["kept"], x.shape[2]
        rows, start = torch.cat([above["shrink"], x], 2), kept.shape[2]
        new = (count - start + 1) // 2  # coarse rows: one for every even row of these
        found, coarse_above = None, above["coarser"]
        if new:
            coarse = self.shrink.below(rows[:, :, start : start + 2 * new])
            coarse, found, coarse_above = coarser.rows(coarse, coarse_above, label, beside, dropout=dropout)
            kept = torch.cat([kept, self.grow(coarse, x.shape[3])], 2)
        after = {"shrink": rows[:, :, -1:], "kept": kept[:, :, count:], "coarser": coarse_above}
        return kept[:, :, :count], found, after
