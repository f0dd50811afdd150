"""PixelVAE: a code for the whole of an image, and a PixelCNN for its details."""

from typing import Annotated, Unpack, final

import torch
from torch import Tensor, nn

from chainrule._latent import LatentModel, OneLayerObjective
from chainrule._ranges import Layers, Probability, Range, Size
from chainrule.heads._diagonal_normal import DiagonalNormal
from chainrule.layers._image_code import ImageCodeEncoder, ImageNetwork
from chainrule.models._conditioned import Conditioned
from chainrule.models._image_model import ImageInput
from chainrule.models._pixel_decoder import PixelDecoder


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
        **objective: Unpack[OneLayerObjective],
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
