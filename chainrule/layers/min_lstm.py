"""The minimal LSTM: forget and input gates that do not read its state and share one unit of memory."""

from collections.abc import Sequence

from torch import Tensor, nn

from chainrule.layers.minimal_recurrence import MinimalRecurrence


class MinLSTM(MinimalRecurrence):
    r"""The minLSTM of Feng et al. (2024), "Were RNNs All We Needed?", https://arxiv.org/abs/2410.01201.

    .. math::
        f_t &= \sigma(W_f x_t + b_f), \qquad i_t = \sigma(W_i x_t + b_i) \\
        c_t &= W_c x_t + b_c \\
        h_t &= \frac{f_t}{f_t + i_t} \odot h_{t-1} + \frac{i_t}{f_t + i_t} \odot c_t

    The shares are taken as :math:`\sigma(\pm(\log f_t - \log i_t))`: both gates may be closed to the last bit.

    Args:
        input_size: N.
        hidden_size: M.

    Raises:
        ValueError: a size is not positive.

    >>> import torch
    >>> layer = MinLSTM(3, 5)
    >>> y, state = layer(torch.zeros(2, 10, 3))
    >>> y.shape, state.shape
    (torch.Size([2, 10, 5]), torch.Size([2, 5]))
    """

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.forget = nn.Linear(input_size, hidden_size)
        self.input = nn.Linear(input_size, hidden_size)
        self.reset_parameters()

    def _gates(self) -> list[nn.Linear]:
        return [self.forget, self.input]

    def _open_gates(self) -> None:
        nn.init.constant_(self.forget.bias, 1)
        nn.init.constant_(self.input.bias, -1)  # log σ(1) − log σ(−1) = 1

    def _kept(self, gates: Sequence[Tensor]) -> Tensor:
        forget, write = gates
        return nn.functional.logsigmoid(forget) - nn.functional.logsigmoid(write)
