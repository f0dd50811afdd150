"""PixelCNN++: two streams through several resolutions, and one mixture of logistics for all colours of a pixel."""

from typing import Annotated, final

import torch
from torch import Tensor, nn

from chainrule._ranges import Layers, Probability, Range, Size, check_sizes
from chainrule.heads import DiscretizedLogisticMixture, PixelLogisticMixture
from chainrule.kernels._mixture_scan import MixtureScan
from chainrule.kernels._raster_scan import RasterScan
from chainrule.layers._gated_pyramid import GatedPyramid
from chainrule.layers._masked_conv2d import MaskedConv2d
from chainrule.models._labels import checked_labels
from chainrule.models._raster_model import RasterModel, raster_dependencies
from chainrule.state import State


@final
class PixelCNNPP(RasterModel):
    r"""Images by gated residual streams and coupled mixtures of logistics (Salimans et al. 2017, PixelCNN++).

    .. math:: v = \mathrm{pyramid}_v(W_v * \mathrm{rows\ above}), \quad
        h = \mathrm{pyramid}_h(W_h * x;\ v), \quad
        p(x_{1ij}, \ldots, x_{Cij} \mid \ldots) = \mathrm{mixture}(W\,\mathrm{elu}(h_{ij}))

    The vertical stream v knows the rows above a pixel, the horizontal stream h also the pixels to the left; h reads v
    at every block, so that there is no blind spot. Both go down to a half and a quarter of the rows and columns and
    back (see `GatedPyramid`). The colours of a pixel are drawn one after the other from one mixture,
    in which each is coupled to those before it (`chainrule.heads.PixelLogisticMixture`): the network is asked once for
    a pixel. x is read as numbers from -1 to 1, with another channel of ones that tells the image from its outside.

    The weights are drawn as usual; there is no initialisation from data, and no weight normalisation.

    Args:
        image_shape: (C, H, W).
        levels: values that a channel of a pixel may have.
        channels: M features of a pixel in each stream (160 in the paper).
        layers: L blocks on the way down at each resolution (5 in the paper).
        resolutions: number of resolutions, each half of the one before; 1 is the full one alone.
        components: K logistics in the mixture of a pixel (10 in the paper).
        num_classes: labels that an image may be conditioned on, as context (B,); `None` for none.
        dropout: probability of zeroing in training, inside the blocks (0.5 in the paper).

    >>> model = PixelCNNPP((3, 4, 4), levels=8, channels=8, layers=1, resolutions=2, components=3)
    >>> x = model.sample(2, generator=torch.Generator().manual_seed(0))
    >>> x.shape, model.eval().log_prob(x).shape
    (torch.Size([2, 3, 4, 4]), torch.Size([2]))
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        levels: int = 256,
        channels: Size = 32,
        layers: Layers = 2,
        resolutions: Annotated[int, Range(1, 8)] = 3,
        components: Annotated[int, Range(1, 1024)] = 5,
        *,
        num_classes: int | None = None,
        dropout: Probability = 0.0,
    ):
        super().__init__(image_shape, levels, num_classes)
        self._checked_sizes(channels, layers, {}, dropout)
        check_sizes(resolutions=resolutions, components=components)
        colours = self.image_shape[0]
        self.above = nn.Conv2d(colours + 1, channels, (2, 3), padding=(0, 1))
        self.first = MaskedConv2d(colours + 1, channels, 3, "A")
        self.vertical = GatedPyramid(channels, layers, resolutions, reads_right=True, num_classes=num_classes)
        self.horizontal = GatedPyramid(
            channels, layers, resolutions, reads_right=False, neighbour=True, num_classes=num_classes
        )
        self.dropout = dropout
        self.output = nn.Conv2d(channels, PixelLogisticMixture.num_parameters(colours, components), 1)
        self._reset_parameters(components)

    def _reset_parameters(self, components: int) -> None:
        """Initialise the same mixture at every pixel: evenly spaced components, each as wide as their spacing."""
        nn.init.normal_(self.above.weight, std=self.above.weight[0].numel() ** -0.5)
        nn.init.normal_(self.output.weight, std=0.1 * self.output.weight.shape[1] ** -0.5)
        assert self.above.bias is not None
        assert self.output.bias is not None
        nn.init.zeros_(self.above.bias)
        nn.init.zeros_(self.output.bias)
        colours = self.image_shape[0]
        with torch.no_grad():
            biases = self.output.bias.view(-1, components)
            biases[1 : 1 + colours] = (2 * torch.arange(components) + 1) / components - 1
            biases[1 + colours : 1 + 2 * colours] = -torch.tensor(components).log()

    def forward(
        self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None
    ) -> DiscretizedLogisticMixture:
        """Return all conditionals, batch shape (B, C, H, W); `lengths` has no effect: conditionals read the past."""
        return self._coloured(self._pixels(x, context), x)

    def conditionals(self, x: Tensor, above: State, label: Tensor | None) -> tuple[DiscretizedLogisticMixture, State]:
        outputs, above = self.rows(self._with_ones(x), above, label)
        return self._coloured(self._mixture(outputs.movedim(1, 3)), x), above

    def log_prob(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        """Exact log-likelihood of each row, (B,), nats; without lengths the colours of a pixel are scored together."""
        if lengths is not None:
            return super().log_prob(x, context, lengths)
        return self._pixels(x, context).log_prob(x.movedim(1, 3)).flatten(1).sum(1)

    def _pixels(self, x: Tensor, context: Tensor | None) -> PixelLogisticMixture:
        """Return the joint distribution of each pixel, batch shape (B, H, W)."""
        self.images.checked(x)
        label, dropout = checked_labels(context, len(x), self.num_classes), self.dropout if self.training else 0.0
        outputs, _ = self.rows(self._with_ones(x), self.blank_rows(len(x)), label, dropout=dropout)
        return self._mixture(outputs.movedim(1, 3))

    def _coloured(self, pixels: PixelLogisticMixture, x: Tensor) -> DiscretizedLogisticMixture:
        """Return the conditional of each colour, batch shape (B, C, n, W), of pixels (B, n, W)."""
        each = pixels.conditionals(x.movedim(1, 3))
        return each.with_parameters(*(part.movedim(3, 1) for part in each.parameters))

    def _mixture(self, outputs: Tensor) -> PixelLogisticMixture:
        return PixelLogisticMixture.from_parameters(outputs, self.image_shape[0], self.levels)

    def _with_ones(self, x: Tensor) -> Tensor:
        """Integers (B, C, ...) as the network reads them, (B, C + 1, ...)."""
        scaled = self._scaled(x, self.output.weight)
        return torch.cat([scaled, torch.ones_like(scaled[:, :1])], 1)

    def blank_rows(self, batch_size: int) -> State:
        """`above` at the top of the image: two rows of it, and what both streams keep."""
        colours, _, width = self.image_shape
        blank = self.output.weight.new_zeros(batch_size, self.output.in_channels, 1, width)
        return {
            "pixels": blank.new_zeros(batch_size, colours + 1, 2, width),
            "vertical": self.vertical.blank_rows(blank),
            "horizontal": self.horizontal.blank_rows(blank),
        }

    def rows(self, pixels: Tensor, above: State, label: Tensor | None, *, dropout: float = 0.0) -> tuple[Tensor, State]:
        """Read a block of whole rows in one pass.

        Args:
            pixels: (B, C + 1, n, W), numbers from -1 to 1, and ones.
            above: state of the rows above.
            label: (B,) integers.
            dropout: in the blocks, for training; nothing that is drawn from has any.

        Returns:
            The parameters of the mixtures (B, P, n, W), and `above` for the rows that follow.
        """
        image = torch.cat([above["pixels"], pixels], 2)
        v = self.above(image[:, :, :-1])
        _, features, vertical = self.vertical.rows(v, above["vertical"], label, dropout=dropout)
        h = self.first.below(image[:, :, 1:])
        h, _, horizontal = self.horizontal.rows(h, above["horizontal"], label, features, dropout=dropout)
        after = {"pixels": image[:, :, pixels.shape[2] :], "vertical": vertical, "horizontal": horizontal}
        return self._outputs(h), after

    def _outputs(self, h: Tensor) -> Tensor:
        with torch.autocast(h.device.type, enabled=False):  # a mean in bfloat16 may be off by half a level of 256
            outputs: Tensor = self.output(nn.functional.elu(h.to(self.output.weight.dtype)))
            return outputs

    def visible_past(self, length: int) -> Tensor:
        """Mark the earlier elements that can influence each conditional through both streams, (T, T) booleans."""
        colours, height, width = self.image_shape
        with torch.device("cpu"), torch.random.fork_rng(devices=()):
            narrow = PixelCNNPP((1, height, width), 2, 2, len(self.vertical.down), self.vertical.resolutions, 1)

        def read(pixels: Tensor) -> Tensor:
            image = torch.cat([pixels, torch.zeros_like(pixels)], 1)  # without the channel of ones
            return narrow.rows(image, narrow.blank_rows(len(pixels)), None)[0][:, :1]

        period = 2 ** (self.vertical.resolutions - 1)
        pixels = raster_dependencies(narrow, read, (1, height, width), period)
        elements = pixels.repeat_interleave(colours, 0).repeat_interleave(colours, 1)
        own = torch.block_diag(*[torch.ones(colours, colours, device="cpu").tril(-1)] * (height * width)) > 0
        return (elements | own)[:length, :length]

    def prepared_scan(self) -> RasterScan:
        return MixtureScan(self)
