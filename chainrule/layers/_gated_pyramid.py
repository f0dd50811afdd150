"""One stream of the PixelCNN++: gated residual blocks down to coarser resolutions and back, with shortcuts."""

from collections.abc import Sequence
from typing import cast, final

import torch
from torch import Tensor, nn

from chainrule.layers._activations import concatenated_elu
from chainrule.layers._gated_residual_block import GatedResidualBlock
from chainrule.layers._shifted_convolutions import ShiftedConv2d, ShiftedUpsampling
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
        neighbour: whether each block reads the features of a block of another stream.
        num_classes: number of labels; `None` without labels.

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
        neighbour: State = None,
        *,
        dropout: float = 0.0,
    ) -> tuple[Tensor, State, State]:
        """A block of whole rows.

        Args:
            x: (B, M, n, W).
            above: from `blank_rows`, or from the rows over these.
            label: (B,) integers.
            neighbour: features of the other stream in these rows.
            dropout: in the blocks, for training.

        Returns:
            The features (B, M, n, W); the features of every block, for the other stream; `above` for what follows.
        """
        shortcuts = [x]
        found: dict[str, State] = {"down": [], "up": [], "coarser": None}
        after: dict[str, State] = {"down": [], "up": []}
        for index, block in enumerate(self.down_blocks):
            near = None if neighbour is None else neighbour["down"][index]
            x, over = block(x, above["down"][index], label, near, dropout=dropout)
            shortcuts.append(x)
            found["down"].append(x)
            after["down"].append(over)
        if self.coarser is None:
            x = shortcuts.pop()
        else:
            far = None if neighbour is None else neighbour["coarser"]
            x, found["coarser"], coarse_after = self._through_coarser(self.coarser, x, above, label, far, dropout)
            after.update(coarse_after)
        for index, block in enumerate(self.up_blocks):
            near = None if neighbour is None else neighbour["up"][index]
            x, over = block(x, above["up"][index], label, near, shortcuts.pop(), dropout=dropout)
            found["up"].append(x)
            after["up"].append(over)
        return x, found, after

    def prepare(self) -> "PyramidScan":
        """This stream prepared for single pixels; it must read another stream and be shifted up and to the left."""
        return PyramidScan(self)

    def _through_coarser(
        self, coarser: "GatedPyramid", x: Tensor, above: State, label: Tensor | None, neighbour: State, dropout: float
    ) -> tuple[Tensor, State, dict[str, State]]:
        kept, count = above["kept"], x.shape[2]
        rows, start = torch.cat([above["shrink"], x], 2), kept.shape[2]
        new = (count - start + 1) // 2  # coarse rows: one for every even row of these
        found, coarse_above = None, above["coarser"]
        if new:
            coarse = self.shrink.below(rows[:, :, start : start + 2 * new])
            coarse, found, coarse_above = coarser.rows(coarse, coarse_above, label, neighbour, dropout=dropout)
            kept = torch.cat([kept, self.grow(coarse, x.shape[3])], 2)
        after = {"shrink": rows[:, :, -1:], "kept": kept[:, :, count:], "coarser": coarse_above}
        return kept[:, :, :count], found, after


