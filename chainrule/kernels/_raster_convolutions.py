"""Images one element at a time: what is kept of the elements seen, and masked convolutions as products with it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from chainrule.state import State

# Layers hand themselves over: a kernel imports none of them.
MaskedConv2d: TypeAlias = Any


class RasterMemory:
    """Features of L layers at the elements seen so far: of convolutions, or of a recurrence that carries them on."""

    def __init__(self, layers: int, sizes: Sequence[int], left: int):
        self.layers = layers
        self.groups = len(sizes)
        self.left = left
        self._in = list(sizes)

    def begin_row(self, like: Tensor) -> list[Tensor]:
        """Features to the left of a row: zeros, an entry (B, L, in) for each element. `like` has B rows."""
        return [like.new_zeros(len(like), self.layers, size) for size in self._in] * self.left

    def see(self, seen: list[Tensor], features: Sequence[Tensor], *, whole_row: bool = False) -> list[Tensor]:
        """Put the features of one more element to those seen, without those that no later element reads."""
        if not whole_row and not self.left and self.groups == 1:
            return seen
        seen = [*seen, torch.stack(list(features), 1) if self.layers > 1 else features[0].unsqueeze(1)]
        if whole_row:
            return seen
        group = self.count(seen) % self.groups
        return seen[len(seen) - self.left * self.groups - group :]

    def count(self, seen: list[Tensor]) -> int:
        """Return the number of elements kept since the row began."""
        return len(seen) - self.left * self.groups

    def row(self, seen: list[Tensor], width: int) -> Tensor:
        """Return the features of a row whose every element was seen: (B, L·in, 1, W)."""
        row = torch.cat(seen[self.left * self.groups :], 2)  # (B, L, W·in)
        return row.view(len(row), self.layers, width, -1).transpose(2, 3).flatten(1, 2).unsqueeze(2)


PIXELS = "pixels"  # the convolution that reads the image itself


class RasterBody(ABC):
    """L layers of one kind, their weights laid out for visiting an image element by element.

    Attributes:
        convolutions: by name, all that read or carry features of other elements.
        whole_rows: the names of those whose features the row below asks for.
    """

    convolutions: Mapping[str, RasterMemory]
    whole_rows: frozenset[str] = frozenset()

    @abstractmethod
    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, Mapping[str, Tensor]]:
        """Contributions of the rows above to a whole row: for each name (B, L, W, out). `above` may move on."""

    @abstractmethod
    def element(
        self, x: Tensor, group: int, column: int, from_above: Mapping[str, Tensor], seen: Mapping[str, list[Tensor]]
    ) -> tuple[Tensor, Mapping[str, Sequence[Tensor]]]:
        """Features of one element, (B, M of the group), after all layers, and by name, L tensors each."""

    @abstractmethod
    def end_row(self, above: State, row: Mapping[str, Tensor]) -> State:
        """`above` for the next row, but for the image, from a row's features by name, (B, L·in, 1, W) each."""


class RasterConvolutions(RasterMemory):
    r"""L masked convolutions of one shape, their weights laid out for visiting an image element by element.

    An element is one channel group of one pixel. Of what a convolution reads for it, almost everything is known before
    the network turns to it: the rows above, the pixels to the left, the earlier groups of the pixel itself. For all L
    layers these parts are one batched product, `known`; the rows above are a product for a whole row, `from_above`.
    Each layer then takes only a small product with the features of the element's own group, W_own:

    .. math:: y_l = \mathrm{known}_l + W^{\mathrm{own}}_l x_l

    No part of the sum is computed twice, so that an image costs the arithmetic of one pass over it.

    Attributes:
        own: of each group, the L matrices (in, out) of the element's own group; with type A they do not exist.
        order: (out,) the output channels sorted by group, as `from_above` and `known` give them: the two parts of a
            group of gates lie side by side.
    """

    def __init__(self, layers: Sequence[MaskedConv2d], scale: Tensor | None = None):
        first = layers[0]
        weight = torch.stack([layer.masked_weight() for layer in layers])  # (L, out, in, rows + 1, width)
        count, _, _, height, width = weight.shape
        out_groups, in_groups = first.groups_of_channels()
        super().__init__(count, in_groups.bincount().tolist(), left=width // 2)
        self.rows_above = height - 1
        self.order = out_groups.argsort(stable=True).to(weight.device)
        bias = torch.stack([_bias(layer) for layer in layers])
        if scale is not None:
            weight, bias = weight * scale.view(-1, 1, 1, 1), bias * scale
        weight = weight[:, self.order]
        self._above = weight[:, :, :, :-1].flatten(0, 1)  # (L·out, in, rows, width)
        self._bias = bias[:, self.order]
        present = weight[:, :, :, -1]  # (L, out, in, width)
        taps = present[..., : self.left].permute(0, 3, 2, 1).flatten(1, 2)  # (L, left·in, out)
        centre = present[..., self.left].transpose(1, 2)  # (L, in, out)
        self._outputs: list[slice] = []
        self._known: list[Tensor] = []  # weights of left pixels and earlier groups, (L, reads·in, out)
        self._biases: list[Tensor] = []  # (L, 1, out)
        self._unread: list[tuple[Tensor, ...]] = []  # the same, where nothing but the bias is known
        self.own: list[tuple[Tensor, ...]] = []
        start_in = start_out = 0
        for size_in, size_out in zip(self._in, out_groups.bincount().tolist(), strict=True):
            outputs = slice(start_out, start_out + size_out)
            earlier = centre[:, :start_in, outputs]
            self._outputs.append(outputs)
            self._known.append(torch.cat([taps[:, :, outputs], earlier], 1).contiguous())
            self._biases.append(self._bias[:, None, outputs].contiguous())
            self._unread.append(self._biases[-1].unbind(0))
            if first.mask_type == "B":
                self.own.append(centre[:, start_in : start_in + size_in, outputs].contiguous().unbind(0))
            start_in, start_out = start_in + size_in, start_out + size_out

    def from_above(self, rows: Tensor) -> Tensor:
        """The part of a row's outputs, (B, L, W, out), from the rows above it, (B, L·in, rows, W), and the bias."""
        sums = nn.functional.conv2d(rows, self._above, padding=(0, self.left), groups=self.layers)  # (B, L·out, 1, W)
        sums = sums.view(len(rows), self.layers, -1, rows.shape[-1]).transpose(2, 3)
        return sums + self._bias.unsqueeze(1)

    def known(
        self, group: int, seen: list[Tensor], from_above: Tensor | None = None, column: int = 0
    ) -> Sequence[Tensor]:
        """Sum what the L convolutions read before the element itself, L tensors (B, out of the group).

        `from_above` includes the biases. If the convolutions read nothing there, the result is the biases, (1, out).
        """
        reads = self.left * self.groups + group
        if not reads:
            return self._unread[group]
        base = self._biases[group]
        if from_above is not None:
            base = from_above[:, :, column, self._outputs[group]].transpose(0, 1)
        window = seen[-1] if reads == 1 else torch.cat(seen[-reads:], 2)
        return torch.baddbmm(base, window.transpose(0, 1), self._known[group]).unbind(0)


def _bias(layer: MaskedConv2d) -> Tensor:
    return layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias
