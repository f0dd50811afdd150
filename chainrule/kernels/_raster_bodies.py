"""The layers of the PixelCNN family and of the PixelRNN, prepared for single elements."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from chainrule.kernels._raster_convolutions import PIXELS, RasterBody, RasterConvolutions, RasterMemory
from chainrule.state import State

# Layers hand themselves over: a kernel imports none of them.
DiagonalLSTM: TypeAlias = Any
RowLSTM: TypeAlias = Any
GatedStacks: TypeAlias = Any
MaskedResidualBlock: TypeAlias = Any
PixelLogits: TypeAlias = Any
Cell: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class RasterLogits:
    """`PixelLogits` prepared for single elements."""

    def __init__(self, layer: PixelLogits):
        self._hidden = RasterConvolutions([layer.hidden])
        self._scores = RasterConvolutions([layer.output])
        self.convolutions = {"hidden": self._hidden, "scores": self._scores}

    def element(
        self, h: Tensor, group: int, seen: Mapping[str, list[Tensor]]
    ) -> tuple[Tensor, Mapping[str, Sequence[Tensor]]]:
        """Scores of an element (B, V) from its features h (B, M of the group), and what later elements read."""
        h = h.relu()
        (partial_sum,) = self._hidden.known(group, seen["hidden"])
        hidden = torch.addmm(partial_sum, h, self._hidden.own[group][0]).relu()
        (partial_sum,) = self._scores.known(group, seen["scores"])
        scores = torch.addmm(partial_sum, hidden, self._scores.own[group][0])
        return scores, {"hidden": [h], "scores": [hidden]}


class RasterResidualBlocks(RasterBody):
    """`MaskedResidualBlock` layers prepared for single elements."""

    whole_rows = frozenset({"middle"})

    def __init__(self, blocks: Sequence[MaskedResidualBlock]):
        self.narrowing = RasterConvolutions([block.narrowing for block in blocks])
        self.middle = RasterConvolutions([block.middle for block in blocks])
        self.widening = RasterConvolutions([block.widening for block in blocks])
        self.label_biases = [block.label_bias for block in blocks if block.label_bias is not None]
        self.convolutions = {
            "narrowing": self.narrowing,
            "middle": self.middle,
            "widening": self.widening,
        }

    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, Mapping[str, Tensor]]:
        middle = self.middle.from_above(torch.cat(above["layers"], 1))
        if label is not None:
            middle = middle + torch.stack([bias(label) for bias in self.label_biases], 1).unsqueeze(2)
        return above, {"middle": middle}

    def element(
        self, x: Tensor, group: int, column: int, from_above: Mapping[str, Tensor], seen: Mapping[str, list[Tensor]]
    ) -> tuple[Tensor, Mapping[str, Sequence[Tensor]]]:
        narrowing = self.narrowing.known(group, seen["narrowing"])
        middle = self.middle.known(group, seen["middle"], from_above["middle"], column)
        widening = self.widening.known(group, seen["widening"])
        read: list[Tensor] = []
        convolved: list[Tensor] = []
        gathered: list[Tensor] = []
        in_own, middle_own, out_own = (part.own[group] for part in (self.narrowing, self.middle, self.widening))
        for layer in range(self.middle.layers):
            read.append(x.relu())
            convolved.append(torch.addmm(narrowing[layer], read[-1], in_own[layer]).relu())
            gathered.append(torch.addmm(middle[layer], convolved[-1], middle_own[layer]).relu())
            base = x + widening[layer] if group else x  # without a bias, nothing is known before the first colour
            x = torch.addmm(base, gathered[-1], out_own[layer])
        return x, {"narrowing": read, "middle": convolved, "widening": gathered}

    def end_row(self, above: State, row: Mapping[str, Tensor]) -> State:
        rows = torch.cat([torch.cat(above["layers"], 1), row["middle"]], 2)[:, :, 1:]
        return {"layers": list(rows.chunk(self.middle.layers, 1))}


class RasterGatedStacks(RasterBody):
    """`GatedStacks` layers, type A first, prepared for single elements.

    As tanh(a) = 2σ(2a) - 1, a gate is one σ over both its halves and one product, if weights are scaled beforehand.

    The code computes -tanh(a_1) ⊙ σ(a_2) = σ(a_2) - 2σ(2a_1) ⊙ σ(a_2); the residual product turns the sign again.
    """

    def __init__(self, stacks: Sequence[GatedStacks]):
        self.stacks = stacks
        ones = stacks[0].residual.weight.new_ones(stacks[0].residual.weight.shape[0])
        self.scale = torch.cat([2 * ones, ones])
        self.first = RasterConvolutions([stacks[0].horizontal], self.scale)
        self.horizontal = RasterConvolutions([layer.horizontal for layer in stacks[1:]], self.scale)
        self.residual = RasterConvolutions([layer.residual for layer in stacks], -ones)
        self.convolutions = {"horizontal": self.horizontal, "residual": self.residual}

    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, Mapping[str, Tensor]]:
        v, vertical, all_found = above[PIXELS], [], []
        for layer, rows in zip(self.stacks, [None, *above["vertical"]], strict=True):
            if rows is not None:
                v = torch.cat([rows, v], 2)
                vertical.append(v[:, :, v.shape[2] - layer.rows_above :])
            v, features = layer.down(v, label)
            all_found.append(features)
        from_above = (torch.cat(all_found, 2).permute(0, 2, 3, 1) * self.scale)[..., self.first.order]  # (B, L, W, 2M)
        return (
            {PIXELS: above[PIXELS], "vertical": vertical},
            {PIXELS: from_above[:, :1], "horizontal": from_above[:, 1:]},
        )

    def element(
        self, x: Tensor, group: int, column: int, from_above: Mapping[str, Tensor], seen: Mapping[str, list[Tensor]]
    ) -> tuple[Tensor, Mapping[str, Sequence[Tensor]]]:
        horizontal = self.horizontal.known(group, seen["horizontal"], from_above["horizontal"], column)
        residual = self.residual.known(group, seen["residual"])
        gated = [_minus_gate(x)]
        own, first_out, *out = self.horizontal.own[group], *self.residual.own[group]
        h = torch.addmm(residual[0], gated[0], first_out)
        read: list[Tensor] = []
        for layer in range(self.horizontal.layers):
            read.append(h)
            gated.append(_minus_gate(torch.addmm(horizontal[layer], h, own[layer])))
            base = h + residual[layer + 1] if group else h  # without a bias, nothing is known before the first colour
            h = torch.addmm(base, gated[-1], out[layer])
        return h, {"horizontal": read, "residual": gated}

    def end_row(self, above: State, row: Mapping[str, Tensor]) -> State:
        return above


def _minus_gate(a: Tensor) -> Tensor:
    values, openings = a.sigmoid().chunk(2, 1)
    return torch.addcmul(openings, values, openings, value=-2)


class RasterRowLSTM(RasterBody):
    """`RowLSTM` layers prepared for single elements."""

    whole_rows = frozenset({"output", "cells"})

    def __init__(self, layers: Sequence[RowLSTM], cell: Cell):
        self._cell = cell
        self.input = RasterConvolutions([layer.input for layer in layers])
        self.output = RasterConvolutions([layer.output for layer in layers])
        order = self.input.order
        self._over = torch.cat([layer.over_rows()[order] for layer in layers])  # (L·4M/2, M/2, 1, width)
        self._biases = [(layer.input.bias, layer.label_bias) for layer in layers]
        _, groups = layers[0].output.groups_of_channels()
        sizes = groups.bincount().tolist()
        ends = groups.bincount().cumsum(0).tolist()
        self._units = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
        cells = RasterMemory(len(layers), sizes, left=0)
        self.convolutions = {"input": self.input, "output": self.output, "cells": cells}

    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, Mapping[str, Tensor]]:
        """Compute the state-to-state part of the gates of each pixel of a row, with biases, and the cells over it."""
        layers, side = self.input.layers, self._over.shape[3] // 2
        hidden, cells = (torch.cat(parts, 1) for parts in zip(*above["layers"], strict=True))
        gates = nn.functional.conv2d(hidden, self._over, padding=(0, side), groups=layers)
        gates = gates.reshape(len(gates), layers, -1, gates.shape[3]).transpose(2, 3)  # (B, L, W, 4M/2)
        biases = torch.stack([_layer_bias(*biases, label) for biases in self._biases], 1)  # (B or 1, L, 4M/2)
        cells = cells.reshape(len(cells), layers, -1, cells.shape[3]).transpose(2, 3)  # (B, L, W, M/2)
        return above, {"input": gates + biases[..., self.input.order].unsqueeze(2), "cells": cells}

    def element(
        self, x: Tensor, group: int, column: int, from_above: Mapping[str, Tensor], seen: Mapping[str, list[Tensor]]
    ) -> tuple[Tensor, Mapping[str, Sequence[Tensor]]]:
        """x (B, M of the group) after all layers, and the features of the element."""
        gates = self.input.known(group, seen["input"], from_above["input"], column)
        out = self.output.known(group, seen["output"])
        over = from_above["cells"][:, :, column, self._units[group]].unbind(1)
        read: list[Tensor] = []
        hidden: list[Tensor] = []
        cells: list[Tensor] = []
        own, own_out = self.input.own[group], self.output.own[group]
        for layer in range(self.input.layers):
            read.append(x)
            h, c = self._cell(torch.addmm(gates[layer], x, own[layer]), over[layer])
            hidden.append(h)
            cells.append(c)
            base = x + out[layer] if group else x  # without a bias, nothing is known before the first colour
            x = torch.addmm(base, h, own_out[layer])
        return x, {"input": read, "output": hidden, "cells": cells}

    def end_row(self, above: State, row: Mapping[str, Tensor]) -> State:
        """h and c of the row that is full."""
        parts = (row[name].chunk(self.input.layers, 1) for name in ("output", "cells"))
        return {"layers": list(zip(*parts, strict=True))}


class RasterDiagonalLSTM(RasterBody):
    """`DiagonalLSTM` layers prepared for single elements.

    The stream from the left goes along with the elements. That from the right passes over a row when the row is full,
    in all layers at once, by `lattice_lstm`; of them the first may read the image.
    """

    whole_rows = frozenset({"input", "left"})

    def __init__(self, layers: Sequence[DiagonalLSTM], cell: Cell, lattice_lstm: Callable[..., tuple[Tensor, Tensor]]):
        self._cell, self._lattice_lstm = cell, lattice_lstm
        self.input = RasterConvolutions([layer.input_left for layer in layers])
        self.output = RasterConvolutions([layer.output for layer in layers])
        self._layers = list(layers)
        order = self.input.order
        recurrent = torch.stack([layer.recurrent for layer in layers])  # (L, 2, 2, M/2, 4M/2)
        (self._up, sideways), right = recurrent[:, 0][..., order].unbind(1), recurrent[:, 1]
        self._right_up, self._right_side = right[:, 0], right[:, 1:]
        self._right_in = torch.stack([layer.input_right.weight[:, :, 0, 0].t() for layer in layers])  # (L, M, 4M/2)
        self._right_bias = torch.stack([_given(layer.input_right.bias) for layer in layers]).view(len(layers), 1, 1, -1)
        sizes = layers[0].output.groups_of_channels()[1].bincount()
        ends = sizes.cumsum(0)
        self._units = [slice(end - size, end) for size, end in zip(sizes.tolist(), ends.tolist(), strict=True)]
        self._gates = [slice(4 * units.start, 4 * units.stop) for units in self._units]
        self._sideways = [sideways[:, :, gates].contiguous() for gates in self._gates]
        # Later groups have their bias from the convolution, with what it reads of earlier groups.
        self._bias = torch.stack([_given(layer.input_left.bias) for layer in layers])[:, order]
        self._bias[:, self._gates[0].stop :] = 0
        memory = RasterMemory(len(layers), sizes.tolist(), left=1)
        self.convolutions = {"input": self.input, "output": self.output, "left": memory, "cells": memory}

    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, Mapping[str, Tensor]]:
        """Compute the part of the gates from the row above for each pixel of a row, and the stream from the right."""
        left, right = map(self._by_layer, zip(*above["layers"], strict=True))  # (L, W, B, M/2)
        gates = left.flatten(1, 2) @ self._up  # (L, W·B, 4M/2)
        gates = gates.view(*left.shape[:3], -1).permute(2, 0, 1, 3) + self._bias.unsqueeze(1)  # (B, L, W, 4M/2)
        if label is not None:
            gates = gates + self._label_bias(label, 0)[..., self.input.order].unsqueeze(2)
        return {**above, "label": label}, {"input": gates, "right": right.permute(2, 0, 1, 3)}

    def element(
        self, x: Tensor, group: int, column: int, from_above: Mapping[str, Tensor], seen: Mapping[str, list[Tensor]]
    ) -> tuple[Tensor, Mapping[str, Sequence[Tensor]]]:
        """x (B, M of the group) after all layers, and the features of the element."""
        groups = self.input.groups
        begin = len(seen["left"]) - groups - group  # of the pixel to the left
        pixel = (
            seen["left"][begin] if groups == 1 else torch.cat(seen["left"][begin : begin + groups], 2)
        )  # (B, L, M/2)
        above = from_above["input"][:, :, column, self._gates[group]].transpose(0, 1)
        gates: Sequence[Tensor] = torch.baddbmm(above, pixel.transpose(0, 1), self._sideways[group]).unbind(0)
        if group:
            gates = [a + b for a, b in zip(gates, self.input.known(group, seen["input"]), strict=True)]
        out = self.output.known(group, seen["output"])
        cells_before = seen["cells"][-groups].unbind(1)
        right = from_above["right"][:, :, column, self._units[group]].unbind(1)
        read: list[Tensor] = []
        left: list[Tensor] = []
        cells: list[Tensor] = []
        gathered: list[Tensor] = []
        own, own_out = self.input.own[group], self.output.own[group]
        for layer in range(self.input.layers):
            read.append(x)
            h, c = self._cell(torch.addmm(gates[layer], x, own[layer]), cells_before[layer])
            left.append(h)
            cells.append(c)
            gathered.append(h + right[layer])
            base = x + out[layer] if group else x  # without a bias, nothing is known before the first colour
            x = torch.addmm(base, gathered[-1], own_out[layer])
        return x, {"input": read, "output": gathered, "left": left, "cells": cells}

    def end_row(self, above: State, row: Mapping[str, Tensor]) -> State:
        """h of both streams in the row that is full; that from the right runs over it now."""
        above_right = [right for _, right in above["layers"]]
        read = self._by_layer(row["input"].chunk(self.input.layers, 1)).flip(1)  # (L, W, B, M)
        over = self._by_layer(above_right).flip(1)
        gates = read.flatten(1, 2) @ self._right_in + over.flatten(1, 2) @ self._right_up
        gates = gates.view(*read.shape[:3], -1) + self._right_bias  # (L, W, B, 4M/2)
        if (image_right := self._layers[0].image_right) is not None:
            gates[0] += image_right(row[PIXELS].flip(3)).squeeze(2).permute(2, 0, 1)
        if above["label"] is not None:
            gates = gates + self._label_bias(above["label"], 1).transpose(0, 1).unsqueeze(1)
        right, _ = self._lattice_lstm(gates.unsqueeze(2), self._right_side, (0,))  # (L, W, 1, B, M/2)
        rights = right.flip(1).permute(0, 3, 4, 2, 1)  # (L, B, M/2, 1, W)
        return {"layers": list(zip(row["left"].chunk(self.input.layers, 1), rights.unbind(0), strict=True))}

    def _by_layer(self, rows: Sequence[Tensor]) -> Tensor:
        """Rows (B, N, 1, W) of each layer -> (L, W, B, N)."""
        return torch.stack(list(rows)).squeeze(3).permute(0, 3, 1, 2)

    def _label_bias(self, label: Tensor, stream: int) -> Tensor:
        """Biases of labels in the gates of a stream, (B, L, 4M/2)."""
        biases = [layer.label_bias(label).chunk(2, 1)[stream] for layer in self._layers if layer.label_bias is not None]
        return torch.stack(biases, 1)


def _given(part: Tensor | None) -> Tensor:
    assert part is not None
    return part


def _layer_bias(bias: Tensor | None, label_bias: nn.Module | None, label: Tensor | None) -> Tensor:
    """b and what a label adds to it, (B, M); (1, M) where there are no labels."""
    assert bias is not None
    return bias.unsqueeze(0) if label_bias is None else bias + label_bias(label)
