"""The two streams of the PixelCNN++ over an image, and the layer that makes its mixtures."""

from typing import final

import torch
from torch import Tensor, nn

from chainrule.heads import DiscretizedLogisticMixture, PixelLogisticMixture
from chainrule.layers._gated_pyramid import GatedPyramid
from chainrule.layers._masked_conv2d import MaskedConv2d
from chainrule.state import State


@final
class GatedStreams(nn.Module):
    r"""A vertical stream that sees the rows above, and a horizontal one that also sees the pixels to the left.

    .. math:: v = \mathrm{pyramid}_v(W_v * \mathrm{rows\ above}), \qquad h = \mathrm{pyramid}_h(W_h * x;\ v)

    Arguments are as for `GatedPyramid`; `in_channels` of x, M `channels` of v and h.
    """

    def __init__(self, in_channels: int, channels: int, layers: int, resolutions: int, num_classes: int | None = None):
        super().__init__()
        self.above = nn.Conv2d(in_channels, channels, (2, 3), padding=(0, 1))
        self.first = MaskedConv2d(in_channels, channels, 3, "A")
        self.vertical = GatedPyramid(channels, layers, resolutions, reads_right=True, num_classes=num_classes)
        self.horizontal = GatedPyramid(
            channels, layers, resolutions, reads_right=False, neighbour=True, num_classes=num_classes
        )

    def reset_parameters(self) -> None:
        """Draw the weights that read the rows above."""
        nn.init.normal_(self.above.weight, std=self.above.weight[0].numel() ** -0.5)
        assert self.above.bias is not None
        nn.init.zeros_(self.above.bias)

    def blank_rows(self, batch_size: int, width: int) -> State:
        """`above` at the top of an image: two rows of it, and what both streams keep."""
        channels, in_channels = self.above.weight.shape[:2]
        blank = self.above.weight.new_zeros(batch_size, channels, 1, width)
        return {
            "pixels": blank.new_zeros(batch_size, in_channels, 2, width),
            "vertical": self.vertical.blank_rows(blank),
            "horizontal": self.horizontal.blank_rows(blank),
        }

    def forward(self, x: Tensor, above: State, label: Tensor | None, *, dropout: float = 0.0) -> tuple[Tensor, State]:
        """Read a block of whole rows (B, N, n, W): h (B, M, n, W), and `above` for the rows that follow."""
        image = torch.cat([above["pixels"], x], 2)
        v = self.above(image[:, :, :-1])
        _, features, vertical = self.vertical.rows(v, above["vertical"], label, dropout=dropout)
        h = self.first.below(image[:, :, 1:])
        h, _, horizontal = self.horizontal.rows(h, above["horizontal"], label, features, dropout=dropout)
        return h, {"pixels": image[:, :, x.shape[2] :], "vertical": vertical, "horizontal": horizontal}


@final
class PixelMixtures(nn.Conv2d):
    """Features (B, M, n, W) to a `PixelLogisticMixture` for each pixel, of K components over C colours."""

    def __init__(self, channels: int, colours: int, components: int, levels: int):
        super().__init__(channels, PixelLogisticMixture.num_parameters(colours, components), 1)
        self.colours, self.components, self.levels = colours, components, levels

    def spread(self) -> None:
        """Begin with the same mixture at every pixel: evenly spaced components, each as wide as their spacing."""
        nn.init.normal_(self.weight, std=0.1 * self.weight.shape[1] ** -0.5)
        assert self.bias is not None
        nn.init.zeros_(self.bias)
        with torch.no_grad():
            biases = self.bias.view(-1, self.components)
            biases[1 : 1 + self.colours] = (2 * torch.arange(self.components) + 1) / self.components - 1
            biases[1 + self.colours : 1 + 2 * self.colours] = -torch.tensor(self.components).log()

    def forward(self, h: Tensor) -> Tensor:
        """The parameters of the mixtures, (B, P, n, W)."""
        with torch.autocast(h.device.type, enabled=False):  # a mean in bfloat16 may be off by half a level of 256
            return super().forward(nn.functional.elu(h.to(self.weight.dtype)))

    def mixture(self, parameters: Tensor) -> PixelLogisticMixture:
        """The joint distribution of the colours of pixels (..), from their parameters (.., P)."""
        return PixelLogisticMixture.from_parameters(parameters, self.colours, self.levels)

    def coloured(self, parameters: Tensor, x: Tensor) -> DiscretizedLogisticMixture:
        """The conditional of each colour, batch shape (B, C, n, W), given the earlier colours of x."""
        each = self.mixture(parameters.movedim(1, 3)).conditionals(x.movedim(1, 3))
        return each.with_parameters(*(part.movedim(3, 1) for part in each.parameters))
