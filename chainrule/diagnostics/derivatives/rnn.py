"""The simple recurrent network: J_t = D_t W_hh."""

from dataclasses import dataclass

from torch import Tensor, ones_like
from torch.linalg import matrix_norm

from chainrule.diagnostics.derivatives.derivative import Derivative, Passage
from chainrule.layers.rnn import ACTIVATIONS

SLOPES = {  # f′(a) from y = f(a)
    "tanh": lambda y: 1 - y * y,
    "relu": lambda y: (y > 0).to(y.dtype),
    "sigmoid": lambda y: y * (1 - y),
    "identity": ones_like,
}


def rnn(projected: Tensor, weight_hh: Tensor, h_before: Tensor, nonlinearity: str) -> Passage:
    r"""All steps of :math:`h_t = f(p_t + W_{hh} h_{t-1})` at once, from the states that each started from.

    projected, h_before: (T, B, M).
    """
    h = ACTIVATIONS[nonlinearity](projected + h_before @ weight_hh.t())
    return Passage(h, h_before, None, {}, RNNDerivative(weight_hh, SLOPES[nonlinearity](h)))


@dataclass(frozen=True)
class RNNDerivative(Derivative):
    """slope: D_t = f′(a_t)."""

    slope: Tensor

    def pull(self, ds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        d = self.slope * ds  # D_t δ_t
        return d @ self.weight_hh, d, d

    def push(self, ds: Tensor, dp: Tensor | None = None) -> Tensor:
        da = ds @ self.weight_hh.t()
        return self.slope * (da if dp is None else da + dp)

    def bound(self) -> Tensor:
        return self.slope.abs().amax(-1) * matrix_norm(self.weight_hh, 2)
