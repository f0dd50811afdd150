"""A dilated convolution that reads the past only."""

from typing import final

import torch
from torch import Tensor, nn

from chainrule._ranges import check_sizes
from chainrule.kernels._plain_modules import may_prepare
from chainrule.layers._packing import last_before_ends, zero_past_ends
from chainrule.layers._pointwise import linear
from chainrule.layers._sequence_layer import LayerStep, SequenceLayer, check_features, checked_tensor, stepping
from chainrule.state import State


@final
class CausalConv1d(SequenceLayer):
    r"""A causal, dilated convolution over time.

    .. math:: y_t = b + \sum_{i=0}^{k-1} W_i \, x_{t-(k-1-i)d}

    Elements before the first are zero. The weight has the shape and order of `torch.nn.Conv1d`. The state holds the
    last (k - 1)d elements, oldest first, (B, (k - 1)d, N).

    Args:
        in_channels: N.
        out_channels: M.
        kernel_size: k taps, the last of them at the present element.
        dilation: d steps from tap to tap.
        bias: whether b is added.

    >>> layer = CausalConv1d(3, 5, kernel_size=2, dilation=4)
    >>> y, state = layer(torch.zeros(2, 10, 3))
    >>> y.shape, state.shape
    (torch.Size([2, 10, 5]), torch.Size([2, 4, 3]))
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int = 2, dilation: int = 1, *, bias: bool = True
    ):
        super().__init__()
        check_sizes(in_channels=in_channels, out_channels=out_channels, kernel_size=kernel_size, dilation=dilation)
        self.dilation = dilation
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, kernel_size))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights with the variance of the input; the bias is zero."""
        nn.init.normal_(self.weight, std=self.weight[0].numel() ** -0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @property
    def past(self) -> int:
        """(k - 1)d, how many elements before the present one are read."""
        return (self.weight.shape[2] - 1) * self.dilation

    def initial_state(self, batch_size: int) -> Tensor:
        """Zeros, (B, (k - 1)d, N)."""
        return self.weight.new_zeros(batch_size, self.past, self.weight.shape[1])

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        size = self.weight.shape[1]
        check_features(x, "BT", size)
        x = zero_past_ends(x, lengths)
        if state is None:
            rows = nn.functional.pad(x, (0, 0, self.past, 0))
        else:
            rows = torch.cat([checked_tensor(state, len(x), self.past, size), x], 1)
        return zero_past_ends(self.convolve(rows), lengths), last_before_ends(rows, self.past, lengths)

    def convolve(self, rows: Tensor) -> Tensor:
        """(B, (k-1)d + T, N), the past and the present side by side, to (B, T, M)."""
        return self._sum(rows, self._matrix())

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        check_features(x_t, "B", self.weight.shape[1])
        state = checked_tensor(state, len(x_t), self.past, self.weight.shape[1])
        return self._step(x_t, state, self._matrix())

    def prepare(self) -> LayerStep:
        if not may_prepare(self):
            return stepping(self)
        matrix = self._matrix().detach()
        return lambda x_t, state: self._step(x_t, state, matrix)

    def _matrix(self) -> Tensor:
        """Return the taps side by side, (M, k·N)."""
        return self.weight.transpose(1, 2).flatten(1)

    def _sum(self, rows: Tensor, matrix: Tensor) -> Tensor:
        time, past = rows.shape[1] - self.past, self.past
        taps = [rows[:, start : start + time] for start in range(0, past + 1, self.dilation)]
        return linear(torch.cat(taps, 2), matrix, self.bias)

    def _step(self, x_t: Tensor, state: Tensor, matrix: Tensor) -> tuple[Tensor, State]:
        rows = torch.cat([state, x_t.unsqueeze(1)], 1)
        return self._sum(rows, matrix).squeeze(1), rows[:, 1:]
