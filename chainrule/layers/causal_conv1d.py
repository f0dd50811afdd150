"""A dilated convolution that reads the past only."""

import torch
from torch import Tensor, nn


class CausalConv1d(nn.Module):
    r"""A causal, dilated convolution over time, as a layer that can be left and taken up again anywhere.

    .. math:: y_t = b + \sum_{i=0}^{k-1} W_i \, x_{t-(k-1-i)d}

    What stands before the first element is zero. The weight has the shape and order of `torch.nn.Conv1d`. The state is
    a queue of the last (k - 1)d elements, oldest first, each a tensor (B, N): to step on, one is put to its end and
    none of the others is moved or copied, however long the dilation.

    Args:
        in_channels: N.
        out_channels: M.
        kernel_size: k taps, the last of them at the present element.
        dilation: d steps from tap to tap.
        bias: whether b is added.

    Raises:
        ValueError: a size is not positive.

    >>> layer = CausalConv1d(3, 5, kernel_size=2, dilation=4)
    >>> y, state = layer(torch.zeros(2, 10, 3))
    >>> y.shape, len(state)
    (torch.Size([2, 10, 5]), 4)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int = 2, dilation: int = 1, *, bias: bool = True
    ):
        super().__init__()
        sizes = {
            "in_channels": in_channels,
            "out_channels": out_channels,
            "kernel_size": kernel_size,
            "dilation": dilation,
        }
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name}: expected an integer >= 1, got {size}")
        self.dilation = dilation
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, kernel_size))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew, with the variance of the input; the bias is zero."""
        nn.init.normal_(self.weight, std=self.weight[0].numel() ** -0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @property
    def past(self) -> int:
        """(k - 1)d, how many elements before the present one are within reach."""
        return (self.weight.shape[2] - 1) * self.dilation

    def initial_state(self, batch_size: int) -> list[Tensor]:
        """Zeros."""
        return [self.weight.new_zeros(batch_size, self.weight.shape[1])] * self.past

    def forward(self, x: Tensor, state: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        """Read a chunk.

        Args:
            x: (B, T, N).
            state: of the elements before x; `None` is zeros.

        Returns:
            (B, T, M), and the state after the chunk.
        """
        past = self.past
        if state is None:
            rows = nn.functional.pad(x, (0, 0, past, 0))
        else:
            rows = torch.cat([torch.stack(state, 1), x], 1) if past else x
        return self.convolve(rows), list(rows[:, x.shape[1] :].unbind(1)) if past else []

    def convolve(self, rows: Tensor) -> Tensor:
        """(B, (k-1)d + T, N), the past and the present side by side, to (B, T, M)."""
        time, past = rows.shape[1] - self.past, self.past
        taps = [rows[:, start : start + time] for start in range(0, past + 1, self.dilation)]
        return nn.functional.linear(torch.cat(taps, 2), self.weight.transpose(1, 2).flatten(1), self.bias)

    def step(self, x_t: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Read one element of each row: x_t (B, N) and a state to y_t (B, M) and the next."""
        queue = [*state, x_t]
        y = nn.functional.linear(
            torch.cat(queue[:: self.dilation], 1), self.weight.transpose(1, 2).flatten(1), self.bias
        )
        return y, queue[1:]
