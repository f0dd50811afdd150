"""The PixelCNN, with its blind spot."""

from typing import Annotated, cast, final

from torch import nn

from chainrule._ranges import Layers, Probability, Range, Size
from chainrule.kernels._raster_bodies import RasterResidualBlocks
from chainrule.kernels._raster_convolutions import RasterBody, RasterConvolutions
from chainrule.kernels._raster_program import Program, pixel_cnn
from chainrule.layers._masked_conv2d import MaskedConv2d, MaskedResidualBlock, PixelLogits
from chainrule.models._raster_model import MaskedImageModel


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

    >>> import torch
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
        return pixel_cnn(self)
