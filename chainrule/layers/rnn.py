"""The simple recurrent layer."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from chainrule.layers import bptt
from chainrule.layers.recurrent import Backend, Recurrent

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid, "identity": lambda a: a}


@final
class RNN(Recurrent):
    r"""A stack of simple recurrent layers (Elman 1990).

    .. math:: h_t = f(W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh})

    Args:
        input_size: N, features of an element (or the number of symbols, for integer input).
        hidden_size: M, units of each layer.
        num_layers: layers; each reads the h of the one below.
        nonlinearity: f: tanh, relu, sigmoid or identity.
        bias: whether the layers have b_ih and b_hh.
        batch_first: always True here.
        dropout: probability of zeroing an element of h between layers, in training.
        bidirectional: add a second pass from each row's end to its start.
        backend: "vendor" forces the fused kernel, "bptt" the library's own recurrence; "auto" takes the faster.

    >>> layer = RNN(3, 4)
    >>> output, state = layer(torch.zeros(2, 5, 3))
    >>> output.shape, state.shape
    (torch.Size([2, 5, 4]), torch.Size([2, 1, 4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        if nonlinearity not in ACTIVATIONS:
            raise ValueError(f"nonlinearity: expected one of {', '.join(ACTIVATIONS)}, got {nonlinearity!r}")
        mode = "RNN_RELU" if nonlinearity == "relu" else "RNN_TANH"  # the parameters are the same for any f
        super().__init__(
            mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, backend, device, dtype
        )
        self.nonlinearity = nonlinearity

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, nonlinearity={self.nonlinearity}"

    def vendor_computes_this(self) -> bool:
        return self.nonlinearity in ("tanh", "relu")

    def _early_bias(self, bias_ih: Tensor, bias_hh: Tensor) -> Tensor:
        return bias_ih + bias_hh

    def _run(
        self, projected: Tensor, weights: Sequence[Tensor], state: list[Tensor], sizes: list[int]
    ) -> tuple[Tensor, ...]:
        return bptt.rnn(projected, weights[0], state[0], self.nonlinearity, sizes)

    def cell(self, projected: Tensor, weights: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return (ACTIVATIONS[self.nonlinearity](torch.addmm(projected, state[0], weights[0].t())),)
