"""PixelVAE: a code for the whole of an image, and a PixelCNN for its details."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Unpack, cast, final

import torch
from torch import Tensor, nn

from chainrule._checks import for_rows
from chainrule._latent import LatentModel, LatentObjective
from chainrule.heads import Categorical
from chainrule.heads._diagonal_normal import DiagonalNormal
from chainrule.kernels._raster_bodies import RasterResidualBlocks
from chainrule.kernels._raster_convolutions import PIXELS, RasterBody, RasterConvolutions
from chainrule.layers._image_encoder import ImageCodeDecoder, ImageCodeEncoder, ImageNetwork
from chainrule.layers._masked_conv2d import MaskedConv2d, MaskedResidualBlock, PixelLogits
from chainrule.models._conditioned import Conditioned
from chainrule.models._image_model import ImageInput
from chainrule.models._pixel_cnn import PixelCNN
from chainrule.models._raster_model import MaskedImageModel
from chainrule.ranges import Layers, Probability, Range, Size
from chainrule.state import State

WRITTEN = "written"  # rows of the features made from the vector, from the present row of the image on


@final
class PixelDecoder(MaskedImageModel):
    r"""p(x | c) of images given a vector c, by a `PixelCNN` (Gulrajani et al. 2017).

    .. math:: h^{(0)} = W_A * x + g(c), \qquad h^{(l)} = \mathrm{block}_l(h^{(l-1)}), \qquad
        p(x_{kij} \mid x_<, c) = \mathrm{softmax}(\mathrm{scores}(h^{(L)}_{ij}))_k

    g writes M features for every pixel. The blocks see few pixels, so information about distant pixels must come from
    c.
    """

    def __init__(
        self,
        context_size: int,
        image_shape: tuple[int, int, int],
        levels: int,
        channels: int,
        layers: int,
        kernel_size: int,
        first_kernel_size: int,
        *,
        dropout: float,
        network: ImageNetwork,
        hidden_size: int,
        num_layers: int,
        decoder_channels: int,
    ):
        super().__init__(image_shape, levels, None)
        colours = self.image_shape[0]
        kernel_sizes = {"kernel_size": kernel_size, "first_kernel_size": first_kernel_size}
        self._checked_sizes(channels, layers, kernel_sizes, dropout, halved=True)
        self.context_size = context_size
        self.writer = ImageCodeDecoder(
            context_size, image_shape, channels, network, hidden_size, num_layers, decoder_channels
        )
        self.first = MaskedConv2d(colours, channels, first_kernel_size, "A", colours)
        self.layers = nn.ModuleList(
            MaskedResidualBlock(channels, kernel_size, colours, dropout=dropout) for _ in range(layers)
        )
        self.head = PixelLogits(channels, colours, levels)

    @property
    def blocks(self) -> list[MaskedResidualBlock]:
        """The residual blocks, from the image on."""
        return cast(list[MaskedResidualBlock], list(self.layers))

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Categorical:
        self.images.checked(x)
        return self.conditionals(x, self._above(len(x), context), None)[0]

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        return {"label": None, "above": self._above(batch_size, context), "row": None, "unread": None}

    @property
    def scanned(self) -> list[nn.Module]:
        """All but the writer, which is called."""
        return [self.first, self.layers, self.head]

    def _above(self, batch_size: int, context: Tensor | None) -> State:
        if context is None or context.dim() != 2 or context.shape[1] != self.context_size:
            got = None if context is None else tuple(context.shape)
            raise ValueError(f"context: expected vectors ({batch_size}, {self.context_size}), got {got}")
        vectors = for_rows(context, batch_size).to(self.first.weight.dtype)
        return {**self.blank_rows(batch_size), WRITTEN: self.writer(vectors)}

    def blank_rows(self, batch_size: int) -> State:
        """Zeros, the features of c among them."""
        _, height, width = self.image_shape
        written = self.first.weight.new_zeros(batch_size, len(self.first.weight), height, width)
        return {**super().blank_rows(batch_size), WRITTEN: written}

    def read_image(self, image: Tensor, above: State) -> Tensor:
        features = super().read_image(image, above)
        return features + above[WRITTEN][:, :, : features.shape[2]]

    def rows(self, pixels: Tensor, above: State, label: Tensor | None) -> tuple[Tensor, State]:
        scores, after = super().rows(pixels, above, label)
        return scores, {**after, WRITTEN: above[WRITTEN][:, :, pixels.shape[2] :]}

    def narrow(self) -> PixelCNN:
        first, middle = self.first.mask.shape[3], self.blocks[0].middle.mask.shape[3]
        return PixelCNN(self.image_shape, 2, 2 * self.image_shape[0], len(self.blocks), middle, first)

    def body(self) -> tuple[RasterConvolutions, RasterBody]:
        first = RasterConvolutions([self.first])
        return first, _WrittenBlocks(first, self.blocks)


class _WrittenBlocks(RasterBody):
    """The blocks, below a first convolution whose output the features of c are added to."""

    def __init__(self, first: RasterConvolutions, blocks: Sequence[MaskedResidualBlock]):
        self.first, self.inner = first, RasterResidualBlocks(blocks)
        self.convolutions, self.whole_rows = self.inner.convolutions, self.inner.whole_rows

    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, Mapping[str, Tensor]]:
        _, from_above = self.inner.begin_row(above, label)
        written = above[WRITTEN][:, :, 0].transpose(1, 2)[..., self.first.order]  # (B, W, M)
        return above, {**from_above, PIXELS: self.first.from_above(above[PIXELS]) + written.unsqueeze(1)}

    def element(
        self, x: Tensor, group: int, column: int, from_above: Mapping[str, Tensor], seen: Mapping[str, list[Tensor]]
    ) -> tuple[Tensor, Mapping[str, Sequence[Tensor]]]:
        return self.inner.element(x, group, column, from_above, seen)

    def end_row(self, above: State, row: Mapping[str, Tensor]) -> State:
        return {**self.inner.end_row(above, row), WRITTEN: above[WRITTEN][:, :, 1:]}


@final
class PixelVAE(LatentModel):
    r"""A normal code and an autoregressive decoder that sees few pixels itself (Gulrajani et al. 2017).

    .. math:: p(z) = N(0, I), \qquad p(x \mid z) = \prod_i p(x_i \mid x_{<i}, z), \qquad
        q(z \mid x) = N(\mu(x), \mathrm{diag}\,\sigma^2(x))

    A decoder that sees everything can do without the code, and then the posterior collapses onto the prior: the more
    layers and the larger the kernels, the less is left for z. `free_bits` and `kl_warmup` keep the code in use.

    Args:
        image_shape: (C, H, W).
        levels: V; pixels are integers in [0, V).
        latent_size: L, numbers of a code.
        network: of the encoder, and from the code to features of pixels: dense or convolutional gated layers.
        hidden_size: units of a dense layer.
        num_layers: gated layers of the encoder, and from the code to features of pixels.
        channels: of the first convolution of the encoder; each further one doubles the number.
        decoder_channels: M features of a pixel in the PixelCNN, even.
        decoder_layers: its residual blocks.
        kernel_size: pixels per side of a block's convolution, odd.
        first_kernel_size: the same of the convolution that reads the image, at least 3.
        dropout: probability of zeroing in training, inside the blocks.
        objective: of training; see `LatentModel`.

    >>> model = PixelVAE((1, 5, 4), levels=2, latent_size=3, hidden_size=8, channels=4, decoder_channels=4)
    >>> x = model.sample(2, torch.Generator().manual_seed(0))
    >>> x.shape, model.elbo(x).shape
    (torch.Size([2, 1, 5, 4]), torch.Size([2]))
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        levels: int = 256,
        latent_size: Size = 32,
        *,
        network: ImageNetwork = "convolutional",
        hidden_size: Size = 256,
        num_layers: Annotated[int, Range(1, 16)] = 3,
        channels: Size = 32,
        decoder_channels: Size = 64,
        decoder_layers: Layers = 2,
        kernel_size: Annotated[int, Range(1, 63)] = 5,
        first_kernel_size: Annotated[int, Range(1, 63)] = 5,
        dropout: Probability = 0.0,
        **objective: Unpack[LatentObjective],
    ):
        super().__init__(latent_size, **objective)
        self.images = ImageInput(image_shape, levels)
        self.image_shape = self.images.image_shape
        self.encoder = ImageCodeEncoder(image_shape, network, hidden_size, num_layers, channels)
        self.posterior = nn.Linear(hidden_size, 2 * latent_size)
        self.decoder = PixelDecoder(
            latent_size,
            image_shape,
            levels,
            decoder_channels,
            decoder_layers,
            kernel_size,
            first_kernel_size,
            dropout=dropout,
            network=network,
            hidden_size=hidden_size,
            num_layers=num_layers,
            decoder_channels=channels,
        )

    def encode(self, x: Tensor, *, lengths: Tensor | None = None) -> DiagonalNormal:
        scaled = self.images.scaled(x, self.posterior.weight)
        return DiagonalNormal(*self.posterior(self.encoder(scaled)).chunk(2, 1))

    def decode(self, z: Tensor) -> Conditioned:
        return Conditioned(self.decoder, z, self.image_shape)

    def from_codes(self, z: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return a draw from the decoder for each code, (B, C, H, W)."""
        return self.decode(z).sample(generator=generator)
