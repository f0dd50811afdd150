"""The layers of a PixelCNN++ as a list of small products over a flat memory, for compiled loops."""

from typing import TYPE_CHECKING

from torch import Tensor, nn

from chainrule.kernels._raster_program import (
    CONCATENATED_ELU,
    GLU,
    IDENTITY,
    Features,
    Program,
    constant,
    labelled,
)

if TYPE_CHECKING:
    from chainrule.layers._gated_pyramid import GatedPyramid, GatedResidualBlock, ShiftedConv2d
    from chainrule.models._pixel_cnn_pp import PixelCNNPP


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
        self, layer: "ShiftedConv2d", source: Features, out: Features, kind: int, level: int, *,
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
        self, block: "GatedResidualBlock", x: Features, read: Features, near: Features | None,
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
        self, pyramid: "GatedPyramid", x: Features, near: list[Features], level: int = 0
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


def pixel_cnn_pp(model: "PixelCNNPP") -> Program:
    """Return the operations of a PixelCNN++."""
    streams, output = model.streams, model.output
    above, channels = streams.above, len(streams.above.weight)
    program = Program(model.image_shape, model.levels, above.weight, output.components)
    image = program.pixels = program.features(model.image_shape[0] + 1, 3, 1)
    vertical, horizontal = (Pyramid(program, channels, horizontal=stream) for stream in (False, True))
    v, h = vertical.place(0), horizontal.place(0)
    base = program.bias(channels, constant(above.bias))
    program.add(program.row_operations, base, v, channels, weight=above.weight, source=image, left=1)
    _, found = vertical.append(streams.vertical, v, [])
    program.masked(streams.first, image, program.above(streams.first, image), h)
    h, _ = horizontal.append(streams.horizontal, h, found)
    outs = len(output.weight)
    base, program.scores = program.bias(outs, constant(output.bias)), Features(program.reserve(outs), 0)
    program.add(
        program.operations[0], base, program.scores, outs,
        weight=output.weight, source=horizontal.elu(h, 0), top=1, reads=channels,
    )  # fmt: skip
    return program
