"""PixelCNN: a plain stack of masked convolutions, with its blind spot."""

from collections.abc import Mapping, Sequence
from typing import cast, final

import torch
from torch import Tensor, nn

from chainrule.layers.masked_conv2d import MaskedConv2d
from chainrule.layers.masked_residual_block import MaskedResidualBlock
from chainrule.layers.pixel_scores import PixelScores, RasterScores
from chainrule.layers.raster_convolutions import RasterConvolutions
from chainrule.models.raster_model import PIXELS, RasterModel, RasterNetwork
from chainrule.state import State


@final
class PixelCNN(RasterModel):
    r"""Images by masked convolutions (van den Oord et al. 2016, Pixel Recurrent Neural Networks).

    .. math:: h^{(0)} = W_A * x, \quad h^{(l)} = \mathrm{block}_l(h^{(l-1)}), \quad
        p(x_{kij} \mid \ldots) = \mathrm{softmax}(W_2\,\mathrm{relu}(W_1\,\mathrm{relu}(h^{(L)}_{ij})))_k

    The first convolution is of type A, all others of type B. No path through such a stack comes from far to the right
    in the rows just above: that is its blind spot, and `visible_past` says exactly what is seen. `GatedPixelCNN` has
    none. x is read as numbers from -1 to 1, zero outside the image.

    Args:
        image_shape: (C, H, W).
        levels: values that a channel of a pixel may have: 2 for binary images, 256 for 8 bits.
        channels: M features of a pixel, an even number; inside a block there are half as many. They are divided evenly,
            up to one, among the colour channels.
        layers: residual blocks.
        kernel_size: of the blocks, odd.
        first_kernel_size: of the convolution that reads the image, odd, at least 3.
        num_classes: labels that an image may be conditioned on, as context (B,); `None` for none.
        dropout: probability of zeroing in training, inside the blocks.

    Raises:
        ValueError: a size is out of range.

    >>> model = PixelCNN((1, 6, 5), levels=2, channels=8, layers=2)
    >>> x = model.sample(3, generator=torch.Generator().manual_seed(0))
    >>> x.shape, model.log_prob(x).shape
    (torch.Size([3, 1, 6, 5]), torch.Size([3]))
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        levels: int = 256,
        channels: int = 64,
        layers: int = 12,
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
        if channels % 2:
            raise ValueError(f"channels: expected an even number, half of which stand inside a block, got {channels}")
        self.first = MaskedConv2d(colours, channels, first_kernel_size, "A", colours)
        self.layers = nn.ModuleList(
            MaskedResidualBlock(channels, kernel_size, colours, num_classes=num_classes, dropout=dropout)
            for _ in range(layers)
        )
        self.head = PixelScores(channels, colours, levels)

    @property
    def blocks(self) -> list[MaskedResidualBlock]:
        """The residual blocks, from the image on."""
        return cast(list[MaskedResidualBlock], list(self.layers))

    def blank_rows(self, batch_size: int) -> State:
        width, middle = self.image_shape[2], self.blocks[0].middle
        zeros = self.first.weight.new_zeros
        return {
            PIXELS: zeros(batch_size, self.image_shape[0], self.first.rows_above, width),
            "middle": zeros(batch_size, len(self.layers) * middle.weight.shape[1], middle.rows_above, width),
        }

    def rows(self, pixels: Tensor, above: State, label: Tensor | None) -> tuple[Tensor, State]:
        image = torch.cat([above[PIXELS], pixels], 2)
        h = self.first.below(image)
        middle = []
        for block, rows in zip(self.blocks, above["middle"].chunk(len(self.layers), 1), strict=True):
            h, rows = block.below(h, rows, label)
            middle.append(rows)
        return self.head(h), {
            PIXELS: image[:, :, image.shape[2] - self.first.rows_above :],
            "middle": torch.cat(middle, 1),
        }

    def narrow(self) -> "PixelCNN":
        first, middle = self.first.mask.shape[3], self.blocks[0].middle.mask.shape[3]
        return PixelCNN(self.image_shape, 2, 2 * self.image_shape[0], len(self.blocks), middle, first)

    def network(self) -> RasterNetwork:
        return _PixelCNNNetwork(self)


class _PixelCNNNetwork(RasterNetwork):
    whole_rows = frozenset({PIXELS, "middle"})

    def __init__(self, model: PixelCNN):
        blocks = model.blocks
        self.first = RasterConvolutions([model.first])
        self.narrowing = RasterConvolutions([block.narrowing for block in blocks])
        self.middle = RasterConvolutions([block.middle for block in blocks])
        self.widening = RasterConvolutions([block.widening for block in blocks])
        self.head = RasterScores(model.head)
        self.label_biases = [block.label_bias for block in blocks if block.label_bias is not None]
        self.convolutions = {
            PIXELS: self.first,
            "narrowing": self.narrowing,
            "middle": self.middle,
            "widening": self.widening,
            **self.head.convolutions,
        }

    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, Mapping[str, Tensor]]:
        middle = self.middle.from_above(above["middle"])
        if label is not None:
            middle = middle + torch.stack([bias(label) for bias in self.label_biases], 1).unsqueeze(2)
        return above, {PIXELS: self.first.from_above(above[PIXELS]), "middle": middle}

    def element(
        self, group: int, column: int, from_above: Mapping[str, Tensor], seen: Mapping[str, list[Tensor]]
    ) -> tuple[Tensor, Mapping[str, Sequence[Tensor]]]:
        (h,) = self.first.known(group, seen[PIXELS], from_above[PIXELS], column)
        narrowing = self.narrowing.known(group, seen["narrowing"])
        middle = self.middle.known(group, seen["middle"], from_above["middle"], column)
        widening = self.widening.known(group, seen["widening"])
        read: list[Tensor] = []
        convolved: list[Tensor] = []
        gathered: list[Tensor] = []
        in_own, middle_own, out_own = (part.own[group] for part in (self.narrowing, self.middle, self.widening))
        for layer in range(self.middle.layers):
            read.append(h.relu())
            convolved.append(torch.addmm(narrowing[layer], read[-1], in_own[layer]).relu())
            gathered.append(torch.addmm(middle[layer], convolved[-1], middle_own[layer]).relu())
            known = h + widening[layer] if group else h  # without a bias, nothing is known before the first colour
            h = torch.addmm(known, gathered[-1], out_own[layer])
        scores, features = self.head.element(h, group, seen)
        return scores, {"narrowing": read, "middle": convolved, "widening": gathered, **features}

    def end_row(self, above: State, row: Mapping[str, Tensor]) -> State:
        return {name: torch.cat([rows, row[name]], 2)[:, :, 1:] for name, rows in above.items()}
