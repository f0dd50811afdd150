"""The network that gives the distribution of a group of pixels, all at once, from coarser ones."""

from typing import cast, final

import torch
from torch import Tensor, nn

from chainrule.layers.concatenated_elu import concatenated_elu


@final
class GroupNetwork(nn.Module):
    r"""Gated residual blocks of unmasked convolutions, one result for each block of 2 × 2 pixels.

    .. math:: h_0 = W_0 * x + b_0, \quad c = W_1 * f(h) + b_1, \quad (a_1, a_2) = W_2 * f(c) + b_2 + e_s + e_y, \quad
        h' = h + a_1 \odot \sigma(a_2), \quad z = W \,\mathrm{elu}(h_L) + b

    f is `concatenated_elu`, e_s and e_y belong to a scale and a label. All of x is known beforehand: nothing is masked.

    Args:
        in_channels: N channels of the known pixels of a block.
        channels: M features of a block.
        layers: L.
        out_channels: P.
        scales: at how many the same weights are used.
        num_classes: of the labels; `None` where there are none.

    >>> GroupNetwork(4, channels=8, layers=2, out_channels=30, scales=3)(torch.zeros(2, 4, 5, 6), scale=1).shape
    torch.Size([2, 30, 5, 6])
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
        """How many blocks of pixels away, in rows and in columns, a result reads."""
        return 1 + 2 * len(self.blocks)

    def forward(self, x: Tensor, scale: int, label: Tensor | None = None, *, dropout: float = 0.0) -> Tensor:
        """(B, N, H, W) to (B, P, H, W).

        Args:
            x: what is known of each block of pixels.
            scale: which of them, from 0.
            label: (B,) integers.
            dropout: probability of zeroing an input of W_2, for training.
        """
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
        bias = self.scale_bias.weight[scale].view(1, -1, 1, 1)
        if self.label_bias is not None:
            bias = bias + self.label_bias(label).unsqueeze(-1).unsqueeze(-1)
        a = self.second(nn.functional.dropout(concatenated_elu(c), dropout)) + bias
        return h + nn.functional.glu(a, 1)
