"""The residual block of the PixelCNN."""

from typing import final

import torch
from torch import Tensor, nn

from chainrule.layers.masked_conv2d import MaskedConv2d


@final
class MaskedResidualBlock(nn.Module):
    r"""A narrow masked convolution between two 1×1 ones, beside an identity (van den Oord et al. 2016).

    .. math:: h' = h + W_3\,\mathrm{relu}(W_2 * \mathrm{relu}(W_1\,\mathrm{relu}(h) + b_1) + b_2)

    All three are of type B. A label adds a bias to b_2.

    Args:
        channels: M channels of h and h'; between them there are half as many.
        kernel_size: of W_2, odd.
        channel_groups: colour channels, as in `MaskedConv2d`.
        num_classes: of the labels; `None` where there are none.
        dropout: probability of zeroing an input of W_3 in training.

    Raises:
        ValueError: an even kernel, or fewer channels than groups.

    >>> MaskedResidualBlock(8, 3)(torch.zeros(2, 8, 5, 4)).shape
    torch.Size([2, 8, 5, 4])
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int,
        channel_groups: int = 1,
        *,
        num_classes: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        half = channels // 2
        self.narrowing = MaskedConv2d(channels, half, 1, "B", channel_groups)
        self.middle = MaskedConv2d(half, half, kernel_size, "B", channel_groups)
        self.widening = MaskedConv2d(half, channels, 1, "B", channel_groups, bias=False)
        self.label_bias = None if num_classes is None else nn.Embedding(num_classes, half)
        self.dropout = dropout
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew, labels with little effect."""
        for convolution in (self.narrowing, self.middle, self.widening):
            convolution.reset_parameters()
        if self.label_bias is not None:
            nn.init.normal_(self.label_bias.weight, std=0.1)

    def forward(self, h: Tensor, label: Tensor | None = None) -> Tensor:
        """Read a whole image, h (B, M, H, W), with labels (B,), to h' (B, M, H, W)."""
        above = h.new_zeros(len(h), self.middle.weight.shape[1], self.middle.rows_above, h.shape[3])
        return self.below(h, above, label)[0]

    def below(self, h: Tensor, above: Tensor, label: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Read rows that others stand over.

        Args:
            h: (B, M, H, W).
            above: (B, M/2, rows above, W), what W_2 read in the rows over those of h.
            label: (B,) integers in [0, num_classes).

        Returns:
            h' (B, M, H, W), and `above` for the rows that follow.
        """
        rows = torch.cat([above, self.narrowing(h.relu()).relu()], 2)
        b = self.middle.below(rows)
        if self.label_bias is not None:
            b = b + self.label_bias(label).unsqueeze(-1).unsqueeze(-1)
        c = nn.functional.dropout(b.relu(), self.dropout, self.training)
        return h + self.widening(c), rows[:, :, rows.shape[2] - above.shape[2] :]
