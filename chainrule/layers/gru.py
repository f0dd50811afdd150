"""The gated recurrent unit layer, in both conventions."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from chainrule.layers import bptt
from chainrule.layers.recurrent import Backend, Recurrent


@final
class GRU(Recurrent):
    r"""A stack of gated recurrent units (Cho et al. 2014).

    .. math::
        r, z = \sigma(\cdot), \qquad h_t = (1 - z) \odot n + z \odot h_{t-1} \\
        n = \tanh(W_{in} x_t + b_{in} + r \odot (W_{hn} h_{t-1} + b_{hn})) \quad\text{(reset after the product)} \\
        n = \tanh(W_{in} x_t + b_{in} + W_{hn} (r \odot h_{t-1}) + b_{hn}) \quad\text{(reset before the product)}

    Gates are in the order r, z, n, as in torch.nn; z keeps the old state. Arguments are those of `RNN`, without
    `nonlinearity`, and:

    Args:
        reset_after: True as in cuDNN and torch.nn.GRU, False as in Cho et al. The two are different
            functions of the same parameters.

    >>> output, state = GRU(3, 4, reset_after=False)(torch.zeros(2, 5, 3))
    >>> output.shape
    torch.Size([2, 5, 4])
    """

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
            "GRU",
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
        self.reset_after = reset_after

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, reset_after={self.reset_after}"

    def vendor_computes_this(self) -> bool:
        return self.reset_after

    def _early_bias(self, bias_ih: Tensor, bias_hh: Tensor) -> Tensor:
        if not self.reset_after:
            return bias_ih + bias_hh
        gates = 2 * self.hidden_size  # b_hn is multiplied by the reset gate
        return torch.cat([bias_ih[:gates] + bias_hh[:gates], bias_ih[gates:]])

    def bias_hn(self, weights: Sequence[Tensor]) -> Tensor:
        """The bias that the reset gate multiplies, (M,); weights as for `input_bias`."""
        return weights[2][2 * self.hidden_size :] if self.bias else weights[0].new_zeros(self.hidden_size)

    def _run(
        self, projected: Tensor, weights: Sequence[Tensor], state: list[Tensor], sizes: list[int]
    ) -> tuple[Tensor, ...]:
        if self.reset_after:
            return bptt.gru_reset_after(projected, weights[0], self.bias_hn(weights), state[0], sizes)
        return bptt.gru_reset_before(projected, weights[0], state[0], sizes)

    def cell(self, projected: Tensor, weights: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        (h,), weight_hh, gates = state, weights[0], 2 * self.hidden_size
        p_rz, p_n = projected[:, :gates], projected[:, gates:]
        if self.reset_after:
            product = torch.mm(h, weight_hh.t())
            r, z = torch.sigmoid(p_rz + product[:, :gates]).chunk(2, 1)
            n = torch.tanh(p_n + r * (product[:, gates:] + self.bias_hn(weights)))
        else:
            r, z = torch.sigmoid(torch.addmm(p_rz, h, weight_hh[:gates].t())).chunk(2, 1)
            n = torch.tanh(torch.addmm(p_n, r * h, weight_hh[gates:].t()))
        return ((1 - z) * n + z * h,)
