"""The models of images, and their options."""

from dataclasses import dataclass
from typing import Annotated, Literal

from chainrule.ranges import Layers, Probability, Range, Size
from chainrule_app.tasks.config import CheckedOptions, Model
from chainrule_app.tasks.options import Components

Kernel = Annotated[int, Range(1, 63)]
"""Pixels to a side of a convolution."""
Weight = Annotated[float, Range(0.0, 1e4)]
"""A weight of a term in the training objective."""


@dataclass(frozen=True)
class GatedPixelCNNOptions(CheckedOptions):
    channels: Size = 24
    """Features of a pixel in each stack, divided evenly, up to one, among the colour channels."""
    layers: Layers = 5
    """Layers after the first, which reads the image."""
    kernel_size: Kernel = 5
    """Pixels per side of the convolutions, odd."""
    first_kernel_size: Kernel = 7
    """Pixels per side of the convolution that reads the image, odd, at least 3."""
    dropout: Probability = 0.0
    """Probability of zeroing a gated unit in training."""


@dataclass(frozen=True)
class PixelCNNOptions(CheckedOptions):
    channels: Size = 64
    """Features of a pixel, even; inside a block there are half as many. They are divided evenly, up to one, among the
    colour channels."""
    layers: Layers = 5
    """Residual blocks."""
    kernel_size: Kernel = 7
    """Pixels per side of a block's convolution, odd."""
    first_kernel_size: Kernel = 7
    """Pixels per side of the convolution that reads the image, odd, at least 3."""
    dropout: Probability = 0.0
    """Probability of zeroing in training, inside the blocks."""


@dataclass(frozen=True)
class PixelCNNPPOptions(CheckedOptions):
    channels: Size = 32
    """Features of a pixel in each stream (160 in the paper)."""
    layers: Layers = 2
    """Blocks on the way down at each resolution (5 in the paper)."""
    resolutions: Annotated[int, Range(1, 8)] = 3
    """Number of resolutions, each half the previous one; 1 is full resolution only."""
    components: Components = 5
    """Logistics in the mixture of a pixel (10 in the paper)."""
    dropout: Probability = 0.0
    """Probability of zeroing in training, inside the blocks (0.5 in the paper)."""


@dataclass(frozen=True)
class PixelRNNOptions(CheckedOptions):
    channels: Size = 32
    """Features of a pixel, an even number; the state and the cell of a layer have half each. They are divided evenly,
    up to one, among the colour channels."""
    layers: Layers = 3
    """Recurrent layers."""
    first_kernel_size: Kernel = 7
    """Pixels per side of the convolution that reads the image, odd, at least 3."""
    dropout: Probability = 0.0
    """Probability of zeroing, in training, what a layer adds."""


@dataclass(frozen=True)
class ImageTransformerOptions(CheckedOptions):
    model_size: Size = 128
    """Features between the blocks, a multiple of --num-heads."""
    num_layers: Layers = 4
    """Blocks."""
    num_heads: Layers = 2
    """Query heads."""
    num_kv_heads: Layers | None = None
    """Key and value heads, a divisor of --num-heads; by default as many."""
    radius: Size = 3
    """Rows above and columns to either side that a place reads directly."""
    window: Size | None = None
    """Elements that each block reads; by default three rows of the image, or 64 if they are fewer."""
    feed_forward_size: Size | None = None
    """Units of the feed-forward networks; by default 4 times the model size."""
    activation: Literal["gelu", "relu", "swiglu"] = "gelu"
    """Function of the feed-forward networks."""
    dropout: Probability = 0.0
    """Probability of zeroing in training, of the input's features and of what each branch adds."""


@dataclass(frozen=True)
class CodeOptions(CheckedOptions):
    """Options of models with a code."""

    latent_size: Size = 32
    """Numbers of a code."""
    network: Literal["dense", "convolutional"] = "dense"
    """Dense or convolutional layers of gated units."""
    hidden_size: Size = 300
    """Units of a dense layer."""
    num_layers: Annotated[int, Range(1, 16)] = 2
    """Gated layers, each way; a convolutional network halves the sides in all but one of them."""
    channels: Size = 32
    """Channels of the first convolution; each further convolution doubles them."""


@dataclass(frozen=True)
class AutoencoderOptions(CodeOptions):
    network: Literal["dense", "convolutional", "linear"] = "dense"  # type: ignore[assignment]  # one more
    """Dense or convolutional layers of gated units, or one matrix each way."""
    noise: Probability = 0.0
    """Share of the pixels that are set to 0 before they are read, in training."""
    sparsity: Weight = 0.0
    """Weight of the sum of absolute codes, in training."""


@dataclass(frozen=True)
class VariationalOptions(CodeOptions):
    importance_samples: Size = 1
    """Draws per row in training; more than 1 trains the importance-weighted bound."""
    beta: Weight = 1.0
    """Weight of the KL divergence in training."""
    free_bits: Weight = 0.0
    """Nats per dimension that training does not penalise."""
    kl_warmup: Annotated[float, Range(0.0, 1.0)] = 0.0
    """Fraction of the run in which the weight of the KL divergence grows from 0."""
    doubly_reparameterised: bool = False
    """Train the encoder with the gradient of Tucker et al. (2019)."""


@dataclass(frozen=True)
class VAEOptions(VariationalOptions):
    latent_size: Size = 40
    head: Literal["bernoulli", "categorical", "mixture"] | None = None
    """Distribution of a pixel: two values, a score for each value, or a mixture of logistics that couples the channels;
    by default the first for 2 levels, the last for more."""
    components: Components = 5
    """Components of the mixture."""


@dataclass(frozen=True)
class PixelVAEOptions(VariationalOptions):
    network: Literal["dense", "convolutional"] = "convolutional"
    hidden_size: Size = 256
    num_layers: Annotated[int, Range(1, 16)] = 3
    decoder_channels: Size = 64
    """Features of a pixel in the PixelCNN, even."""
    decoder_layers: Layers = 2
    """Residual blocks of the PixelCNN."""
    kernel_size: Kernel = 5
    """Pixels per side of a block's convolution, odd."""
    first_kernel_size: Kernel = 5
    """Pixels per side of the convolution that reads the image, odd, at least 3."""
    dropout: Probability = 0.0
    """Probability of zeroing in training, inside the blocks."""


MODELS: dict[str, Model] = {
    "gated-pixelcnn": Model("GatedPixelCNN", GatedPixelCNNOptions),
    "pixelcnn": Model("PixelCNN", PixelCNNOptions),
    "pixelcnn++": Model("PixelCNNPP", PixelCNNPPOptions),
    "row-lstm": Model("PixelRNN", PixelRNNOptions, fixed={"kind": "row"}),
    "diagonal-bilstm": Model("PixelRNN", PixelRNNOptions, fixed={"kind": "diagonal"}),
    "image-transformer": Model("ImageTransformer", ImageTransformerOptions),
    "vae": Model("VAE", VAEOptions),
    "pixel-vae": Model("PixelVAE", PixelVAEOptions),
    "autoencoder": Model("Autoencoder", AutoencoderOptions),
}
