"""The PixelCNN, with its blind spot, and the gated PixelCNN, without one."""

from typing import Annotated, Any, cast, final

import torch
from torch import Tensor, nn

from chainrule.kernels._raster_bodies import RasterGatedStacks, RasterResidualBlocks
from chainrule.kernels._raster_convolutions import PIXELS, RasterBody, RasterConvolutions
from chainrule.kernels._raster_program import GATE, RELU, Features, Program, labelled, order_of
from chainrule.layers._masked_conv2d import GatedStacks, MaskedConv2d, MaskedResidualBlock, PixelLogits
from chainrule.models._raster_model import MaskedImageModel
from chainrule.ranges import Layers, Probability, Range, Size
from chainrule.state import State


@final
class PixelCNN(MaskedImageModel):
    r"""Images by masked convolutions (van den Oord et al. 2016, Pixel Recurrent Neural Networks).

    .. math:: h^{(0)} = W_A * x, \quad h^{(l)} = \mathrm{block}_l(h^{(l-1)}), \quad
        p(x_{kij} \mid \ldots) = \mathrm{softmax}(W_2\,\mathrm{relu}(W_1\,\mathrm{relu}(h^{(L)}_{ij})))_k

    The first convolution has type A, all others type B. No path through such a stack comes from far to the right in the
    rows just above. This is its blind spot, and `visible_past` declares exactly what a pixel sees. `GatedPixelCNN` has
    no blind spot. x is read as numbers from -1 to 1, zero outside the image.

    Args:
        image_shape: (C, H, W).
        levels: values that a channel of a pixel may have: 2 for binary images, 256 for 8 bits.
        channels: M features of a pixel, even; inside a block there are M/2. They are divided evenly,
            up to one, among the colour channels.
        layers: residual blocks.
        kernel_size: pixels per side of a block's convolution, odd.
        first_kernel_size: pixels per side of the convolution that reads the image, odd, at least 3.
        num_classes: number of labels on which an image can be conditioned, as context (B,); `None` for none.
        dropout: probability of zeroing in training, inside the blocks.

    >>> model = PixelCNN((1, 6, 5), levels=2, channels=8, layers=2)
    >>> x = model.sample(3, generator=torch.Generator().manual_seed(0))
    >>> x.shape, model.log_prob(x).shape
    (torch.Size([3, 1, 6, 5]), torch.Size([3]))
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        levels: int = 256,
        channels: Size = 64,
        layers: Layers = 5,
        kernel_size: Annotated[int, Range(1, 63)] = 7,
        first_kernel_size: Annotated[int, Range(1, 63)] = 7,
        *,
        num_classes: int | None = None,
        dropout: Probability = 0.0,
    ):
        super().__init__(image_shape, levels, num_classes)
        colours = self.image_shape[0]
        kernel_sizes = {"kernel_size": kernel_size, "first_kernel_size": first_kernel_size}
        self._checked_sizes(channels, layers, kernel_sizes, dropout, halved=True)
        self.first = MaskedConv2d(colours, channels, first_kernel_size, "A", colours)
        self.layers = nn.ModuleList(
            MaskedResidualBlock(channels, kernel_size, colours, num_classes=num_classes, dropout=dropout)
            for _ in range(layers)
        )
        self.head = PixelLogits(channels, colours, levels)

    @property
    def blocks(self) -> list[MaskedResidualBlock]:
        """The residual blocks, from the image on."""
        return cast(list[MaskedResidualBlock], list(self.layers))

    def narrow(self) -> "PixelCNN":
        first, middle = self.first.mask.shape[3], self.blocks[0].middle.mask.shape[3]
        return PixelCNN(self.image_shape, 2, 2 * self.image_shape[0], len(self.blocks), middle, first)

    def body(self) -> tuple[RasterConvolutions, RasterBody]:
        return RasterConvolutions([self.first]), RasterResidualBlocks(self.blocks)

    def program(self) -> Program:
        return _program(self)


@final
class GatedPixelCNN(MaskedImageModel):
    r"""Images by gated convolutions in two stacks (van den Oord et al. 2016, Conditional Image Generation).

    .. math:: (v^{(l)}, h^{(l)}) = \mathrm{stacks}_l(v^{(l-1)}, h^{(l-1)}), \quad
        p(x_{kij} \mid \ldots) = \mathrm{softmax}(W_2\,\mathrm{relu}(W_1\,\mathrm{relu}(h^{(L)}_{ij})))_k

    v^(0) is the image shifted down by a row, h^(0) the image itself, which the first layer reads through a mask of
    type A (see `GatedStacks`). The field that a pixel sees grows by half a kernel with every layer, to both sides and
    upwards; within that field it sees everything. x is read as numbers from -1 to 1, zero outside the image.

    Args:
        image_shape: (C, H, W).
        levels: values that a channel of a pixel may have: 2 for binary images, 256 for 8 bits.
        channels: M features of a pixel in each stack. They are divided evenly, up to one, among the colour channels.
        layers: layers after the first, which reads the image.
        kernel_size: pixels per side of the convolutions, odd.
        first_kernel_size: pixels per side of the first convolution, odd, at least 3.
        num_classes: number of labels on which an image can be conditioned, as context (B,); `None` for none.
        dropout: probability of zeroing a gated unit in training.

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
        channels: Size = 24,
        layers: Layers = 5,
        kernel_size: Annotated[int, Range(1, 63)] = 5,
        first_kernel_size: Annotated[int, Range(1, 63)] = 7,
        *,
        num_classes: int | None = None,
        dropout: Probability = 0.0,
    ):
        super().__init__(image_shape, levels, num_classes)
        colours = self.image_shape[0]
        kernel_sizes = {"kernel_size": kernel_size, "first_kernel_size": first_kernel_size}
        self._checked_sizes(channels, layers, kernel_sizes, dropout)
        options: dict[str, Any] = {"channel_groups": colours, "num_classes": num_classes, "dropout": dropout}
        self.first = GatedStacks(colours, channels, first_kernel_size, "A", **options)
        self.layers = nn.ModuleList(GatedStacks(channels, channels, kernel_size, "B", **options) for _ in range(layers))
        self.head = PixelLogits(channels, colours, levels)

    @property
    def stacks(self) -> list[GatedStacks]:
        """All layers, the one that reads the image first."""
        return [self.first, *cast(list[GatedStacks], list(self.layers))]

    def blank_rows(self, batch_size: int) -> State:
        """Zeros; of the image one row more than is read above, as the vertical stack has yet to read the last."""
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
            v, features = layer.down(v, label)
            v, h = layer.drop(v), layer.across(h, features)
        return self.head(h), {PIXELS: image[:, :, pixels.shape[2] :], "vertical": vertical}

    def narrow(self) -> "GatedPixelCNN":
        first, kernel, *_ = (layer.vertical.kernel_size[1] for layer in self.stacks)
        return GatedPixelCNN(self.image_shape, 2, 2 * self.image_shape[0], len(self.layers), kernel, first)

    def body(self) -> tuple[RasterConvolutions, RasterBody]:
        body = RasterGatedStacks(self.stacks)
        return body.first, body

    def program(self) -> Program:
        return _gated_program(self)


