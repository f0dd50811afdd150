"""The layers of an image model as a list of small products over a flat memory, for compiled loops."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

# Layers hand themselves over: a kernel imports none of them.
MaskedConv2d: TypeAlias = Any
PixelLogits: TypeAlias = Any


IDENTITY, RELU, GATE, CONCATENATED_ELU, GLU = range(5)  # what is done with a sum
Bias: TypeAlias = Callable[[Tensor | None], Tensor]
"""Function of labels (B,) that returns biases (N,) or (B, N)."""


@dataclass(frozen=True)
class Features:
    """A place in the memory: features of the pixels of some rows, the last of them the present one.

    Args:
        start: address of column 0 of the first row.
        step: from one column to the next; 0 if all share one place.
        stride: from one row to the next.
        rows: how many.
    """

    start: int
    step: int
    stride: int = 0
    rows: int = 1

    def __getitem__(self, channel: int) -> "Features":
        return replace(self, start=self.start + channel)

    @property
    def present(self) -> int:
        """Address of column 0 of the present row."""
        return self.start + (self.rows - 1) * self.stride


class Program:
    """Operations on the memory of an image: y = f(base + W x) at each column.

    A row begins with operations at all its columns, one operation after the other; then the operations of each colour
    of a pixel come before its draw.

    Args:
        image_shape: (C, H, W).
        levels: V.
        like: a weight, with the type of all numbers.
        components: K, if the colours of a pixel have one mixture of logistics instead of a table each.
        most: to which the log-scales of the logistics are clamped.
    """

    def __init__(
        self, image_shape: tuple[int, int, int], levels: int, like: Tensor, components: int = 0, most: float = 0.0
    ):
        self.colours, self.height, self.width = image_shape
        self.components, self._most = components, most
        self.levels, self.like, self.size = levels, like.detach(), 0
        self.row_operations: list[tuple[int, ...]] = []
        self.operations: list[list[tuple[int, ...]]] = [[] for _ in range(1 if components else self.colours)]
        self.shifts: list[tuple[int, ...]] = []
        self.biases: list[tuple[slice, Bias]] = []
        self.weights: list[Tensor] = []
        self.pixels = self.scores = Features(0, 0)

    def features(self, channels: int, rows: int = 1, side: int = 0, level: int = 0) -> Features:
        """Reserve features of whole rows, with zeros for `side` columns to the left and right."""
        columns = ((self.width - 1) >> level) + 1 + 2 * side
        start, stride = self.reserve(rows * columns * channels), columns * channels
        if rows > 1:
            self.shifts.append((level, start, stride, rows))
        return Features(start + side * channels, channels, stride, rows)

    def reserve(self, size: int) -> int:
        """Return the address of `size` more numbers."""
        self.size += size
        return self.size - size

    def bias(self, size: int, bias: Bias) -> Features:
        """Reserve biases, the same at all columns."""
        start = self.reserve(size)
        self.biases.append((slice(start, start + size), bias))
        return Features(start, 0)

    def add(
        self,
        operations: list[tuple[int, ...]],
        base: Features,
        out: Features,
        outs: int,
        kind: int = IDENTITY,
        *,
        weight: Tensor | None = None,
        source: Features | None = None,
        top: int = 0,
        left: int = 0,
        reads: int = 0,
        every: int = 1,
        level: int = 0,
        plus: Features | None = None,
    ) -> None:
        """Append an operation.

        Args:
            operations: the list that it is appended to.
            base: what is added to the product.
            out: where the result goes.
            outs: number of sums.
            kind: what is done with them.
            weight: (outs, N, rows, columns), what is read of the source.
            source: with N channels.
            top: first row that is read.
            left: columns to the left that are read.
            reads: numbers of a row that are read; 0 for all.
            every: columns of the source for one of the result.
            level: resolution of the result; each has half the rows and columns of the one before.
            plus: what is added to a GLU.
        """
        product = (0, 0, 0, 0, 0, 0)
        if weight is not None and source is not None:
            rows, reads = weight.shape[2], reads or weight.shape[3] * weight.shape[1]
            matrix = weight.detach().permute(2, 3, 1, 0).reshape(rows, -1, outs)[:, :reads]
            first = source.start + top * source.stride - left * source.step
            where = sum(map(torch.numel, self.weights))
            product = (first, every * source.step, rows, source.stride, reads, where)
            self.weights.append(matrix.flatten())
        plus = plus or Features(0, 0)
        places = (base.present, base.step, outs, kind, plus.present, plus.step, out.present, out.step)
        operations.append((level, *product, *places))

    def masked(
        self, layer: MaskedConv2d, source: Features, base: Features, out: Features, kind: int = IDENTITY
    ) -> None:
        """Append what a masked convolution reads in the present row; the base has its channels sorted by group."""
        weight, (out_groups, in_groups) = layer.masked_weight(), layer.groups_of_channels()
        left, begin = layer.mask.shape[3] // 2, 0
        for group, operations in enumerate(self.operations):
            units = (out_groups == group).nonzero().flatten()
            before = (in_groups < group + (layer.mask_type == "B")).sum()
            reads = left * len(in_groups) + int(before)
            part = weight[units, :, -1:, : left + 1] if reads else None
            to = out[begin // layer.parts]
            self.add(
                operations, base[begin], to, len(units), kind,
                weight=part, source=source, top=source.rows - 1, left=left, reads=reads,
            )  # fmt: skip
            begin += len(units)

    def above(self, layer: MaskedConv2d, source: Features, label: nn.Module | None = None) -> Features:
        """Append what a masked convolution reads of the rows above, with its bias; channels sorted by group."""
        order = order_of(layer)
        out = self.features(len(order))
        base = self.bias_of(layer, label)
        weight, top = layer.masked_weight()[order, :, :-1], source.rows - 1 - layer.rows_above
        self.add(
            self.row_operations, base, out, len(order),
            weight=weight, source=source, top=top, left=layer.mask.shape[3] // 2,
        )  # fmt: skip
        return out

    def bias_of(self, layer: MaskedConv2d, label_bias: nn.Module | None = None) -> Features:
        """Reserve the bias of a masked convolution, sorted by group."""
        order, zeros = order_of(layer), self.like.new_zeros(layer.mask.shape[0])
        bias = zeros if layer.bias is None else layer.bias
        return self.bias(len(order), labelled(bias[order], label_bias, order))

    def rectified(self, layer: MaskedConv2d, source: Features) -> Features:
        """Append the rectifier before a masked convolution."""
        _, groups = layer.groups_of_channels()
        out, begin = self.features(len(groups)), 0
        for operations, size in zip(self.operations, groups.bincount().tolist(), strict=True):
            self.add(operations, source[begin], out[begin], size, RELU)
            begin += size
        return out

    def logits(self, head: PixelLogits, h: Features) -> None:
        """Append the layers after the features."""
        r = self.rectified(head.hidden, h)
        hidden = self.features(head.hidden.mask.shape[0])
        self.masked(head.hidden, r, self.bias_of(head.hidden), hidden, RELU)
        self.scores = Features(self.reserve(head.output.mask.shape[0]), 0)
        self.masked(head.output, hidden, self.bias_of(head.output), self.scores)

    def start(
        self, n: int, label: Tensor | None, prefix: Tensor | None, generator: torch.Generator | None
    ) -> Callable[[int], Tensor | None]:
        """Return a function that draws a row of n images, (n, W·C) elements without those of a prefix (n, P).

        It is to be called for one row after the other, and returns None for scores that are no distribution. The noise
        of all elements of a row is drawn at its beginning.
        """
        from chainrule.kernels._compiled_raster import Images, draw_row

        memory = self.like.new_zeros(n, self.size)
        for place, bias in self.biases:
            memory[:, place] = bias(label)
        row_operations, operations, shifts = (
            np.array(rows, np.int64).reshape(len(rows), -1)
            for rows in (self.row_operations, list(chain(*self.operations)), self.shifts)
        )
        ends = np.cumsum([len(part) for part in self.operations])
        weights = torch.cat(self.weights).numpy()
        sums = self.like.new_empty(4 * max(row_operations[:, 9].max(), operations[:, 9].max()))
        size, known = self.width * self.colours, 0 if prefix is None else prefix.shape[1]
        noise = self.like.new_empty(size, n, self.components or self.levels)
        logistic = self.like.new_empty(size if self.components else 0, n)
        limits = torch.finfo(logistic.dtype)
        images = Images(
            row_operations, operations, ends, shifts, weights, sums.numpy(), memory.numpy(), self.pixels.present,
            self.pixels.step, self.levels, self.colours, self.scores.start, self.components, self._most,
            noise.numpy(), logistic.numpy(),
        )  # fmt: skip

        def draw(row: int) -> Tensor | None:
            begin = row * size
            first = min(max(known - begin, 0), size)
            elements = torch.zeros(n, size, dtype=torch.long, device="cpu")
            if prefix is not None:
                elements[:, :first] = prefix[:, begin : begin + first]
            for element in range(first, size):
                noise[element].exponential_(generator=generator)
                if self.components:
                    logistic[element].uniform_(generator=generator)
            logistic[first:].clamp_min_(limits.eps / 4).logit_()
            drawn = draw_row(row, first, images, elements.numpy())
            return elements[:, first:] if drawn else None

        return draw


def order_of(layer: MaskedConv2d) -> Tensor:
    """Return the channels of a masked convolution sorted by group."""
    return layer.groups_of_channels()[0].argsort(stable=True)


def labelled(bias: Tensor, label_bias: nn.Module | None, channels: Tensor | slice) -> Bias:
    """Return a bias to which labels add some channels of their own."""
    return lambda label: bias if label_bias is None or label is None else bias + label_bias(label)[:, channels]


def constant(bias: Tensor | None) -> Bias:
    """Return a bias without labels."""
    assert bias is not None
    return lambda label: bias