class PyramidScan:
    r"""A `GatedPyramid` that is shifted up and to the left, prepared for visiting pixels in raster order.

    A shifted convolution reads the row above, the pixel to the left and the pixel itself. The first part, with biases,
    labels and what the other stream found, is computed for all blocks and a whole row at once (`begin_row`), the second
    for all blocks in one product when the network turns to a pixel; what is left is a small product a block with the
    pixel's own features. Coarse features are computed at every second pixel of every second row, where they become
    known, and wait for the three other pixels that they are for. No part of a sum is computed twice.

    Args:
        pyramid: one that reads another stream; its weights must stay as they are.
    """

    def __init__(self, pyramid: "GatedPyramid"):
        self.depth = len(pyramid.down_blocks)
        blocks = [*pyramid.down_blocks, *pyramid.up_blocks]
        self._first = _ShiftedConvolutions([block.first for block in blocks])
        self._second = _ShiftedConvolutions([block.second for block in blocks])
        self._neighbour = torch.cat([_weight(block.neighbour) for block in blocks])  # (n·M, 2M, 1, 1)
        self._shortcuts = [_weight(block.shortcut).flatten(1).t().contiguous() for block in pyramid.up_blocks]
        self._label_biases = [block.label_bias for block in blocks if block.label_bias is not None]
        self.coarser: PyramidScan | None = None
        if pyramid.coarser is not None:
            self.coarser = PyramidScan(pyramid.coarser)
            self._shrink = pyramid.shrink
            present = pyramid.shrink.weight[:, :, 1]  # (M, M, 2): of the left pixel and of the own
            self._shrink_present = present.permute(2, 1, 0).flatten(0, 1)  # (2M, M)
            self._grow = pyramid.grow.weight.permute(0, 2, 3, 1).flatten(1)  # (M, 4M): row, column, feature
            self._grow_bias = pyramid.grow.bias.repeat(4)

    def begin_row(self, above: State, found: State, label: Tensor | None) -> State:
        """Contributions to a row from above and from the other stream, before its first pixel.

        Args:
            above: as in `GatedPyramid.rows`.
            found: features of the other stream in this row.
            label: (B,) integers.
        """
        over = [*above["down"], *above["up"]]
        near = concatenated_elu(torch.stack([*found["down"], *found["up"]], 1), 2).flatten(1, 2)  # (B, n·2M, 1, W)
        first = self._first.from_above(torch.cat([read for read, _ in over], 1))
        neighbour = nn.functional.conv2d(near, self._neighbour, groups=len(over))
        second = self._second.from_above(torch.cat([again for _, again in over], 1))
        if label is not None:
            second = second + torch.stack([bias(label) for bias in self._label_biases], 1).unsqueeze(2)
        row = {
            "first": first + neighbour.view(len(first), len(over), -1, first.shape[2]).transpose(2, 3),
            "second": second,
            "read": [self._first.blank(near)],
            "again": [self._second.blank(near)],
        }
        if self.coarser is None:
            return row
        row |= {"fine": [above["shrink"][:, :, 0, 0] * 0], "grown": [], "kept": above["kept"]}
        if above["kept"].shape[2]:
            return {**row, "coarser": None}
        weight, bias = self._shrink.weight[:, :, :1], self._shrink.bias
        shrink = nn.functional.conv2d(nn.functional.pad(above["shrink"], (1, 0)), weight, bias, (1, 2))
        coarser = self.coarser.begin_row(above["coarser"], found["coarser"], label)
        return {**row, "shrink": shrink, "coarser": coarser}

    def pixel(self, column: int, h: Tensor, row: State) -> tuple[Tensor, State]:
        """The features of the next pixel, (B, M) from (B, M), and the row with what later pixels need of it."""
        first = self._first.known(row["first"], column, row["read"][-1])
        second = self._second.known(row["second"], column, row["again"][-1])
        read: list[Tensor] = []
        again: list[Tensor] = []

        def through(h: Tensor, known: Tensor) -> Tensor:
            index = len(again)
            again.append(concatenated_elu(torch.addmm(known, read[index], self._first.own[index])))
            return h + nn.functional.glu(torch.addmm(second[index], again[index], self._second.own[index]), 1)

        for index in range(self.depth):
            read.append(concatenated_elu(h))
            h = through(h, first[index])
        shortcuts = list(read)
        if self.coarser is not None:
            shortcuts.append(concatenated_elu(h))
            h, row = self._through_coarser(self.coarser, column, h, row)
        for index, weight in enumerate(self._shortcuts):
            read.append(concatenated_elu(h))
            h = through(h, torch.addmm(first[self.depth + index], shortcuts.pop(), weight))
        return h, {
            **row,
            "read": [*row["read"], torch.stack(read, 1)],
            "again": [*row["again"], torch.stack(again, 1)],
        }

    def _through_coarser(self, coarser: "PyramidScan", column: int, h: Tensor, row: State) -> tuple[Tensor, State]:
        left = row["fine"][-1]
        row = {**row, "fine": [*row["fine"], h]}
        if row["coarser"] is None:
            return row["kept"][:, :, 0, column], row
        if column % 2 == 0:
            place = column // 2
            coarse = torch.addmm(row["shrink"][:, :, 0, place], torch.cat([left, h], 1), self._shrink_present)
            coarse, coarse_row = coarser.pixel(place, coarse, row["coarser"])
            grown = torch.addmm(self._grow_bias, coarse, self._grow).view(len(h), 2, 2, -1)
            row = {**row, "coarser": coarse_row, "grown": [*row["grown"], grown]}
        return row["grown"][-1][:, 0, column % 2], row

    def end_row(self, above: State, row: State) -> State:
        """`above` for the row that follows, from a row whose every pixel was seen."""
        over = list(zip(_by_block(row["read"]), _by_block(row["again"]), strict=True))
        after = {"down": over[: self.depth], "up": over[self.depth :]}
        if self.coarser is None:
            return after
        fine = torch.stack(row["fine"][1:], 2).unsqueeze(2)  # (B, M, 1, W)
        if row["coarser"] is None:
            return {**after, "shrink": fine, "kept": row["kept"][:, :, 1:], "coarser": above["coarser"]}
        below = torch.cat([grown[:, 1] for grown in row["grown"]], 1)[:, : fine.shape[3]]  # (B, W, M)
        coarser = self.coarser.end_row(above["coarser"], row["coarser"])
        return {**after, "shrink": fine, "kept": below.transpose(1, 2).unsqueeze(2), "coarser": coarser}


