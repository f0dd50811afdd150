"""The long short-term memory of a lattice, and the layers of the PixelRNN that run it: Row LSTM, Diagonal BiLSTM."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from chainrule.kernels._bptt import wide_dtype
from chainrule.kernels._lattice_lstm import Window, lattice
from chainrule.layers._cells import lstm_cell
from chainrule.layers._masked_conv2d import MaskedConv2d, RasterLayer
from chainrule.state import State


def lattice_lstm(
    projected: Tensor,
    weights: Tensor,
    offsets: Sequence[int],
    c0: Tensor | None = None,
    windows: Sequence[Window] | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Run G recurrences side by side over T steps, each at all of P positions at once.

    .. math::
        i, f, o = \sigma(a^{i,f,o}), \quad g = \tanh(a^g), \quad
        a_t(p) = \mathrm{projected}_t(p) + \sum_k U_k\, h_{t-1}(p + \mathrm{offset}_k) \\
        c_t(p) = f \odot c_{t-1}(p) + i \odot g, \qquad h_t(p) = o \odot \tanh c_t(p)

    projected is (G, T, P, B, 4M), gates in the order i, f, o, g, with h before the first step where it is not zero; U
    are (G, K, M, 4M), transposed; c_0 is (G, P, B, M), by default zero. A position takes part in successive steps only,
    those whose window [first, end) holds it; elsewhere h and c are zero, and no arithmetic is spent. Returns
    h (G, T, P, B, M), and c after the last step (G, P, B, M).
    """
    windows = [(0, projected.shape[2])] * projected.shape[1] if windows is None else windows
    return lattice(projected, weights, c0, tuple(offsets), tuple(windows), _plain)


