"""The minimal GRU: a GRU whose gates do not read its state."""

from collections.abc import Sequence

from torch import Tensor, nn

from chainrule.layers.minimal_recurrence import MinimalRecurrence


class MinGRU(MinimalRecurrence):
    r"""The minGRU of Feng et al. (2024), "Were RNNs All We Needed?", https://arxiv.org/abs/2410.01201.

    .. math::
        z_t &= \sigma(W_z x_t + b_z) \\
        c_t &= W_c x_t + b_c \\
        h_t &= (1 - z_t) \odot h_{t-1} + z_t \odot c_t

    Args:
        input_size: N.
        hidden_size: M.

    Raises:
        ValueError: a size is not positive.

    >>> import torch
    >>> layer = MinGRU(3, 5)
    >>> y, state = layer(torch.zeros(2, 10, 3))
    >>> y.shape, state.shape
    (torch.Size([2, 10, 5]), torch.Size([2, 5]))
    """

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.update = nn.Linear(input_size, hidden_size)
        self.reset_parameters()

    def _gates(self) -> list[nn.Linear]:
        return [self.update]

    def _open_gates(self) -> None:
        nn.init.constant_(self.update.bias, -1)

    def _kept(self, gates: Sequence[Tensor]) -> Tensor:
        (update,) = gates
        return -update