class _ShiftedConvolutions:
    """n shifted convolutions of one shape, divided into what they read above, to the left, and at the pixel itself."""

    def __init__(self, layers: Sequence[ShiftedConv2d]):
        weight = torch.stack([layer.weight for layer in layers])  # (n, out, in, 2, 2)
        self._layers = len(layers)
        self._above = weight[:, :, :, :1].flatten(0, 1)  # (n·out, in, 1, 2)
        self._bias = torch.cat([layer.bias for layer in layers])
        self._left = weight[:, :, :, 1, 0].transpose(1, 2).contiguous()  # (n, in, out)
        self.own = weight[:, :, :, 1, 1].transpose(1, 2).contiguous().unbind(0)

    def from_above(self, row: Tensor) -> Tensor:
        """(B, n, W, out) from the row above, (B, n·in, 1, W)."""
        padded = nn.functional.pad(row, (1, 0))
        found = nn.functional.conv2d(padded, self._above, self._bias, groups=self._layers)
        return found.view(len(row), self._layers, -1, row.shape[3]).transpose(2, 3)

    def blank(self, like: Tensor) -> Tensor:
        """Zeros to the left of a row, (B, n, in)."""
        return like.new_zeros(len(like), *self._left.shape[:2])

    def known(self, from_above: Tensor, column: int, left: Tensor) -> Sequence[Tensor]:
        """The sums before the pixel itself, n tensors (B, out), with `left` (B, n, in) read to the left of it."""
        base = from_above[:, :, column].transpose(0, 1)
        return torch.baddbmm(base, left.transpose(0, 1), self._left).unbind(0)


def _by_block(seen: list[Tensor]) -> list[Tensor]:
    """The row that each block read, (B, in, 1, W), from the inputs of all at each pixel, after the blank."""
    return list(torch.stack(seen[1:], 3).unsqueeze(3).unbind(1))


def _weight(convolution: nn.Conv2d | None) -> Tensor:
    assert convolution is not None
    return convolution.weight
