"""PixelCNN++: two streams through several resolutions, and one mixture of logistics for all colours of a pixel."""

from typing import Annotated, final

import torch
from torch import Tensor, nn

from chainrule._ranges import check_sizes
from chainrule.heads import DiscretizedLogisticMixture
from chainrule.heads._head import largest_exponent
from chainrule.heads._logistic_mixtures import bin_centres
from chainrule.kernels._mixture_scan import Pyramid, PyramidScan
from chainrule.kernels._raster_convolutions import RasterConvolutions
from chainrule.kernels._raster_program import Features, Program, constant
from chainrule.layers._gated_pyramid import GatedStreams, PixelMixtures
from chainrule.layers._pointwise import concatenated_elu
from chainrule.models._conditioned import checked_labels
from chainrule.models._raster_model import Conditional, RasterModel, RasterScan, pixel_dependencies
from chainrule.ranges import Layers, Probability, Range, Size
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
        return _MixtureScan(self)

    def program(self) -> Program:
        return _program(self, largest_exponent(self.output.weight.dtype))


class _MixtureScan(RasterScan):
    """A row holds the contributions from above, the pixels seen, the horizontal stream, and the pixel being drawn."""

    def __init__(self, model: PixelCNNPP):
        self.model = model
        self.first = RasterConvolutions([model.streams.first])
        self.horizontal = PyramidScan(model.streams.horizontal, concatenated_elu)
        self.head = model.output.weight.flatten(1).t()
        device = self.head.device
        self.pairs = {
            colours: tuple(rows.to(device) for rows in _pairs_of_first(colours))
            for colours in range(2, model.image_shape[0] + 1)
        }

    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, State]:
        pixels = above["pixels"]
        streams = self.model.streams
        _, features, vertical = streams.vertical.rows(streams.above(pixels), above["vertical"], label)
        row = {
            "from_above": self.first.from_above(pixels[:, :, 1:]),
            "seen": self.first.begin_row(pixels),
            "horizontal": self.horizontal.begin_row(above["horizontal"], features, label),
            "pixel": None,
        }
        return {**above, "vertical": vertical}, row

    def predict(self, row: State) -> tuple[DiscretizedLogisticMixture, State]:
        if row["pixel"] is None:
            row = self._begin_pixel(row)
        return self._next_colour(row["pixel"]), row

    def read(self, x_prev: Tensor, row: State) -> tuple[State, bool]:
        pixel = row["pixel"]
        earlier = torch.cat([pixel["earlier"], x_prev.unsqueeze(1)], 1)
        if earlier.shape[1] < self.model.image_shape[0]:
            return {**row, "pixel": {**self._given(x_prev, pixel), "earlier": earlier}}, False
        seen = self.first.see(row["seen"], [self.model._with_ones(earlier)], whole_row=True)
        return {**row, "seen": seen, "pixel": None}, self.first.count(seen) == self.model.image_shape[2]

    def end_row(self, above: State, row: State) -> State:
        pixels = torch.cat([above["pixels"], self.first.row(row["seen"], self.model.image_shape[2])], 2)[:, :, 1:]
        return {
            **above,
            "pixels": pixels,
            "horizontal": self.horizontal.end_row(above["horizontal"], row["horizontal"]),
        }

    def _begin_pixel(self, row: State) -> State:
        """Return the row with the mixture of the next pixel."""
        column = self.first.count(row["seen"])
        (h,) = self.first.known(0, row["seen"], row["from_above"], column)
        h, horizontal = self.horizontal.pixel(column, h, row["horizontal"])
        assert self.model.output.bias is not None
        with torch.autocast(h.device.type, enabled=False):  # as in a pass, see `_outputs`
            outputs = torch.addmm(self.model.output.bias, nn.functional.elu(h.to(self.head.dtype)), self.head)
        mixture = self.model.output.mixture(outputs)
        pixel = {
            "earlier": torch.empty(len(h), 0, dtype=torch.long, device=h.device),
            "logits": mixture.logits,
            "means": mixture.means,
            "log_scales": mixture.log_scales,
            "coefficients": mixture.coefficients,
        }
        return {**row, "horizontal": horizontal, "pixel": pixel}

    def _next_colour(self, pixel: State) -> DiscretizedLogisticMixture:
        """Return the first of the colours that are still to be drawn."""
        means, log_scales = pixel["means"][:, 0], pixel["log_scales"][:, 0]
        return DiscretizedLogisticMixture(pixel["logits"], means, log_scales, self.model.levels)

    def _given(self, value: Tensor, pixel: State) -> State:
        """Return the mixture of the colours that are left: posterior weights, means moved by the value of the first."""
        logits = pixel["logits"] + self._next_colour(pixel).component_log_prob(value)
        first, others = self.pairs[pixel["means"].shape[1]]
        coupled = pixel["coefficients"].index_select(1, first)
        centre = bin_centres(value.to(coupled.dtype), self.model.levels).view(-1, 1, 1)
        return {
            "logits": logits,
            "means": torch.addcmul(pixel["means"][:, 1:], coupled, centre),
            "log_scales": pixel["log_scales"][:, 1:],
            "coefficients": pixel["coefficients"].index_select(1, others),
        }


def _pairs_of_first(colours: int) -> tuple[Tensor, Tensor]:
    """Split the coefficients of the pairs (2,1), (3,1), (3,2), … by whether they couple a colour to the first."""
    pairs = [(later, earlier) for later in range(colours) for earlier in range(later)]
    first = torch.tensor([earlier == 0 for _, earlier in pairs], device="cpu")
    return first.nonzero().flatten(), (~first).nonzero().flatten()


def _program(model: PixelCNNPP, most: float) -> Program:
    """Return the operations of a PixelCNN++, whose log-scales are clamped to `most`."""
    streams, output = model.streams, model.output
    above, channels = streams.above, len(streams.above.weight)
    program = Program(model.image_shape, model.levels, above.weight, output.components, most)
    image = program.pixels = program.features(model.image_shape[0] + 1, 3, 1)
    vertical, horizontal = (Pyramid(program, channels, horizontal=stream) for stream in (False, True))
    v, h = vertical.place(0), horizontal.place(0)
    base = program.bias(channels, constant(above.bias))
    program.add(program.row_operations, base, v, channels, weight=above.weight, source=image, left=1)
    _, found = vertical.append(streams.vertical, v, [])
    program.masked(streams.first, image, program.above(streams.first, image), h)
    h, _ = horizontal.append(streams.horizontal, h, found)
    outs = len(output.weight)
    base, program.scores = program.bias(outs, constant(output.bias)), Features(program.reserve(outs), 0)
    program.add(
        program.operations[0], base, program.scores, outs,
        weight=output.weight, source=horizontal.elu(h, 0), top=1, reads=channels,
    )  # fmt: skip
    return program
