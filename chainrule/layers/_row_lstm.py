"""The Row LSTM: a recurrence from row to row, all pixels of a row at once."""

from typing import final

import torch
from torch import Tensor, nn

from chainrule.layers._lattice_lstm import lattice_lstm
from chainrule.layers._masked_conv2d import MaskedConv2d
from chainrule.layers._raster_layer import RasterLayer
from chainrule.state import State


@final
class RowLSTM(RasterLayer):
    r"""A residual Row LSTM layer (van den Oord et al. 2016, Pixel Recurrent Neural Networks).

    .. math::
        i, f, o = \sigma(\cdot), \quad g = \tanh(\cdot)
        \quad\text{of}\quad K_{is} * x_i + b + K_{ss} * h_{i-1} \\
        c_i = f \odot c_{i-1} + i \odot g, \qquad h_i = o \odot \tanh c_i, \qquad x_i' = x_i + W h_i

    x_i, h_i and c_i are whole rows; both kernels run along them. The input-to-state kernel is masked, of type B, and is
    applied to all rows at once. The state-to-state kernel needs no mask, as the row above is past: with every row up,
    it sees half its width more to each side. A pixel sees only a triangle above it. Above
    the image h and c are zero. A label adds a bias to the gates, in the order i, f, o, g.

    Args:
        channels: M channels of x and x'; h and c have M/2 each.
        kernel_size: of both kernels, odd.
        channel_groups: colour channels, as in `MaskedConv2d`.
        num_classes: number of labels; `None` without labels.
        dropout: probability of zeroing an input of W in training.

    >>> RowLSTM(8)(torch.zeros(2, 8, 5, 4))[0].shape
    torch.Size([2, 8, 5, 4])
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int = 3,
        channel_groups: int = 1,
        *,
        num_classes: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        half = channels // 2
        self.input = MaskedConv2d(channels, 4 * half, (1, kernel_size), "B", channel_groups, parts=4)
        self.recurrent = nn.Parameter(torch.empty(kernel_size, half, 4 * half))
        self.output = MaskedConv2d(half, channels, 1, "B", channel_groups, bias=False)
        self.label_bias = None if num_classes is None else nn.Embedding(num_classes, 4 * half)
        self.dropout = dropout
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights; the bias of forget gates is 1 (Gers et al. 2000), and labels do little."""
        self.input.reset_parameters()
        self.output.reset_parameters()
        taps, half, _ = self.recurrent.shape
        nn.init.uniform_(self.recurrent, -((3 / (taps * half)) ** 0.5), (3 / (taps * half)) ** 0.5)
        assert self.input.bias is not None
        nn.init.ones_(self.input.bias[half : 2 * half])
        if self.label_bias is not None:
            nn.init.normal_(self.label_bias.weight, std=0.1)

    def forward(self, x: Tensor, above: State = None, label: Tensor | None = None) -> tuple[Tensor, State]:
        h, c = self.blank_rows(x) if above is None else above
        over = self.over_rows()
        a = self.input(x)  # (B, 4M/2, n, W)
        if self.label_bias is not None:
            a = a + self.label_bias(label).unsqueeze(-1).unsqueeze(-1)
        side = over.shape[3] // 2
        a = torch.cat([a[:, :, :1] + nn.functional.conv2d(h, over, padding=(0, side)), a[:, :, 1:]], 2)
        projected = a.permute(2, 3, 0, 1).unsqueeze(0)  # (1, n, W, B, 4M/2)
        offsets = range(-side, side + 1)
        rows, cells = lattice_lstm(projected, self.recurrent.unsqueeze(0), offsets, c.permute(2, 3, 0, 1))
        hidden = rows[0].permute(2, 3, 0, 1)
        out = self.output(nn.functional.dropout(hidden, self.dropout, self.training))
        return x + out, (hidden[:, :, -1:], cells.permute(2, 3, 0, 1))

    def blank_rows(self, like: Tensor) -> State:
        """Zeros: h and c of the row above, (B, M/2, 1, W) each."""
        blank = like.new_zeros(len(like), self.recurrent.shape[1], 1, like.shape[3])
        return blank, blank

    def over_rows(self) -> Tensor:
        """Return the state-to-state kernel of a convolution over rows, (4M/2, M/2, 1, kernel_size)."""
        return self.recurrent.permute(2, 1, 0).unsqueeze(2)
