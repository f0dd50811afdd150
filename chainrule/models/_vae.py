"""Images as codes: an autoencoder, and a variational autoencoder."""

from typing import Annotated, Literal, Unpack, final

import torch
from torch import Tensor, nn

from chainrule._base import Context
from chainrule._latent import CodeModel, LatentModel, LatentObjective, Weight
from chainrule._ranges import check_shares, check_sizes
from chainrule.heads._diagonal_normal import DiagonalNormal
from chainrule.heads._joint import IndependentPixels, PixelKind
from chainrule.layers._image_encoder import ImageCodeDecoder, ImageCodeEncoder, ImageNetwork
from chainrule.models._image_model import ImageInput
from chainrule.option_error import OptionError
from chainrule.ranges import Probability, Range, Size


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
        components: components of the mixture.
        hidden_size: units of a dense layer.
        num_layers: gated layers, each way; a convolutional network halves the sides in all but one of them.
        channels: channels of the first convolution; each further convolution doubles them.
        objective: objective of training; see `LatentModel`.

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
        **objective: Unpack[LatentObjective],
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
        raise OptionError("head", f"bernoulli needs levels=2, got {levels}", "take categorical or mixture")
    return head


@final
class Autoencoder(CodeModel):
    r"""A code of L numbers from which an image is reconstructed (Hinton and Salakhutdinov 2006).

    .. math:: z = f(\tilde x), \qquad \hat x = g(z), \qquad
        \text{maximised: } -\tfrac{1}{2} \lVert \hat x - x \rVert^2 - \lambda \lVert z \rVert_1

    with x scaled to [0, 1] and the sum taken over all pixels: up to a constant, the log-likelihood in nats of normal
    noise with variance 1. It is not a density of images. :math:`\tilde x` is x, or in training x with a share of its
    pixels set to 0 (a denoising autoencoder, Vincent et al. 2008). Codes may be longer than the image (over-complete)
    if noise or the sparsity λ keeps them from copying. With linear f and g the optimum spans the first L principal
    components (Baldi and Hornik 1989).

    Args:
        image_shape: (C, H, W).
        latent_size: L, numbers of a code.
        levels: V; pixels are integers in [0, V).
        network: dense or convolutional layers of gated units, or one matrix each way.
        hidden_size: units of a dense layer.
        num_layers: gated layers, each way; a convolutional network halves the sides in all but one of them.
        channels: channels of the first convolution; each further convolution doubles them.
        noise: share of the pixels that are set to 0 before they are read, in training.
        sparsity: λ, weight of the sum of absolute codes, in training.

    >>> model = Autoencoder((1, 6, 5), latent_size=3, hidden_size=8)
    >>> x = torch.zeros(2, 1, 6, 5, dtype=torch.long)
    >>> model.codes(x).shape, model.from_codes(model.codes(x)).shape
    (torch.Size([2, 3]), torch.Size([2, 1, 6, 5]))
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        latent_size: Size = 32,
        levels: int = 256,
        *,
        network: Literal["dense", "convolutional", "linear"] = "dense",
        hidden_size: Size = 300,
        num_layers: Annotated[int, Range(1, 16)] = 2,
        channels: Size = 32,
        noise: Probability = 0.0,
        sparsity: Weight = 0.0,
    ):
        super().__init__()
        check_sizes(latent_size=latent_size, hidden_size=hidden_size, num_layers=num_layers)
        check_shares(noise=noise)
        if sparsity < 0:
            raise OptionError("sparsity", f"expected a number >= 0, got {sparsity}")
        self.images = ImageInput(image_shape, levels)
        self.image_shape = self.images.image_shape
        self.latent_size, self.noise, self.sparsity = latent_size, noise, sparsity
        if network == "linear":
            pixels = torch.Size(image_shape).numel()
            self.encoder: nn.Module = nn.Sequential(nn.Flatten(), nn.Linear(pixels, latent_size))
            self.decoder: nn.Module = nn.Sequential(nn.Linear(latent_size, pixels), nn.Unflatten(1, image_shape))
        else:
            reader = ImageCodeEncoder(image_shape, network, hidden_size, num_layers, channels)
            self.encoder = nn.Sequential(reader, nn.Linear(hidden_size, latent_size))
            self.decoder = ImageCodeDecoder(
                latent_size, image_shape, image_shape[0], network, hidden_size, num_layers, channels
            )

    def codes(self, x: Tensor, *, lengths: Tensor | None = None) -> Tensor:
        return self._codes(self._scaled(x))

    def from_codes(self, z: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        rebuilt: Tensor = self.decoder(z.to(next(self.parameters()).dtype))
        return rebuilt.clamp(0, 1) * (self.images.levels - 1)

    def squared_error(self, x: Tensor) -> Tensor:
        """‖x̂ − x‖² of each image, (B,), pixels in [0, 1]."""
        scaled = self._scaled(x)
        return self._squared_error(self._codes(scaled), scaled)

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        scaled = self._scaled(x)
        codes = self._codes(scaled * (torch.rand_like(scaled) >= self.noise) if self.noise else scaled)
        return -0.5 * self._squared_error(codes, scaled) - self.sparsity * codes.abs().sum(1)

    def held_out_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """−½ `squared_error`, (B,)."""
        return -0.5 * self.squared_error(x)

    def _codes(self, scaled: Tensor) -> Tensor:
        codes: Tensor = self.encoder(scaled)
        return codes

    def _squared_error(self, codes: Tensor, scaled: Tensor) -> Tensor:
        return ((self.decoder(codes) - scaled) ** 2).flatten(1).sum(1)

    def _scaled(self, x: Tensor) -> Tensor:
        return self.images.scaled(x, next(self.parameters()))
