"""The recurrent layers, RNN, LSTM and GRU, and a stack of them by the name of its cell."""

from collections.abc import Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from chainrule._ranges import check_shares, check_sizes
from chainrule.kernels._recurrent import gru, lstm, rnn
from chainrule.layers._cells import FUNCTIONS, Known, gru_cell, lstm_cell, over_steps, pre_activation, rnn_cell
from chainrule.layers._recurrent import Backend, Recurrent
from chainrule.option_error import OptionError


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
        if nonlinearity not in FUNCTIONS:
            raise OptionError("nonlinearity", f"expected one of {', '.join(FUNCTIONS)}, got {nonlinearity!r}")
        self.kernel = "RNN_RELU" if nonlinearity == "relu" else "RNN_TANH"  # the parameters are the same for any f
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            backend=backend, device=device, dtype=dtype,
        )  # fmt: skip
        self.nonlinearity = nonlinearity

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, nonlinearity={self.nonlinearity}"

    def vendor_computes_this(self) -> bool:
        return self.nonlinearity in ("tanh", "relu")

    def _run(
        self, projected: Tensor, weights: Sequence[Tensor], state: list[Tensor], sizes: list[int]
    ) -> tuple[Tensor, ...]:
        plain = partial(_plain_rnn, nonlinearity=self.nonlinearity, sizes=sizes)
        return rnn(projected, weights[0], state[0], self.nonlinearity, sizes, plain)

    def cell(self, projected: Tensor, weights: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return rnn_cell(projected, weights[0], state[0], self.nonlinearity)


def _plain_rnn(
    projected: Tensor, weight_hh: Tensor, h0: Tensor, nonlinearity: str, sizes: list[int], activations: Known = None
) -> tuple[Tensor, ...]:
    def cell(p: Tensor, state: Sequence[Tensor], values: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return rnn_cell(p, weight_hh, state[0], nonlinearity, *values[:1])

    return over_steps(cell, projected, [h0], sizes, activations)


@final
class LSTM(Recurrent):
    r"""A stack of long short-term memory layers (Hochreiter and Schmidhuber 1997, with forget gates: Gers et al. 2000).

    .. math::
        i, f, o = \sigma(\cdot), \quad g = \tanh(\cdot)
        \quad\text{of}\quad W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh} \\
        c_t = f \odot c_{t-1} + i \odot g, \qquad h_t = o \odot \tanh(c_t)

    Gates are in the order i, f, g, o, as in torch.nn. Arguments are as for `RNN`, without `nonlinearity`; the state
    is the pair (h, c).

    >>> layer = LSTM(3, 4, num_layers=2)
    >>> output, (h, c) = layer(torch.zeros(2, 5, 3), lengths=torch.tensor([5, 0]))
    >>> output.shape, c.shape
    (torch.Size([2, 5, 4]), torch.Size([2, 2, 4]))
    """

    kernel = "LSTM"
    has_cell = True

    def _run(
        self, projected: Tensor, weights: Sequence[Tensor], state: list[Tensor], sizes: list[int]
    ) -> tuple[Tensor, ...]:
        h, c = state
        return lstm(projected, weights[0], h, c, sizes, partial(_plain_lstm, sizes=sizes))

    def cell(self, projected: Tensor, weights: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        h, c = state
        return lstm_cell(pre_activation(projected, h, weights[0]).chunk(4, 1), c)


def _plain_lstm(
    projected: Tensor, weight_hh: Tensor, h0: Tensor, c0: Tensor, sizes: list[int], activations: Known = None
) -> tuple[Tensor, ...]:
    def cell(p: Tensor, state: Sequence[Tensor], gates: Sequence[Tensor]) -> tuple[Tensor, ...]:
        h, c = state
        return lstm_cell(pre_activation(p, h, weight_hh).chunk(4, 1), c, gates[0].chunk(4, 1) if gates else None)

    return over_steps(cell, projected, [h0, c0], sizes, activations)


@final
class GRU(Recurrent):
    r"""A stack of gated recurrent units (Cho et al. 2014).

    .. math::
        r, z = \sigma(\cdot), \qquad h_t = (1 - z) \odot n + z \odot h_{t-1} \\
        n = \tanh(W_{in} x_t + b_{in} + r \odot (W_{hn} h_{t-1} + b_{hn})) \quad\text{(reset after the product)} \\
        n = \tanh(W_{in} x_t + b_{in} + W_{hn} (r \odot h_{t-1}) + b_{hn}) \quad\text{(reset before the product)}

    Gates are in the order r, z, n, as in torch.nn; z keeps the old state. Arguments are as for `RNN`, without
    `nonlinearity`, and:

    Args:
        reset_after: True as in cuDNN and torch.nn.GRU, False as in Cho et al. The two are different
            functions of the same parameters.

    >>> output, state = GRU(3, 4, reset_after=False)(torch.zeros(2, 5, 3))
    >>> output.shape
    torch.Size([2, 5, 4])
    """

    kernel = "GRU"

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
        reset_after: bool = True,
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            backend=backend, device=device, dtype=dtype,
        )  # fmt: skip
        self.reset_after = reset_after

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, reset_after={self.reset_after}"

    def vendor_computes_this(self) -> bool:
        return self.reset_after

    def _early_bias(self, bias_ih: Tensor, bias_hh: Tensor) -> Tensor:
        if not self.reset_after:
            return super()._early_bias(bias_ih, bias_hh)
        gates = 2 * self.hidden_size  # b_hn is multiplied by the reset gate
        return torch.cat([bias_ih[:gates] + bias_hh[:gates], bias_ih[gates:]])

    def bias_hn(self, weights: Sequence[Tensor]) -> Tensor:
        """Return the bias that the reset gate multiplies, (M,); weights as for `input_bias`."""
        return weights[2][2 * self.hidden_size :] if self.bias else weights[0].new_zeros(self.hidden_size)

    def _run(
        self, projected: Tensor, weights: Sequence[Tensor], state: list[Tensor], sizes: list[int]
    ) -> tuple[Tensor, ...]:
        bias_hn = self.bias_hn(weights) if self.reset_after else None
        return gru(projected, weights[0], bias_hn, state[0], sizes, partial(_plain_gru, sizes=sizes))

    def cell(self, projected: Tensor, weights: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return gru_cell(projected, weights[0], self.bias_hn(weights) if self.reset_after else None, state[0])


def _plain_gru(
    projected: Tensor,
    weight_hh: Tensor,
    bias_hn: Tensor | None,
    h0: Tensor,
    sizes: list[int],
    activations: Known = None,
) -> tuple[Tensor, ...]:
    return over_steps(
        lambda p, state, y: gru_cell(p, weight_hh, bias_hn, *state, *y), projected, [h0], sizes, activations
    )


CELLS = ("lstm", "gru", "rnn")


def recurrent_stack(
    cell: str,
    input_size: int,
    hidden_size: int,
    num_layers: int = 1,
    dropout: float = 0.0,
    *,
    bidirectional: bool = False,
    reset_after: bool = True,
    nonlinearity: str = "tanh",
) -> Recurrent:
    """Recurrent layers with recurrences orthogonal gate by gate and open forget gates (Jozefowicz et al. 2015)."""
    check_sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
    check_shares(dropout=dropout)
    layers: Recurrent
    match cell:
        case "lstm":
            layers = LSTM(input_size, hidden_size, num_layers, dropout=dropout, bidirectional=bidirectional)
        case "gru":
            layers = GRU(
                input_size,
                hidden_size,
                num_layers,
                dropout=dropout,
                bidirectional=bidirectional,
                reset_after=reset_after,
            )
        case "rnn":
            layers = RNN(
                input_size, hidden_size, num_layers, nonlinearity, dropout=dropout, bidirectional=bidirectional
            )
        case _:
            raise OptionError("cell", f"expected one of {', '.join(CELLS)}, got {cell!r}")
    _draw_weights(layers)
    return layers


def _draw_weights(layers: Recurrent) -> None:
    size = layers.hidden_size
    for name, parameter in layers.named_parameters():
        if parameter.is_meta:  # no numbers to draw, and a second's import to find that out
            return
        if name.startswith("weight_hh"):
            for gate in parameter.data.split(size):
                nn.init.orthogonal_(gate)
        elif name.startswith("bias"):
            nn.init.zeros_(parameter)
            if isinstance(layers, LSTM) and name.startswith("bias_ih"):
                nn.init.ones_(parameter.data[size : 2 * size])
        else:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
