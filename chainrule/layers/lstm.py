"""The long short-term memory layer."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from chainrule.layers import bptt
from chainrule.layers.recurrent import Backend, Recurrent


@final
class LSTM(Recurrent):
    r"""A stack of long short-term memory layers (Hochreiter and Schmidhuber 1997, with forget gates: Gers et al. 2000).

    .. math::
        i, f, o = \sigma(\cdot), \quad g = \tanh(\cdot)
        \quad\text{of}\quad W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh} \\
        c_t = f \odot c_{t-1} + i \odot g, \qquad h_t = o \odot \tanh(c_t)

    Gates are in the order i, f, g, o, as in torch.nn. Arguments are those of `RNN`, without `nonlinearity`; the state
    is the pair (h, c).

    >>> layer = LSTM(3, 4, num_layers=2)
    >>> output, (h, c) = layer(torch.zeros(2, 5, 3), lengths=torch.tensor([5, 0]))
    >>> output.shape, c.shape
    (torch.Size([2, 5, 4]), torch.Size([2, 2, 4]))
    """

    has_cell = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            backend,
            device,
            dtype,
        )

    def vendor_computes_this(self) -> bool:
        return True

    def _early_bias(self, bias_ih: Tensor, bias_hh: Tensor) -> Tensor:
        return bias_ih + bias_hh

    def _run(
        self, projected: Tensor, weights: Sequence[Tensor], state: list[Tensor], sizes: list[int]
    ) -> tuple[Tensor, ...]:
        return bptt.lstm(projected, weights[0], state[0], state[1], sizes)

    def cell(self, projected: Tensor, weights: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        h, c = state
        i, f, g, o = torch.addmm(projected, h, weights[0].t()).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
