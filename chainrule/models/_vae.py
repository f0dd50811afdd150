"""Variational autoencoder of images."""

from typing import Annotated, Unpack, final

import torch
from torch import Tensor, nn

from chainrule._latent import LatentModel, OneLayerObjective
from chainrule._ranges import Range, Size, check_sizes
from chainrule.heads._diagonal_normal import DiagonalNormal
from chainrule.heads._pixels import IndependentPixels, PixelKind
from chainrule.layers._image_code import ImageCodeDecoder, ImageCodeEncoder, ImageNetwork
from chainrule.models._image_model import ImageInput


@final
class VAE(LatentModel):
    r"""A normal code, and pixels that are independent given it (Kingma and Welling 2014; Rezende et al. 2014).

    .. math:: p(z) = N(0, I), \qquad p(x \mid z) = \prod_{ij} p(x_{ij} \mid g(z)), \qquad
        q(z \mid x) = N(\mu(x), \mathrm{diag}\,\sigma^2(x))

    Its bounds are as in `LatentModel`.

    Args:
        image_shape: (C, H, W).
        levels: V; pixels are integers in [0, V).
        latent_size: L, numbers of a code.
        network: dense or convolutional layers of gated units.
        head: distribution of a pixel: two values, a score for each of V values, or a mixture of logistics that couples
            the channels; by default the first for 2 levels, the last for more.
        components: of the mixture.
        hidden_size: units of a dense layer.
        num_layers: gated layers, each way; a convolutional network halves the sides in all but one of them.
        channels: of the first convolution; each further one doubles the number.
        objective: of training; see `LatentModel`.

    >>> model = VAE((1, 6, 5), levels=2, latent_size=3, hidden_size=8)
    >>> x = model.sample(4, torch.Generator().manual_seed(0))
    >>> x.shape, model.elbo(x).shape, model.importance_bound(x, samples=10).shape
    (torch.Size([4, 1, 6, 5]), torch.Size([4]), torch.Size([4]))
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        levels: int = 256,
        latent_size: Size = 40,
        *,
        network: ImageNetwork = "dense",
        head: PixelKind | None = None,
        components: Annotated[int, Range(1, 1 << 10)] = 5,
        hidden_size: Size = 300,
        num_layers: Annotated[int, Range(1, 16)] = 2,
        channels: Size = 32,
        **objective: Unpack[OneLayerObjective],
    ):
        super().__init__(latent_size, **objective)
        self.images = ImageInput(image_shape, levels)
        self.image_shape = self.images.image_shape
        self.head = pixel_kind(head, levels)
        check_sizes(hidden_size=hidden_size, num_layers=num_layers, channels=channels, components=components)
        outputs = IndependentPixels.num_parameters(self.head, image_shape[0], levels, components)
        self.encoder = ImageCodeEncoder(image_shape, network, hidden_size, num_layers, channels)
        self.posterior = nn.Linear(hidden_size, 2 * latent_size)
        self.decoder = ImageCodeDecoder(latent_size, image_shape, outputs, network, hidden_size, num_layers, channels)

    def encode(self, x: Tensor, *, lengths: Tensor | None = None) -> DiagonalNormal:
        scaled = self.images.scaled(x, self.posterior.weight)
        return DiagonalNormal(*self.posterior(self.encoder(scaled)).chunk(2, 1))

    def decode(self, z: Tensor) -> IndependentPixels:
        parameters = self.decoder(z.to(self.posterior.weight.dtype))
        return IndependentPixels.from_parameters(self.head, parameters, self.image_shape[0], self.images.levels)

    def from_codes(self, z: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        return self.decode(z).mean


def pixel_kind(head: PixelKind | None, levels: int) -> PixelKind:
    """Return the distribution of a pixel, chosen by the number of levels where none is given."""
    if head is None:
        return "bernoulli" if levels == 2 else "mixture"
    if head == "bernoulli" and levels != 2:
        raise ValueError(f"head: bernoulli needs levels=2, got {levels}: take categorical or mixture")
    return head
