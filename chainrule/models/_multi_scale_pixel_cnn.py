"""Multi-scale PixelCNN: pixels from coarse to fine, a whole group of them at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import cast, final

import torch
from torch import Tensor, nn

from chainrule._base import Context
from chainrule._buffers import fixed_buffer
from chainrule._executor import Executor
from chainrule._ranges import check_sizes
from chainrule.heads import DiscretizedLogisticMixture, PixelLogisticMixture
from chainrule.heads._adapter import Draw
from chainrule.heads._logistic_mixtures import outside
from chainrule.kernels._transforms import values_are_known
from chainrule.layers._pointwise import concatenated_elu
from chainrule.models._conditioned import checked_labels
from chainrule.models._image_model import ImageModel
from chainrule.state import State

# Of a block of 2 × 2 pixels the first is known; then come, group by group, its right, its lower and its last one.
OFFSETS = ((0, 0), (0, 1), (1, 0), (1, 1))


@dataclass(frozen=True)
class PixelGroup:
    r"""Pixels (s(2I + a), s(2J + b)), one in each block of 2 × 2 on a grid whose lines are s apart.

    Attributes:
        spacing: s, a power of 2.
        kind: 1, 2 or 3, the number of (a, b) among `OFFSETS`: the groups of smaller number are drawn before it.
        rows: how many rows of pixels the group has.
        columns: how many columns.
    """

    spacing: int
    kind: int
    rows: int
    columns: int

    def places(self) -> tuple[Tensor, Tensor]:
        """Return the row and the column of each pixel of the group, in raster order, (rows·columns,) each."""
        down, right = OFFSETS[self.kind]
        rows = self.spacing * (2 * torch.arange(self.rows) + down)
        columns = self.spacing * (2 * torch.arange(self.columns) + right)
        return rows.repeat_interleave(self.columns), columns.repeat(self.rows)


def coarse_to_fine(height: int, width: int) -> list[PixelGroup]:
    """Return the groups that follow the pixel in the upper left corner until all are visited (Reed et al. 2017).

    Each halving of the spacing takes three of them, fewer where an image is narrow: 32×32 pixels are 15 groups.

    >>> [(group.spacing, group.kind, group.rows * group.columns) for group in coarse_to_fine(3, 4)]
    [(2, 1, 1), (2, 2, 1), (2, 3, 1), (1, 1, 4), (1, 2, 2), (1, 3, 2)]
    """
    spacing = 1
    while spacing < max(height, width):
        spacing *= 2
    groups = []
    while spacing > 1:
        spacing //= 2
        grid_rows, grid_columns = -(-height // spacing), -(-width // spacing)
        for kind, (down, right) in enumerate(OFFSETS):
            rows, columns = (grid_rows - down + 1) // 2, (grid_columns - right + 1) // 2
            if kind and rows and columns:
                groups.append(PixelGroup(spacing, kind, rows, columns))
    return groups


class GroupNetwork(nn.Module):
    r"""Gated residual blocks of unmasked convolutions, one result for each block of 2 × 2 pixels.

    .. math:: h_0 = W_0 * x + b_0, \quad c = W_1 * f(h) + b_1, \quad (a_1, a_2) = W_2 * f(c) + b_2 + e_s + e_y, \quad
        h' = h + a_1 \odot \sigma(a_2), \quad z = W \,\mathrm{elu}(h_L) + b

    f is `concatenated_elu`, e_s and e_y belong to a scale and a label. All of x is known beforehand: nothing is masked.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        layers: int,
        out_channels: int,
        scales: int,
        *,
        num_classes: int | None = None,
    ):
        super().__init__()
        self.first = nn.Conv2d(in_channels, channels, 3, padding=1)
        self.blocks = nn.ModuleList(_Block(channels, scales, num_classes) for _ in range(layers))
        self.last = nn.Conv2d(channels, out_channels, 1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights; biases are zero, results nearly so."""
        for convolution, gain in ((self.first, 1.0), (self.last, 0.1)):
            nn.init.normal_(convolution.weight, std=gain * convolution.weight[0].numel() ** -0.5)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)
        for block in cast(list[_Block], list(self.blocks)):
            block.reset_parameters()

    @property
    def radius(self) -> int:
        """The distance, in blocks of pixels along rows and columns, at which a result reads."""
        return 1 + 2 * len(self.blocks)

    def forward(self, x: Tensor, scale: int, label: Tensor | None = None, *, dropout: float = 0.0) -> Tensor:
        """Features (B, N, H, W) of each block of pixels, of one of the scales, to (B, P, H, W)."""
        h = self.first(x)
        for block in cast(list[_Block], list(self.blocks)):
            h = block(h, scale, label, dropout)
        with torch.autocast(h.device.type, enabled=False):  # a mean in bfloat16 may be off by half a level of 256
            results: Tensor = self.last(nn.functional.elu(h.to(self.last.weight.dtype)))
            return results


class _Block(nn.Module):
    def __init__(self, channels: int, scales: int, num_classes: int | None):
        super().__init__()
        self.first = nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.second = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1)
        self.scale_bias = nn.Embedding(scales, 2 * channels)
        self.label_bias = None if num_classes is None else nn.Embedding(num_classes, 2 * channels)

    def reset_parameters(self) -> None:
        for convolution, gain in ((self.first, 1.0), (self.second, 0.1)):
            nn.init.normal_(convolution.weight, std=gain * convolution.weight[0].numel() ** -0.5)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)
        for bias in (self.scale_bias, self.label_bias):
            if bias is not None:
                nn.init.normal_(bias.weight, std=0.1)

    def forward(self, h: Tensor, scale: int, label: Tensor | None, dropout: float) -> Tensor:
        c = self.first(concatenated_elu(h))
        bias = self.scale_bias(torch.tensor(scale, device=h.device)).view(1, -1, 1, 1)
        if self.label_bias is not None:
            bias = bias + self.label_bias(label).unsqueeze(-1).unsqueeze(-1)
        a = self.second(nn.functional.dropout(concatenated_elu(c), dropout)) + bias
        return h + nn.functional.glu(a, 1)


@final
class MultiScalePixelCNN(ImageModel):
    r"""Images from coarse to fine, in groups of independent pixels (Reed et al. 2017).

    .. math:: p(x) = p(x_{00}) \prod_{g} \prod_{(i,j) \in g} p(x_{1ij}, \ldots, x_{Cij} \mid \text{groups before } g)

    First comes the pixel in the corner. Then the distance between known pixels is halved repeatedly: each time come the
    pixels to the right of known ones, the pixels below them, and the pixels between four of them. Given all earlier
    groups, the pixels of a group are independent and are drawn at once: 32×32 pixels take 16 steps instead of 1,024.
    This is an assumption about images and costs some likelihood; the likelihood itself is exact. The colours of a pixel
    are coupled, in one mixture of logistics (`chainrule.heads.PixelLogisticMixture`).

    Every scale uses the same three networks, one for each kind of group. A network reads the known pixels of blocks of
    2 × 2, as numbers from -1 to 1 with an additional channel of ones that marks the inside of the image.

    Pixels are visited in the order of the groups, so that the prefix `to_sequence(x)[:, :P]` is a coarser image, which
    `sample` completes to a finer one.

    Args:
        image_shape: (C, H, W).
        levels: values that a channel of a pixel may have.
        channels: M features of a block of pixels.
        layers: residual blocks of each network; each reads two blocks of pixels further.
        components: K logistics of the mixture.
        num_classes: number of labels on which an image can be conditioned, as context (B,); `None` for none.
        dropout: probability of zeroing in training, inside the blocks.

    >>> model = MultiScalePixelCNN((3, 8, 8), levels=8, channels=8, layers=1, components=3)
    >>> x = model.sample(2, generator=torch.Generator().manual_seed(0))
    >>> x.shape, model.log_prob(x).shape, model.sequential_steps
    (torch.Size([2, 3, 8, 8]), torch.Size([2]), 10)
    """

    order: Tensor

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        levels: int = 256,
        channels: int = 64,
        layers: int = 4,
        components: int = 10,
        *,
        num_classes: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__(image_shape, levels, num_classes)
        self._checked_sizes(channels, layers, {}, dropout)
        check_sizes(components=components)
        colours, height, width = self.image_shape
        self.groups = coarse_to_fine(height, width)
        self._starts = list(accumulate((group.rows * group.columns for group in self.groups), initial=1))
        self.dropout = dropout
        parameters = PixelLogisticMixture.num_parameters(colours, components)
        self.corner = nn.Parameter(torch.zeros(parameters))
        self.corner_label = None if num_classes is None else nn.Embedding(num_classes, parameters)
        scales = max((group.spacing for group in self.groups), default=1).bit_length()
        self.networks = nn.ModuleDict(
            {
                str(kind): GroupNetwork(
                    kind * (colours + 1), channels, layers, parameters, scales, num_classes=num_classes
                )
                for kind in sorted({group.kind for group in self.groups})
            }
        )
        fixed_buffer(self, "order", partial(_visiting_order, self.groups, width))
        self._reset_parameters(components)

    def _reset_parameters(self, components: int) -> None:
        """Initialise the mixture with evenly spaced components, each as wide as their spacing."""
        if self.corner_label is not None:
            nn.init.normal_(self.corner_label.weight, std=0.1)
        colours = self.image_shape[0]
        biases = [network.last.bias for network in cast(list[GroupNetwork], list(self.networks.values()))]
        with torch.no_grad():
            for bias in (self.corner, *(cast(Tensor, bias) for bias in biases)):
                rows = bias.view(-1, components)
                rows[1 : 1 + colours] = (2 * torch.arange(components) + 1) / components - 1
                rows[1 + colours : 1 + 2 * colours] = -torch.tensor(components).log()

    @property
    def sequential_steps(self) -> int:
        """The number of groups drawn one after the other, each from one pass of a network."""
        return 1 + len(self.groups)

    def to_sequence(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) as elements in visiting order, (B, H·W·C)."""
        if x.dim() != 4 or x.shape[1:] != self.image_shape:
            expected = ", ".join(str(size) for size in self.image_shape)
            raise ValueError(f"x: expected whole images of shape (B, {expected}), got {tuple(x.shape)}")
        return x.flatten(2)[:, :, self.order.to(x.device)].transpose(1, 2).flatten(1)

    def from_sequence(self, sequence: Tensor) -> Tensor:
        """Return all elements in visiting order (B, H·W·C) as images (B, C, H, W)."""
        if sequence.dim() != 2 or sequence.shape[1] != self.sequence_length:
            raise ValueError(
                f"sequence: expected (B, {self.sequence_length}), all elements of an image, got {tuple(sequence.shape)}"
            )
        pixels = sequence.view(len(sequence), len(self.order), self.image_shape[0])  # (B, H·W, C)
        pixels = pixels[:, self.order.argsort().to(pixels.device)]
        return pixels.transpose(1, 2).unflatten(2, self.image_shape[1:])

    def forward(
        self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None
    ) -> DiscretizedLogisticMixture:
        """Return all conditionals, batch shape (B, C, H, W); `lengths` has no effect: conditionals read the past."""
        pixels, values = self._pixels(x, context)
        each, positions = pixels.conditionals(values), self.order.argsort()
        parts = (part[:, positions].transpose(1, 2).unflatten(2, self.image_shape[1:]) for part in each.parameters)
        return each.with_parameters(*parts)  # (B, C, H, W, K)

    def log_prob(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        """Exact log-likelihood of each row, (B,), nats; without lengths the colours of a pixel are scored together."""
        if lengths is not None:
            return super().log_prob(x, context, lengths)
        pixels, values = self._pixels(x, context)
        return pixels.log_prob(values).sum(1)

    def _pixels(self, x: Tensor, context: Tensor | None) -> tuple[PixelLogisticMixture, Tensor]:
        """Return the joint distribution of each pixel in visiting order, shape (B, H·W), and values (B, H·W, C)."""
        self.images.checked(x)
        label, dropout = checked_labels(context, len(x), self.num_classes), self.dropout if self.training else 0.0
        image = self._with_ones(x)
        outputs = [self._corner(len(x), label)]
        outputs += [self._group(group, image, label, dropout) for group in self.groups]
        values = x.flatten(2)[:, :, self.order.to(x.device)].transpose(1, 2)
        return self._mixture(torch.cat(outputs, 1)), values

    def _mixture(self, outputs: Tensor) -> PixelLogisticMixture:
        return PixelLogisticMixture.from_parameters(outputs, self.image_shape[0], self.levels)

    def _with_ones(self, x: Tensor) -> Tensor:
        """Integers (B, C, ...) as the networks read them, (B, C + 1, ...)."""
        scaled = self._scaled(x, self.corner)
        return torch.cat([scaled, torch.ones_like(scaled[:, :1])], 1)

    def _corner(self, batch_size: int, label: Tensor | None) -> Tensor:
        """Return the parameters of the first pixel, (B, 1, P)."""
        corner = self.corner.expand(batch_size, -1)
        if self.corner_label is not None:
            corner = corner + self.corner_label(label)
        return corner.unsqueeze(1)

    def _group(self, group: PixelGroup, image: Tensor, label: Tensor | None, dropout: float = 0.0) -> Tensor:
        """Return the parameters of the pixels of a group, (B, n, P), from an image (B, C + 1, H, W) known so far."""
        grid = image[:, :, :: group.spacing, :: group.spacing]
        height, width = (grid.shape[2] + 1) // 2, (grid.shape[3] + 1) // 2
        inputs = [
            nn.functional.pad(part, (0, width - part.shape[3], 0, height - part.shape[2]))
            for part in (grid[:, :, down::2, right::2] for down, right in OFFSETS[: group.kind])
        ]
        scale = group.spacing.bit_length() - 1
        outputs = self.networks[str(group.kind)](torch.cat(inputs, 1), scale, label, dropout=dropout)
        parameters: Tensor = outputs[:, :, : group.rows, : group.columns].flatten(2).transpose(1, 2)
        return parameters

    def visible_past(self, length: int) -> Tensor:
        """Mark the earlier elements that can influence each conditional, (T, T) booleans."""
        colours, _, width = self.image_shape
        order = self.order.cpu()
        rows, columns = order // width, order % width
        pixels = torch.zeros(len(order), len(order), dtype=torch.bool, device="cpu")
        for group, start in zip(self.groups, self._starts[:-1], strict=True):
            block, radius = 2 * group.spacing, cast(GroupNetwork, self.networks[str(group.kind)]).radius
            own = slice(start, start + group.rows * group.columns)
            near = [
                (places[own].unsqueeze(1) // block - places[:start] // block).abs() <= radius
                for places in (rows, columns)
            ]
            pixels[own, :start] = near[0] & near[1]
        elements = pixels.repeat_interleave(colours, 0).repeat_interleave(colours, 1)
        own_pixel = torch.block_diag(*[torch.ones(colours, colours, device="cpu").tril(-1)] * len(order)) > 0
        return (elements | own_pixel)[:length, :length]

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        label = checked_labels(context, batch_size, self.num_classes)
        return {"label": label, "seen": self.order.new_zeros(batch_size, 0), "outputs": None}

    def step(self, x_prev: Tensor | None, state: State) -> tuple[DiscretizedLogisticMixture, State]:
        seen, outputs = state["seen"], state["outputs"]
        if x_prev is not None:
            seen = torch.cat([seen, x_prev.unsqueeze(1)], 1)
        pixel, colour = divmod(seen.shape[1], self.image_shape[0])
        start = max(first for first in (0, *self._starts) if first <= pixel)
        if pixel == start and not colour:
            outputs = self._next_group(seen, state["label"])
        earlier = seen[:, seen.shape[1] - colour :]
        return self._mixture(outputs[:, pixel - start]).conditional(earlier), {
            **state,
            "seen": seen,
            "outputs": outputs,
        }

    def _next_group(self, seen: Tensor, label: Tensor | None) -> Tensor:
        """Return the parameters (B, n, P) of the group that comes after the pixels seen, (B, pixels·C)."""
        colours, height, width = self.image_shape
        count = seen.shape[1] // colours
        if not count:
            return self._corner(len(seen), label)
        image = self.corner.new_zeros(len(seen), colours + 1, height * width)
        image[:, :, self.order[:count]] = self._with_ones(seen.view(len(seen), count, colours).transpose(1, 2))
        return self._group(self.groups[self._starts.index(count)], image.unflatten(2, (height, width)), label)

    def prepare(self) -> Executor:
        return _GroupExecutor(self)


class _GroupExecutor(Executor):
    """Scan that draws a group of pixels at a time."""

    model: MultiScalePixelCNN

    def draws(
        self, n: int, context: Context, prefix: Tensor | None, pick: Draw, count: int | None = None
    ) -> Iterator[Tensor]:
        """Yield the stream, a group at a time: each colour of all its pixels at once."""
        model = self.model
        if prefix is not None and values_are_known(prefix) and outside(prefix, model.levels).any():
            raise ValueError(f"prefix: expected integers from 0 to {model.levels - 1}, got others")
        label = checked_labels(context, n, model.num_classes)
        seen, colours = model.order.new_zeros(n, 0) if prefix is None else prefix, model.image_shape[0]
        while seen.shape[1] < model.sequence_length:
            start = max(first for first in (0, *model._starts) if first * colours <= seen.shape[1]) * colours
            prefix_group = seen[:, start:]
            with torch.no_grad():
                pixels = model._mixture(model._next_group(seen[:, :start], label))
                drawn = prefix_group.new_zeros(n, pixels.batch_shape[1], 0)
                for colour in range(colours):
                    prefix_values, values = prefix_group[:, colour::colours], pick(pixels.conditional(drawn))
                    values = torch.cat([prefix_values, values[:, prefix_values.shape[1] :]], 1)
                    drawn = torch.cat([drawn, values.unsqueeze(2)], 2)
                group = drawn.flatten(1)
                seen = torch.cat([seen[:, :start], group], 1)
            yield from group[:, prefix_group.shape[1] :].unbind(1)


def _visiting_order(groups: list[PixelGroup], width: int) -> Tensor:
    """(H·W,) the pixels in visiting order, as numbers in raster order."""
    places = [torch.zeros(1, dtype=torch.long)]
    for group in groups:
        rows, columns = group.places()
        places.append(rows * width + columns)
    return torch.cat(places)
