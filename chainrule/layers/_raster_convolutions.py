"""Masked convolutions applied one element at a time: one product sums all earlier elements."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from chainrule.layers._masked_conv2d import MaskedConv2d
from chainrule.layers._raster_layer import RasterMemory


class RasterConvolutions(RasterMemory):
    r"""L masked convolutions of one shape, their weights laid out for visiting an image element by element.

    An element is one channel group of one pixel. Of what a convolution reads for it, almost everything is known before
    the network turns to it: the rows above, the pixels to the left, the earlier groups of the pixel itself. For all L
    layers these parts are one batched product, `known`; the rows above are a product for a whole row, `from_above`.
    What is left to be done layer after layer is a small product with the features of the element's own group, W_own:

    .. math:: y_l = \mathrm{known}_l + W^{\mathrm{own}}_l x_l

    No part of the sum is computed twice, so that an image costs the arithmetic of one pass over it.

    Args:
        layers: L convolutions of equal shape, mask type and groups.
        scale: (out,) what each output, bias included, is multiplied by; 1 by default.

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
        """The part of a whole row's outputs that comes from the rows above it, and the bias.

        Args:
            rows: (B, L·in, rows above, W).

        Returns:
            (B, L, W, out).
        """
        found = nn.functional.conv2d(rows, self._above, padding=(0, self.left), groups=self.layers)  # (B, L·out, 1, W)
        found = found.view(len(rows), self.layers, -1, rows.shape[-1]).transpose(2, 3)
        return found + self._bias.unsqueeze(1)

    def known(
        self, group: int, seen: list[Tensor], from_above: Tensor | None = None, column: int = 0
    ) -> Sequence[Tensor]:
        """Sum what the L convolutions read before the element itself, L tensors (B, out of the group).

        Args:
            group: of the element.
            seen: from `begin_row` and `see`.
            from_above: (B, L, W, out), biases included; without it the biases alone.
            column: of the element.

        Returns:
            The sums; biases (1, out) alone where there is nothing to be read.
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
