"""PixelRNN: images by recurrences from row to row or along diagonals."""

from typing import Annotated, Literal, cast, final

from torch import nn

from chainrule.kernels._raster_bodies import RasterDiagonalLSTM, RasterRowLSTM
from chainrule.kernels._raster_convolutions import RasterBody, RasterConvolutions
from chainrule.layers._lattice_lstm import DiagonalLSTM, RowLSTM, lattice_cell, lattice_lstm
from chainrule.layers._masked_conv2d import MaskedConv2d, PixelLogits
from chainrule.models._raster_model import MaskedImageModel
from chainrule.ranges import Layers, Probability, Range, Size


@final
class PixelRNN(MaskedImageModel):
    r"""Images by recurrent layers (van den Oord et al. 2016, Pixel Recurrent Neural Networks).

    .. math:: h^{(0)} = W_A * x, \quad h^{(l)} = \mathrm{LSTM}_l(h^{(l-1)}), \quad
        p(x_{kij} \mid \ldots) = \mathrm{softmax}(W_2\,\mathrm{relu}(W_1\,\mathrm{relu}(h^{(L)}_{ij})))_k

    The first convolution is masked, of type A; what is recurrent is residual. Layers of kind "row" (see
    `chainrule.layers.RowLSTM`) read a triangle over each pixel, however high, and leave the pixels around it unseen:
    `visible_past` says which. Layers of kind "diagonal" (see `chainrule.layers.DiagonalLSTM`) read everything that is
    past, from the first layer on, in about twice the steps. So that this holds for the last pixel of the row above
    too, the first layer's stream from the right reads the image and the features, which the paper's does not. x is
    read as numbers from -1 to 1, zero outside the image.

    Args:
        image_shape: (C, H, W).
        levels: values that a channel of a pixel may have: 2 for binary images, 256 for 8 bits.
        kind: "row" for the Row LSTM, "diagonal" for the Diagonal BiLSTM.
        channels: M features of a pixel, an even number; h and c of a layer have M/2 each. They are divided evenly,
            up to one, among the colour channels.
        layers: recurrent layers.
        first_kernel_size: kernel size of the first convolution, which reads the image; odd, at least 3.
        num_classes: labels that an image may be conditioned on, as context (B,); `None` for none.
        dropout: probability of zeroing, in training, what a layer adds.

    >>> import torch
    >>> model = PixelRNN((1, 6, 5), levels=2, kind="diagonal", channels=8, layers=2)
    >>> x = model.sample(3, generator=torch.Generator().manual_seed(0))
    >>> x.shape, model.log_prob(x).shape
    (torch.Size([3, 1, 6, 5]), torch.Size([3]))
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        levels: int = 256,
        kind: Literal["row", "diagonal"] = "row",
        channels: Size = 32,
        layers: Layers = 3,
        first_kernel_size: Annotated[int, Range(1, 63)] = 7,
        *,
        num_classes: int | None = None,
        dropout: Probability = 0.0,
    ):
        super().__init__(image_shape, levels, num_classes)
        colours = self.image_shape[0]
        self._checked_sizes(channels, layers, {"first_kernel_size": first_kernel_size}, dropout, halved=True)
        if kind not in ("row", "diagonal"):
            raise ValueError(f"kind: expected 'row' (Row LSTM) or 'diagonal' (Diagonal BiLSTM), got {kind!r}")
        self.kind = kind
        self.first = MaskedConv2d(colours, channels, first_kernel_size, "A", colours)
        self.layers = nn.ModuleList(
            RowLSTM(channels, channel_groups=colours, num_classes=num_classes, dropout=dropout)
            if kind == "row"
            else DiagonalLSTM(
                channels,
                colours,
                image_channels=None if layer else colours,
                num_classes=num_classes,
                dropout=dropout,
            )
            for layer in range(layers)
        )
        self.head = PixelLogits(channels, colours, levels)

    @property
    def recurrences(self) -> list[RowLSTM | DiagonalLSTM]:
        """The recurrent layers, from the image on."""
        return cast(list[RowLSTM | DiagonalLSTM], list(self.layers))

    def narrow(self) -> "PixelRNN":
        first = self.first.mask.shape[3]
        return PixelRNN(self.image_shape, 2, self.kind, 2 * self.image_shape[0], len(self.layers), first)

    def body(self) -> tuple[RasterConvolutions, RasterBody]:
        layers = self.recurrences
        body: RasterBody = (
            RasterRowLSTM(cast(list[RowLSTM], layers), lattice_cell)
            if self.kind == "row"
            else RasterDiagonalLSTM(cast(list[DiagonalLSTM], layers), lattice_cell, lattice_lstm)
        )
        return RasterConvolutions([self.first]), body