def _plain(
    projected: Tensor,
    weights: Tensor,
    c0: Tensor | None,
    offsets: tuple[int, ...],
    windows: tuple[Window, ...],
    activations: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence in plain operations; activations: the gates of every step, if projected is a placeholder."""
    wide, positions, size = wide_dtype(projected), projected.shape[2], weights.shape[2]
    products = weights.to(wide).unsqueeze(2).unbind(1)  # (G, 1, M, 4M) each
    side = max([0, *map(abs, offsets)])
    h = projected.new_zeros(*projected.shape[:1], *projected.shape[2:4], size, dtype=wide)
    c = h if c0 is None else c0.to(wide)
    steps = []
    for t, (first, end) in enumerate(windows):
        a = projected[:, t, first:end].to(wide)
        if t:
            padded = pad(h, (0, 0, 0, 0, side, side))
            for weight, offset in zip(products, offsets, strict=True):
                a = a + padded[:, first + offset + side : end + offset + side] @ weight
        gates = None if activations is None else gate_order(activations[:, t, first:end])
        h_t, c_t = lstm_cell(gate_order(a), c[:, first:end], gates)
        beyond = (0, 0, 0, 0, first, positions - end)  # positions that take no part
        c, h = pad(c_t, beyond), pad(h_t, beyond)
        steps.append(h)
    return torch.stack(steps, 1).to(projected.dtype), c


def lattice_cell(a: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """h and c of one position, from pre-activations (B, 4M) in the order i, f, o, g and the cell before."""
    return lstm_cell(gate_order(a), c)


def gate_order(a: Tensor) -> tuple[Tensor, ...]:
    """Return the gates i, f, g, o of (..., 4M) in the order i, f, o, g."""
    i, f, o, g = a.chunk(4, -1)
    return i, f, g, o


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


@final
class DiagonalLSTM(RasterLayer):
    r"""A residual Diagonal BiLSTM layer (van den Oord et al. 2016, Pixel Recurrent Neural Networks).

    .. math::
        i, f, o = \sigma(\cdot), \quad g = \tanh(\cdot)
        \quad\text{of}\quad W_{is} x_{ij} + b + U_{\uparrow} h_{i-1,j} + U_{\leftarrow} h_{i,j-1} \\
        c_{ij} = f \odot c_{i,j-1} + i \odot g, \qquad h_{ij} = o \odot \tanh c_{ij}, \qquad
        x_{ij}' = x_{ij} + W (h^{\rightarrow}_{ij} + h^{\leftarrow}_{i-1,j})

    The stream h^→ runs from the left, h^← with separate weights from the right (j + 1 instead of j - 1). A whole
    diagonal of the image, or of its mirror image, is one step, as `skew` lays them out, and both streams step together.
    The stream from the right is shifted down by a row, so that it is past; it needs no mask over channel groups, where
    h^→ has one of type B. Outside the image h and c are zero. A label adds a bias to the gates of both streams; their
    order is i, f, o, g.

    Features after a mask of type A exclude their own pixel. The last pixel of a row is then in no feature of its row,
    and the next row would see it only within the kernel of the first convolution. The layer above these features can
    therefore read the image itself: W_x times the pixel is added to the gates of h^←, so that every pixel is seen.

    Args:
        channels: M channels of x and x'; h and c have M/2 each.
        channel_groups: colour channels, as in `MaskedConv2d`.
        image_channels: C channels of the image, where the stream from the right reads it; `None` where it does not.
        num_classes: number of labels; `None` without labels.
        dropout: probability of zeroing an input of W in training.

    >>> DiagonalLSTM(8)(torch.zeros(2, 8, 5, 4))[0].shape
    torch.Size([2, 8, 5, 4])
    """

    def __init__(
        self,
        channels: int,
        channel_groups: int = 1,
        *,
        image_channels: int | None = None,
        num_classes: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        half = channels // 2
        self.input_left = MaskedConv2d(channels, 4 * half, 1, "B", channel_groups, parts=4)
        self.input_right = nn.Conv2d(channels, 4 * half, 1)
        self.reads_image = image_channels is not None
        self.image_right = None if image_channels is None else nn.Conv2d(image_channels, 4 * half, 1, bias=False)
        self.recurrent = nn.Parameter(torch.empty(2, 2, half, 4 * half))  # of each stream U_up and U_side, transposed
        self.output = MaskedConv2d(half, channels, 1, "B", channel_groups, bias=False)
        self.label_bias = None if num_classes is None else nn.Embedding(num_classes, 8 * half)
        self.dropout = dropout
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights; the bias of forget gates is 1 (Gers et al. 2000), and labels do little."""
        self.input_left.reset_parameters()
        self.output.reset_parameters()
        half = self.recurrent.shape[2]
        for weight in (self.input_right.weight, *(() if self.image_right is None else (self.image_right.weight,))):
            nn.init.uniform_(weight, -((3 / weight.shape[1]) ** 0.5), (3 / weight.shape[1]) ** 0.5)
        nn.init.uniform_(self.recurrent, -((1.5 / half) ** 0.5), (1.5 / half) ** 0.5)  # two of them add up
        for bias in (self.input_left.bias, self.input_right.bias):
            assert bias is not None
            nn.init.zeros_(bias)
            nn.init.ones_(bias[half : 2 * half])
        if self.label_bias is not None:
            nn.init.normal_(self.label_bias.weight, std=0.1)

    def forward(
        self, x: Tensor, above: State = None, label: Tensor | None = None, image: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Read a block of n whole rows; see `RasterLayer.forward`.

        Args:
            x: (B, M, n, W).
            above: h of both streams in the row above, (B, M/2, 1, W) each; `None` is zeros.
            label: (B,) integers in [0, num_classes).
            image: (B, C, n, W), where it is read.
        """
        left_above, right_above = self.blank_rows(x) if above is None else above
        read = x
        if self.image_right is not None:
            if image is None:
                raise ValueError("image: expected (B, C, n, W), as this layer has image_channels, got None")
            read = torch.cat([x, image], 1)
        streams = _both(read, read)  # (2, n, W, B, M), or with C channels more
        a = torch.baddbmm(self._biases(label, x.shape[2] * x.shape[3]), streams.flatten(1, 3), self._weights())
        a = a.view(*streams.shape[:4], a.shape[2])  # (2, n, W, B, 4M/2)
        projected = _both(left_above, right_above).flatten(1, 3) @ self.recurrent[:, 0]  # (2, W·B, 4M/2)
        a[:, 0] += projected.view(2, *a.shape[2:])
        height, width = a.shape[1:3]
        windows = [(max(0, d - width + 1), min(d + 1, height)) for d in range(height + width - 1)]
        h, _ = lattice_lstm(skew(a), self.recurrent, (-1, 0), windows=windows)
        left, right = unskew(h).unbind(0)  # (n, W, B, M/2) each
        right = right.flip(1)
        hidden = left + shifted_down(right_above.permute(2, 3, 0, 1), right)
        hidden = nn.functional.dropout(hidden, self.dropout, self.training)
        out = hidden @ self.output.masked_weight().flatten(1).t()  # (n, W, B, M)
        left, right = (rows[-1:].permute(2, 3, 0, 1) for rows in (left, right))
        return x + out.permute(2, 3, 0, 1), (left, right)

    def blank_rows(self, like: Tensor) -> State:
        """Zeros: h of both streams in the row above, (B, M/2, 1, W) each."""
        blank = like.new_zeros(len(like), self.recurrent.shape[2], 1, like.shape[3])
        return blank, blank

    def _weights(self) -> Tensor:
        """Input weights of both streams, (2, M, 4M/2), with the image's C channels where the right one reads them."""
        left, right = self.input_left.masked_weight().flatten(1), self.input_right.weight.flatten(1)
        if self.image_right is not None:
            image = self.image_right.weight.flatten(1)
            left, right = torch.cat([left, torch.zeros_like(image)], 1), torch.cat([right, image], 1)
        return torch.stack([left, right]).transpose(1, 2)

    def _biases(self, label: Tensor | None, pixels: int) -> Tensor:
        """Biases of both streams, (2, 1, 4M/2), or with labels for each pixel of each image, (2, pixels·B, 4M/2)."""
        biases = torch.stack([_given(self.input_left.bias), _given(self.input_right.bias)]).unsqueeze(1)
        if self.label_bias is None:
            return biases
        biases = biases + torch.stack(self.label_bias(label).chunk(2, 1))  # (2, B, 4M/2)
        return biases.unsqueeze(1).expand(-1, pixels, -1, -1).flatten(1, 2)


def _given(part: Tensor | None) -> Tensor:
    assert part is not None
    return part


def shifted_down(above: Tensor, rows: Tensor) -> Tensor:
    """In the place of each row the one over it, first the one above all: (1, ...) and (n, ...) to (n, ...)."""
    return torch.cat([above, rows[:-1]])


def _both(left: Tensor, right: Tensor) -> Tensor:
    """Stack two (B, F, n, W) as (2, n, W, B, F), mirroring the second for the stream from the right."""
    return torch.stack([left.permute(2, 3, 0, 1), right.flip(3).permute(2, 3, 0, 1)])


def skew(x: Tensor) -> Tensor:
    r"""Move every row one column to the right of the row above it (van den Oord et al. 2016, Pixel Recurrent Networks).

    .. math:: y_{d, i} = x_{i, d - i} \quad\text{where}\ 0 \le d - i < W, \qquad 0\ \text{elsewhere}

    A pixel and its neighbours above and to the left are then in two successive diagonals: d and d - 1.

    Args:
        x: (N, H, W, ...).

    Returns:
        (N, H + W - 1, H, ...), diagonal by diagonal.

    >>> skew(torch.tensor([[[1, 2, 3], [4, 5, 6]]]))[0]
    tensor([[1, 0],
            [2, 4],
            [3, 5],
            [0, 6]])
    """
    count, height, width = x.shape[:3]
    # Rows that are H longer, cut again into rows that are only H - 1 longer: each begins one place later.
    longer = torch.cat([x, x.new_zeros(count, height, height, *x.shape[3:])], 2).flatten(1, 2)
    diagonals = height + width - 1
    return longer[:, : height * diagonals].unflatten(1, (height, diagonals)).transpose(1, 2)


def unskew(y: Tensor) -> Tensor:
    """Invert `skew`: (N, H + W - 1, H, ...) to (N, H, W, ...). Places outside the image are dropped.

    >>> x = torch.rand(2, 3, 4)
    >>> torch.equal(unskew(skew(x)), x)
    True
    """
    count, diagonals, height = y.shape[:3]
    rows = y.transpose(1, 2).flatten(1, 2)
    longer = torch.cat([rows, rows.new_zeros(count, height, *y.shape[3:])], 1)
    return longer.unflatten(1, (height, diagonals + 1))[:, :, : diagonals + 1 - height]
