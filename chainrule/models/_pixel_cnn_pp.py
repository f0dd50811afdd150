"""PixelCNN++: two streams through several resolutions, and one mixture of logistics for all colours of a pixel."""

from typing import Annotated, final

import torch
from torch import Tensor

from chainrule._ranges import Layers, Probability, Range, Size, check_sizes
from chainrule.kernels._mixture_scan import MixtureScan, pixel_cnn_pp
from chainrule.kernels._raster_bodies import Conditional, RasterScan
from chainrule.kernels._raster_program import Program
from chainrule.layers._gated_pyramid import GatedStreams, PixelMixtures
from chainrule.models._conditioned import checked_labels
from chainrule.models._raster_model import RasterModel, pixel_dependencies
from chainrule.state import State


@final
class PixelCNNPP(RasterModel):
    r"""Images by gated residual streams and coupled mixtures of logistics (Salimans et al. 2017, PixelCNN++).

    .. math:: v = \mathrm{pyramid}_v(W_v * \mathrm{rows\ above}), \quad h = \mathrm{pyramid}_h(W_h * x;\ v), \quad
        p(x_{1ij}, \ldots, x_{Cij} \mid \ldots) = \mathrm{mixture}(W\,\mathrm{elu}(h_{ij}))

    The stream v sees the rows above a pixel, h also the pixels to the left; h reads v at every block, so there is no
    blind spot. Both go down to half and a quarter of the resolution and back up (see `GatedPyramid`). The colours of a
    pixel are drawn one after the other from one mixture, in which each is coupled to the earlier ones
    (`chainrule.heads.PixelLogisticMixture`), so the network runs once per pixel. x is read as numbers from -1 to 1,
    with ones that mark the inside of the image. There is no weight normalisation and no data-dependent initialisation.

    Args:
        image_shape: (C, H, W).
        levels: values that a channel of a pixel may have.
        channels: M features of a pixel in each stream (160 in the paper).
        layers: L blocks on the way down at each resolution (5 in the paper).
        resolutions: number of resolutions, each half the previous one; 1 is full resolution only.
        components: K logistics in the mixture of a pixel (10 in the paper).
        num_classes: number of labels on which an image can be conditioned, as context (B,); `None` for none.
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
        self.dropout, colours = dropout, self.image_shape[0]
        self.streams = GatedStreams(colours + 1, channels, layers, resolutions, num_classes)
        self.output = PixelMixtures(channels, colours, components, levels)
        self.streams.reset_parameters()
        self.output.spread()

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Conditional:
        return self.output.coloured(self._outputs(x, context), x)

    def log_prob(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        """Exact log-likelihood of each row, (B,), nats; without lengths the colours of a pixel are scored together."""
        if lengths is not None:
            return super().log_prob(x, context, lengths)
        return self.output.mixture(self._outputs(x, context).movedim(1, 3)).log_prob(x.movedim(1, 3)).flatten(1).sum(1)

    def _outputs(self, x: Tensor, context: Tensor | None) -> Tensor:
        label = checked_labels(context, len(self.images.checked(x)), self.num_classes)
        h, _ = self.streams(self._with_ones(x), self.blank_rows(len(x)), label, dropout=self.dropout * self.training)
        return self.output(h)

    def conditionals(self, x: Tensor, above: State, label: Tensor | None) -> tuple[Conditional, State]:
        h, above = self.streams(self._with_ones(x), above, label)
        return self.output.coloured(self.output(h), x), above

    def _with_ones(self, x: Tensor) -> Tensor:
        scaled = self._scaled(x, self.output.weight)
        return torch.cat([scaled, torch.ones_like(scaled[:, :1])], 1)

    def blank_rows(self, batch_size: int) -> State:
        return self.streams.blank_rows(batch_size, self.image_shape[2])

    def visible_past(self, length: int) -> Tensor:
        return pixel_dependencies(self.streams, self.image_shape)[:length, :length]

    def prepared_scan(self) -> RasterScan:
        return MixtureScan(self)

    def program(self) -> Program:
        return pixel_cnn_pp(self)
