"""The gated recurrent unit in both conventions: z ⊙ h_{t−1} passes the old state on without W_hh."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import matrix_norm

from chainrule.diagnostics.derivatives.derivative import Derivative, Passage, outer_sum


def gru_reset_after(projected: Tensor, weight_hh: Tensor, bias_hn: Tensor, h_before: Tensor) -> Passage:
    r"""All steps of :math:`h_t = (1 - z) \odot n + z \odot h_{t-1}` with :math:`n = \tanh(p_n + r \odot q)` at once.

    projected: (T, B, 3M), order r, z, n; bias_hn: (M,), inside q = W_hn h_{t−1} + b_hn; h_before: (T, B, M).
    """
    p_rz, p_n = projected.split([2 * len(bias_hn), len(bias_hn)], -1)
    q_rz, q_n = (h_before @ weight_hh.t()).split([2 * len(bias_hn), len(bias_hn)], -1)
    r, z = torch.sigmoid(p_rz + q_rz).chunk(2, -1)
    q = q_n + bias_hn
    n = torch.tanh(p_n + r * q)
    derivative = ResetAfterDerivative(
        weight_hh,
        n_by_r=q * r * (1 - r),
        n_by_q=r,
        h_by_n=(1 - z) * (1 - n * n),
        h_by_z=(h_before - n) * z * (1 - z),
        h_by_h=z,
    )
    return Passage((1 - z) * n + z * h_before, h_before, None, {"reset": r, "update": z, "candidate": n}, derivative)


def gru_reset_before(projected: Tensor, weight_hh: Tensor, h_before: Tensor) -> Passage:
    r"""The same with :math:`n = \tanh(p_n + W_{hn} (r \odot h_{t-1}))`; projected holds all biases."""
    size = h_before.shape[-1]
    p_rz, p_n = projected.split([2 * size, size], -1)
    r, z = torch.sigmoid(p_rz + h_before @ weight_hh[: 2 * size].t()).chunk(2, -1)
    n = torch.tanh(p_n + (r * h_before) @ weight_hh[2 * size :].t())
    derivative = ResetBeforeDerivative(
        weight_hh,
        reset=r,
        reset_by_r=h_before * r * (1 - r),
        h_by_n=(1 - z) * (1 - n * n),
        h_by_z=(h_before - n) * z * (1 - z),
        h_by_h=z,
    )
    return Passage((1 - z) * n + z * h_before, h_before, None, {"reset": r, "update": z, "candidate": n}, derivative)


@dataclass(frozen=True)
class ResetAfterDerivative(Derivative):
    """Partial derivatives by pre-activations; n_by_r and n_by_q are those of a_n, before its tanh."""

    n_by_r: Tensor
    n_by_q: Tensor
    h_by_n: Tensor
    h_by_z: Tensor
    h_by_h: Tensor

    def pull(self, ds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dn = ds * self.h_by_n
        d_rz = torch.cat([dn * self.n_by_r, ds * self.h_by_z], -1)
        d_recurrent = torch.cat([d_rz, dn * self.n_by_q], -1)
        return d_recurrent @ self.weight_hh + ds * self.h_by_h, torch.cat([d_rz, dn], -1), d_recurrent

    def push(self, ds: Tensor, dp: Tensor | None = None) -> Tensor:
        qr, qz, qn = (ds @ self.weight_hh.t()).chunk(3, -1)
        pr, pz, pn = (0, 0, 0) if dp is None else dp.chunk(3, -1)
        dn = pn + self.n_by_q * qn + self.n_by_r * (qr + pr)
        return self.h_by_n * dn + self.h_by_z * (qz + pz) + self.h_by_h * ds

    def bound(self) -> Tensor:
        # Of each unit, h by (r, z, q) is one row.
        row = ((self.h_by_n * self.n_by_r) ** 2 + self.h_by_z**2 + (self.h_by_n * self.n_by_q) ** 2).sqrt()
        return row.amax(-1) * matrix_norm(self.weight_hh, 2) + self.h_by_h.amax(-1)


@dataclass(frozen=True)
class ResetBeforeDerivative(Derivative):
    """Partial derivatives by pre-activations; reset is r, and reset_by_r that of r ⊙ h_{t−1}."""

    reset: Tensor
    reset_by_r: Tensor
    h_by_n: Tensor
    h_by_z: Tensor
    h_by_h: Tensor

    def pull(self, ds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weight_rz, weight_n = self._weights()
        dn = ds * self.h_by_n
        d_reset = dn @ weight_n  # at r ⊙ h_{t−1}
        d_rz = torch.cat([d_reset * self.reset_by_r, ds * self.h_by_z], -1)
        d = torch.cat([d_rz, dn], -1)
        return d_rz @ weight_rz + d_reset * self.reset + ds * self.h_by_h, d, d

    def push(self, ds: Tensor, dp: Tensor | None = None) -> Tensor:
        weight_rz, weight_n = self._weights()
        qr, qz = (ds @ weight_rz.t()).chunk(2, -1)
        pr, pz, pn = (0, 0, 0) if dp is None else dp.chunk(3, -1)
        dn = pn + (self.reset * ds + self.reset_by_r * (qr + pr)) @ weight_n.t()
        return self.h_by_n * dn + self.h_by_z * (qz + pz) + self.h_by_h * ds

    def bound(self) -> Tensor:
        weight_rz, weight_n = self._weights()
        weight_r, weight_z = weight_rz.chunk(2)
        through_reset = self.reset.amax(-1) + self.reset_by_r.abs().amax(-1) * matrix_norm(weight_r, 2)
        through_n = self.h_by_n.amax(-1) * matrix_norm(weight_n, 2) * through_reset
        return through_n + self.h_by_z.abs().amax(-1) * matrix_norm(weight_z, 2) + self.h_by_h.amax(-1)

    def weight_gradient(self, d_recurrent: Tensor, h_before: Tensor) -> Tensor:
        d_rz, dn = d_recurrent.split([2 * h_before.shape[-1], h_before.shape[-1]], -1)
        return torch.cat([outer_sum(d_rz, h_before), outer_sum(dn, self.reset * h_before)])

    def _weights(self) -> tuple[Tensor, Tensor]:
        size = self.weight_hh.shape[1]
        return self.weight_hh[: 2 * size], self.weight_hh[2 * size :]
