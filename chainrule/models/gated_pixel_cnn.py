"""Gated PixelCNN: vertical and horizontal stacks of gated convolutions, without a blind spot."""

from collections.abc import Mapping, Sequence
from typing import cast, final

import torch
from torch import Tensor, nn

from chainrule.layers.gated_stacks import GatedStacks
from chainrule.layers.pixel_scores import PixelScores, RasterScores
from chainrule.layers.raster_convolutions import RasterConvolutions
from chainrule.models.raster_model import PIXELS, RasterModel, RasterNetwork
from chainrule.state import State


@final
class GatedPixelCNN(RasterModel):
    r"""Images by gated convolutions in two stacks (van den Oord et al. 2016, Conditional Image Generation).

    .. math:: (v^{(l)}, h^{(l)}) = \mathrm{stacks}_l(v^{(l-1)}, h^{(l-1)}), \quad
        p(x_{kij} \mid \ldots) = \mathrm{softmax}(W_2\,\mathrm{relu}(W_1\,\mathrm{relu}(h^{(L)}_{ij})))_k

    v^(0) is the image shifted down by a row, h^(0) the image itself, which the first layer reads through a mask of
    type A (see `chainrule.layers.GatedStacks`). What a pixel sees grows by half a kernel with every layer, to both
    sides and up; within that distance it sees everything. x is read as numbers from -1 to 1, zero outside the image.

    Args:
        image_shape: (C, H, W).
        levels: values that a channel of a pixel may have: 2 for binary images, 256 for 8 bits.
        channels: M features of a pixel in each stack. They are divided evenly, up to one, among the colour channels.
        layers: after the first, which reads the image.
        kernel_size: of these layers, odd.
        first_kernel_size: of the first layer, odd, at least 3.
        num_classes: labels that an image may be conditioned on, as context (B,); `None` for none.
        dropout: probability of zeroing a gated unit in training.

    Raises:
        ValueError: a size is out of range.

    >>> model = GatedPixelCNN((3, 4, 4), levels=4, channels=12, layers=2, num_classes=10)
    >>> labels = torch.tensor([7, 7])
    >>> x = model.sample(2, labels, generator=torch.Generator().manual_seed(0))
    >>> x.shape, model.log_prob(x, labels).shape
    (torch.Size([2, 3, 4, 4]), torch.Size([2]))
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        levels: int = 256,
        channels: int = 64,
        layers: int = 10,
        kernel_size: int = 3,
        first_kernel_size: int = 7,
        *,
        num_classes: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__(image_shape, levels, num_classes)
        colours = self.image_shape[0]
        kernel_sizes = {"kernel_size": kernel_size, "first_kernel_size": first_kernel_size}
        self._checked_sizes(channels, layers, kernel_sizes, dropout)
        self.first = GatedStacks(
            colours, channels, first_kernel_size, "A", colours, num_classes=num_classes, dropout=dropout
        )
        self.layers = nn.ModuleList(
            GatedStacks(channels, channels, kernel_size, "B", colours, num_classes=num_classes, dropout=dropout)
            for _ in range(layers)
        )
        self.head = PixelScores(channels, colours, levels)

    @property
    def stacks(self) -> list[GatedStacks]:
        """All layers, the one that reads the image first."""
        return [self.first, *cast(list[GatedStacks], list(self.layers))]

    def blank_rows(self, batch_size: int) -> State:
        """Of the image, one row more than is read above: the vertical stack has yet to meet the last."""
        zeros = self.first.residual.weight.new_zeros
        colours, _, width = self.image_shape
        vertical = [zeros(batch_size, layer.vertical.in_channels, layer.rows_above, width) for layer in self.stacks[1:]]
        return {PIXELS: zeros(batch_size, colours, self.first.rows_above + 1, width), "vertical": vertical}

    def rows(self, pixels: Tensor, above: State, label: Tensor | None) -> tuple[Tensor, State]:
        image = torch.cat([above[PIXELS], pixels], 2)
        v, h = image[:, :, :-1], pixels
        vertical: list[Tensor] = []
        for layer, rows in zip(self.stacks, [None, *above["vertical"]], strict=True):
            if rows is not None:
                v = torch.cat([rows, v], 2)
                vertical.append(v[:, :, v.shape[2] - layer.rows_above :])
            v, found = layer.down(v, label)
            v, h = layer.drop(v), layer.across(h, found)
        return self.head(h), {PIXELS: image[:, :, pixels.shape[2] :], "vertical": vertical}

    def narrow(self) -> "GatedPixelCNN":
        first, kernel, *_ = (layer.vertical.kernel_size[1] for layer in self.stacks)
        return GatedPixelCNN(self.image_shape, 2, 2 * self.image_shape[0], len(self.layers), kernel, first)

    def network(self) -> RasterNetwork:
        return _GatedNetwork(self)


class _GatedNetwork(RasterNetwork):
    """As tanh(a) = 2σ(2a) - 1, a gate is one σ over both its halves and one product, if weights are scaled beforehand.

    What is computed is -tanh(a_1) ⊙ σ(a_2) = σ(a_2) - 2σ(2a_1) ⊙ σ(a_2); the residual product turns the sign again.
    """

    def __init__(self, model: GatedPixelCNN):
        self.stacks = model.stacks
        ones = model.first.residual.weight.new_ones(model.first.residual.weight.shape[0])
        self.scale = torch.cat([2 * ones, ones])
        self.first = RasterConvolutions([self.stacks[0].horizontal], self.scale)
        self.horizontal = RasterConvolutions([layer.horizontal for layer in self.stacks[1:]], self.scale)
        self.residual = RasterConvolutions([layer.residual for layer in self.stacks], -ones)
        self.head = RasterScores(model.head)
        self.convolutions = {
            PIXELS: self.first,
            "horizontal": self.horizontal,
            "residual": self.residual,
            **self.head.convolutions,
        }

    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, Mapping[str, Tensor]]:
        v, vertical, all_found = above[PIXELS], [], []
        for layer, rows in zip(self.stacks, [None, *above["vertical"]], strict=True):
            if rows is not None:
                v = torch.cat([rows, v], 2)
                vertical.append(v[:, :, v.shape[2] - layer.rows_above :])
            v, found = layer.down(v, label)
            all_found.append(found)
        from_above = (torch.cat(all_found, 2).permute(0, 2, 3, 1) * self.scale)[..., self.first.order]  # (B, L, W, 2M)
        return (
            {PIXELS: above[PIXELS], "vertical": vertical},
            {PIXELS: from_above[:, :1], "horizontal": from_above[:, 1:]},
        )

    def element(
        self, group: int, column: int, from_above: Mapping[str, Tensor], seen: Mapping[str, list[Tensor]]
    ) -> tuple[Tensor, Mapping[str, Sequence[Tensor]]]:
        (first,) = self.first.known(group, seen[PIXELS], from_above[PIXELS], column)
        horizontal = self.horizontal.known(group, seen["horizontal"], from_above["horizontal"], column)
        residual = self.residual.known(group, seen["residual"])
        gated = [_minus_gate(first)]
        own, first_out, *out = self.horizontal.own[group], *self.residual.own[group]
        h = torch.addmm(residual[0], gated[0], first_out)
        read: list[Tensor] = []
        for layer in range(self.horizontal.layers):
            read.append(h)
            gated.append(_minus_gate(torch.addmm(horizontal[layer], h, own[layer])))
            known = h + residual[layer + 1] if group else h  # without a bias, nothing is known before the first colour
            h = torch.addmm(known, gated[-1], out[layer])
        scores, features = self.head.element(h, group, seen)
        return scores, {"horizontal": read, "residual": gated, **features}

    def end_row(self, above: State, row: Mapping[str, Tensor]) -> State:
        return {**above, PIXELS: torch.cat([above[PIXELS], row[PIXELS]], 2)[:, :, 1:]}


def _minus_gate(a: Tensor) -> Tensor:
    values, openings = a.sigmoid().chunk(2, 1)
    return torch.addcmul(openings, values, openings, value=-2)
