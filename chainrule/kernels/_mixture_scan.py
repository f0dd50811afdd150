"""The streams of a PixelCNN++ pixel by pixel, and the whole model for compiled loops."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from chainrule.kernels._raster_program import CONCATENATED_ELU, GLU, IDENTITY, Features, Program, constant, labelled
from chainrule.state import State

# Layers hand themselves over: a kernel imports none of them.
GatedPyramid: TypeAlias = Any
GatedResidualBlock: TypeAlias = Any
ShiftedConv2d: TypeAlias = Any


class PyramidScan:
    """A `GatedPyramid` that is shifted up and to the left, prepared for visiting pixels in raster order.

    A shifted convolution reads the row above, the pixel to the left and the pixel itself. The first part, with biases,
    labels and what the other stream found, is computed for all blocks and a whole row at once (`begin_row`), the second
    for all blocks in one product when the network turns to a pixel; what is left is a small product a block with the
    pixel's own features. Coarse features are computed at every second pixel of every second row, where they become
    known, and wait for the three other pixels that they are for. No part of a sum is computed twice. `activate` is
    the concatenated ELU.
    """

    def __init__(self, pyramid: GatedPyramid, activate: Callable[..., Tensor]):
        self._activate = activate
        self.depth = len(pyramid.down_blocks)
        blocks = [*pyramid.down_blocks, *pyramid.up_blocks]
        self._first = _ShiftedConvolutions([block.first for block in blocks])
        self._second = _ShiftedConvolutions([block.second for block in blocks])
        self._neighbour = torch.cat([_weight(block.neighbour) for block in blocks])  # (n·M, 2M, 1, 1)
        self._shortcuts = [_weight(block.shortcut).flatten(1).t().contiguous() for block in pyramid.up_blocks]
        self._label_biases = [block.label_bias for block in blocks if block.label_bias is not None]
        self.coarser: PyramidScan | None = None
        if pyramid.coarser is not None:
            self.coarser = PyramidScan(pyramid.coarser, activate)
            self._shrink = pyramid.shrink
            present = pyramid.shrink.weight[:, :, 1]  # (M, M, 2): of the left pixel and of the own
            self._shrink_present = present.permute(2, 1, 0).flatten(0, 1)  # (2M, M)
            self._grow = pyramid.grow.weight.permute(0, 2, 3, 1).flatten(1)  # (M, 4M): row, column, feature
            self._grow_bias = pyramid.grow.bias.repeat(4)

    def begin_row(self, above: State, other: State, label: Tensor | None) -> State:
        """Contributions to a row from above and from the other stream, before its first pixel."""
        over = [*above["down"], *above["up"]]
        near = self._activate(torch.stack([*other["down"], *other["up"]], 1), 2).flatten(1, 2)  # (B, n·2M, 1, W)
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
        coarser = self.coarser.begin_row(above["coarser"], other["coarser"], label)
        return {**row, "shrink": shrink, "coarser": coarser}

    def pixel(self, column: int, h: Tensor, row: State) -> tuple[Tensor, State]:
        """Compute the features of the next pixel, (B, M) from (B, M), and the row with what later pixels need of it."""
        first = self._first.known(row["first"], column, row["read"][-1])
        second = self._second.known(row["second"], column, row["again"][-1])
        read: list[Tensor] = []
        again: list[Tensor] = []

        def through(h: Tensor, bias: Tensor) -> Tensor:
            index = len(again)
            again.append(self._activate(torch.addmm(bias, read[index], self._first.own[index])))
            return h + nn.functional.glu(torch.addmm(second[index], again[index], self._second.own[index]), 1)

        for index in range(self.depth):
            read.append(self._activate(h))
            h = through(h, first[index])
        shortcuts = list(read)
        if self.coarser is not None:
            shortcuts.append(self._activate(h))
            h, row = self._through_coarser(self.coarser, column, h, row)
        for index, weight in enumerate(self._shortcuts):
            read.append(self._activate(h))
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
            coarse_column = column // 2
            coarse = torch.addmm(row["shrink"][:, :, 0, coarse_column], torch.cat([left, h], 1), self._shrink_present)
            coarse, coarse_row = coarser.pixel(coarse_column, coarse, row["coarser"])
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
        sums = nn.functional.conv2d(padded, self._above, self._bias, groups=self._layers)
        return sums.view(len(row), self._layers, -1, row.shape[3]).transpose(2, 3)

    def blank(self, like: Tensor) -> Tensor:
        """Zeros to the left of a row, (B, n, in)."""
        return like.new_zeros(len(like), *self._left.shape[:2])

    def known(self, from_above: Tensor, column: int, left: Tensor) -> Sequence[Tensor]:
        """Return the sums before the pixel itself, n tensors (B, out), with `left` (B, n, in) read left of it."""
        base = from_above[:, :, column].transpose(0, 1)
        return torch.baddbmm(base, left.transpose(0, 1), self._left).unbind(0)


def _by_block(seen: list[Tensor]) -> list[Tensor]:
    """Return the row that each block read, (B, in, 1, W), from the inputs of all at each pixel, after the blank."""
    return list(torch.stack(seen[1:], 3).unsqueeze(3).unbind(1))


def _weight(convolution: nn.Conv2d | None) -> Tensor:
    assert convolution is not None
    return convolution.weight


class Pyramid:
    """A stream of a PixelCNN++: the vertical one in operations of rows, the horizontal one in those of pixels."""

    def __init__(self, program: Program, channels: int, *, horizontal: bool):
        self.program, self.channels, self.horizontal = program, channels, horizontal
        self.operations = program.operations[0] if horizontal else program.row_operations

    def place(self, level: int) -> Features:
        """Reserve features that are read at their own place alone."""
        return (
            Features(self.program.reserve(self.channels), 0)
            if self.horizontal
            else self.program.features(self.channels, 1, 1, level)
        )

    def elu(self, x: Features, level: int) -> Features:
        """Append the concatenated ELU."""
        out = self.program.features(2 * self.channels, 2, 1, level)
        self.program.add(self.operations, x, out, self.channels, CONCATENATED_ELU, level=level)
        return out

    def convolved(
        self, layer: ShiftedConv2d, source: Features, out: Features, kind: int, level: int, *,
        before: tuple[Tensor, Features] | None = None, near: tuple[Tensor, Features] | None = None,
        label: nn.Module | None = None, plus: Features | None = None,
    ) -> None:  # fmt: skip
        """Append a shifted convolution; `before` and `near` are 1×1 ones added to it, of this stream and the other."""
        program, weight = self.program, layer.weight
        outs, every, top, rows = len(weight), layer.stride, 0, program.row_operations
        base = program.bias(outs, labelled(layer.bias, label, slice(outs)))
        if self.horizontal:  # what it reads of the row above, at once for the whole row
            over, top = program.features(outs, level=level), 1
            program.add(
                rows, base, over, outs, weight=weight[:, :, :1], source=source, left=1, every=every, level=level
            )
            base, weight = over, weight[:, :, 1:]
            if near is not None:
                read = program.features(2 * self.channels, level=level)
                program.add(rows, near[1], read, self.channels, CONCATENATED_ELU, level=level)
                program.add(rows, base, base, outs, weight=near[0], source=read, level=level)
        if before is not None:
            place = self.place(level)
            program.add(self.operations, base, place, outs, weight=before[0], source=before[1], top=1, level=level)
            base = place
        program.add(
            self.operations, base, out, outs, kind,
            weight=weight, source=source, top=top, left=1, every=every, level=level, plus=plus,
        )  # fmt: skip

    def block(
        self, block: GatedResidualBlock, x: Features, read: Features, near: Features | None,
        shortcut: Features | None, out: Features, level: int,
    ) -> None:  # fmt: skip
        """Append a residual block that reads x, and its concatenated ELU."""
        again = self.program.features(2 * self.channels, 2, 1, level)
        self.convolved(
            block.first, read, again, CONCATENATED_ELU, level,
            before=None if block.shortcut is None or shortcut is None else (block.shortcut.weight, shortcut),
            near=None if block.neighbour is None or near is None else (block.neighbour.weight, near),
        )  # fmt: skip
        self.convolved(block.second, again, out, GLU, level, label=block.label_bias, plus=x)

    def append(
        self, pyramid: GatedPyramid, x: Features, near: list[Features], level: int = 0
    ) -> tuple[Features, list[Features]]:
        """Append a pyramid; return its result, and the result of each block for the other stream."""
        program, shortcuts = self.program, []
        results: list[Features] = []
        for block in pyramid.down_blocks:
            shortcuts.append(self.elu(x, level))
            out = program.features(self.channels, 2, 1, level)
            self.block(block, x, shortcuts[-1], near[len(results)] if near else None, None, out, level)
            x = out
            results.append(x)
        if pyramid.coarser is not None:
            shortcuts.append(self.elu(x, level))
            coarse = self.place(level + 1)
            self.convolved(pyramid.shrink, x, coarse, IDENTITY, level + 1)
            coarse, inner = self.append(pyramid.coarser, coarse, near[len(results) :], level + 1)
            results += inner
            x = self.grown(pyramid.grow.weight, pyramid.grow.bias, coarse, level)
        for block in pyramid.up_blocks:
            out = program.features(self.channels, 1, 1, level)
            read = self.elu(x, level)
            self.block(block, x, read, near[len(results)] if near else None, shortcuts.pop(), out, level)
            x = out
            results.append(x)
        return x, results

    def grown(self, weight: Tensor, bias: Tensor, coarse: Features, level: int) -> Features:
        """Append the way back from coarse features, for two rows; the second row waits for the end of the first."""
        program, base = self.program, self.program.bias(self.channels, constant(bias))
        both = program.features(self.channels, 2, 1, level)
        for row in range(2):
            start = both.start + row * both.stride
            for column, taps in enumerate([[0], [1]] if self.horizontal else [[1], [2, 0]]):
                to = Features(start + column * self.channels, 2 * self.channels)
                part = weight[:, :, row : row + 1, taps].transpose(0, 1)
                program.add(self.operations, base, to, self.channels, weight=part, source=coarse, level=level + 1)
        return Features(both.start, both.step)
