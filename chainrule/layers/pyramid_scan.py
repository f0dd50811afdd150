"""The horizontal stream of the PixelCNN++ pixel by pixel: what is known before a pixel is summed in one product."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from chainrule.layers.concatenated_elu import concatenated_elu
from chainrule.layers.shifted_conv2d import ShiftedConv2d
from chainrule.state import State

if TYPE_CHECKING:
    from chainrule.layers.gated_pyramid import GatedPyramid


class PyramidScan:
    r"""A `GatedPyramid` that is moved up and to the left, its weights laid out for visiting pixels in raster order.

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
        self._beside = torch.cat([_weight(block.beside) for block in blocks])  # (n·M, 2M, 1, 1)
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
            found: what the other stream found in this row.
            label: (B,) integers.
        """
        over = [*above["down"], *above["up"]]
        near = concatenated_elu(torch.stack([*found["down"], *found["up"]], 1), 2).flatten(1, 2)  # (B, n·2M, 1, W)
        first = self._first.from_above(torch.cat([read for read, _ in over], 1))
        beside = nn.functional.conv2d(near, self._beside, groups=len(over))
        second = self._second.from_above(torch.cat([again for _, again in over], 1))
        if label is not None:
            second = second + torch.stack([bias(label) for bias in self._label_biases], 1).unsqueeze(2)
        row = {
            "first": first + beside.view(len(first), len(over), -1, first.shape[2]).transpose(2, 3),
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
