"""The long short-term memory: its state is [h, c], and c_t passes f_t ⊙ c_{t−1} on without W_hh."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import matrix_norm

from chainrule.diagnostics.derivatives.derivative import Derivative, Passage


def lstm(projected: Tensor, weight_hh: Tensor, h_before: Tensor, c0: Tensor) -> Passage:
    r"""All steps at once, from the states that each started from; only c runs through time, elementwise.

    .. math:: c_t = f \odot c_{t-1} + i \odot g, \qquad h_t = o \odot \tanh(c_t)

    projected: (T, B, 4M), gates in the order i, f, g, o; h_before: (T, B, M); c0: (B, M).
    """
    a_i, a_f, a_g, a_o = (projected + h_before @ weight_hh.t()).chunk(4, -1)
    i, f, g, o = torch.sigmoid(a_i), torch.sigmoid(a_f), torch.tanh(a_g), torch.sigmoid(a_o)
    cells, c_t = [], c0
    for f_t, gain_t in zip(f, i * g, strict=True):
        c_t = torch.addcmul(gain_t, f_t, c_t)
        cells.append(c_t)
    c = torch.stack(cells)
    c_before, tanh_c = torch.cat([c0.unsqueeze(0), c[:-1]]), torch.tanh(c)
    derivative = LSTMDerivative(
        weight_hh,
        c_by_i=g * i * (1 - i),
        c_by_f=c_before * f * (1 - f),
        c_by_g=i * (1 - g * g),
        c_by_c=f,
        h_by_o=tanh_c * o * (1 - o),
        h_by_c=o * (1 - tanh_c * tanh_c),
    )
    return Passage(o * tanh_c, h_before, c, {"input": i, "forget": f, "candidate": g, "output": o}, derivative)


@dataclass(frozen=True)
class LSTMDerivative(Derivative):
    """Each factor is one partial derivative of c_t or h_t: by a gate's pre-activation, by c_{t−1} or by c_t."""

    c_by_i: Tensor
    c_by_f: Tensor
    c_by_g: Tensor
    c_by_c: Tensor
    h_by_o: Tensor
    h_by_c: Tensor

    def pull(self, ds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dh, dc = self.whole_gradient(ds).chunk(2, -1)
        d = torch.cat([dc * self.c_by_i, dc * self.c_by_f, dc * self.c_by_g, dh * self.h_by_o], -1)  # D_t δ_t
        return torch.cat([d @ self.weight_hh, dc * self.c_by_c], -1), d, d

    def push(self, ds: Tensor, dp: Tensor | None = None) -> Tensor:
        dh, dc = ds.chunk(2, -1)
        da = dh @ self.weight_hh.t()
        di, df, dg, do = (da if dp is None else da + dp).chunk(4, -1)
        dc = self.c_by_c * dc + self.c_by_i * di + self.c_by_f * df + self.c_by_g * dg
        return torch.cat([self.h_by_c * dc + self.h_by_o * do, dc], -1)

    def bound(self) -> Tensor:
        # Of each unit, (h, c) by (i, f, g, o) is the 2×4 matrix [[h_by_c·r, h_by_o], [r, 0]] with r = (c_by_i, c_by_f,
        # c_by_g): its norm is the root of the larger eigenvalue of its 2×2 Gram matrix.
        r = self.c_by_i**2 + self.c_by_f**2 + self.c_by_g**2
        half_trace = (r * (1 + self.h_by_c**2) + self.h_by_o**2) / 2
        determinant = r * self.h_by_o**2
        gates = (half_trace + (half_trace**2 - determinant).clamp(min=0).sqrt()).sqrt()
        cell = self.c_by_c * (1 + self.h_by_c**2).sqrt()  # the path past W_hh: c_{t−1} to c_t and h_t
        return gates.amax(-1) * matrix_norm(self.weight_hh, 2) + cell.amax(-1)

    def whole_gradient(self, ds: Tensor) -> Tensor:
        dh, dc = ds.chunk(2, -1)
        return torch.cat([dh, dc + dh * self.h_by_c], -1)

    @property
    def state_size(self) -> int:
        return 2 * self.weight_hh.shape[1]