def _gated_program(model: GatedPixelCNN) -> Program:
    """Return the operations of a gated PixelCNN."""
    stacks, channels = model.stacks, model.first.residual.mask.shape[0]
    program = Program(model.image_shape, model.levels, model.first.residual.weight)
    side = max(layer.vertical.kernel_size[1] // 2 for layer in stacks)
    image = program.pixels = program.features(model.image_shape[0], model.first.rows_above + 2, side)
    v = h = image
    zero = program.reserve(2 * channels)
    for layer in stacks:
        label, bias = layer.label_bias, layer.vertical.bias
        order = order_of(layer.horizontal)
        assert bias is not None
        vertical = program.bias(2 * channels, labelled(bias, label, slice(2 * channels)))
        a, over = program.features(2 * channels), program.features(2 * channels)
        operations = program.row_operations
        program.add(
            operations, vertical, a, 2 * channels, weight=layer.vertical.weight, source=v,
            left=layer.vertical.kernel_size[1] // 2,
        )  # fmt: skip
        v = program.features(channels, stacks[-1].rows_above + 1, side)
        program.add(operations, a, v, 2 * channels, GATE)
        down = layer.vertical_to_horizontal
        assert down.bias is not None
        base = program.bias(2 * channels, labelled(down.bias[order], label, 2 * channels + order))
        program.add(operations, base, over, 2 * channels, weight=down.weight[order], source=a)
        gated, before = Features(program.reserve(channels), 0), h
        h = program.features(channels, side=side)
        program.masked(layer.horizontal, before, over, gated, GATE)
        program.masked(layer.residual, gated, Features(zero, 0) if layer is stacks[0] else before, h)
    program.logits(model.head, h)
    return program


def _program(model: PixelCNN) -> Program:
    """Return the operations of a PixelCNN."""
    program = Program(model.image_shape, model.levels, model.first.weight)
    side = max(layer.mask.shape[3] // 2 for layer in (model.first, *(block.middle for block in model.blocks)))
    image = program.pixels = program.features(model.image_shape[0], model.first.rows_above + 1, side)
    channels = len(model.first.weight)
    h = Features(program.reserve(channels), 0)
    program.masked(model.first, image, program.above(model.first, image), h)
    for block in model.blocks:
        read, half, before = program.rectified(block.narrowing, h), channels // 2, h
        inner = program.features(half, block.middle.rows_above + 1, side)
        program.masked(block.narrowing, read, program.bias_of(block.narrowing), inner, RELU)
        gathered, h = Features(program.reserve(half), 0), Features(program.reserve(channels), 0)
        over = program.above(block.middle, inner, block.label_bias)
        program.masked(block.middle, inner, over, gathered, RELU)
        program.masked(block.widening, gathered, before, h)
    program.logits(model.head, h)
    return program
