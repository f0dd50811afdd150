"""Recurrences along real data, with the derivative of every step.

RNN: J_t = D_t W_hh. LSTM: the state is [h, c], and c_t passes f_t ⊙ c_{t−1} on without W_hh. GRU, in both conventions:
z ⊙ h_{t−1} passes the old state on without W_hh.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor
from torch.linalg import matrix_norm

from chainrule.layers._cells import LSTM_GATES, activation, gru_mean, gru_reset_after, lstm_cell


@dataclass(frozen=True)
class Derivative(ABC):
    r"""Base class: the derivative of a step :math:`s_t = F(p_t, s_{t-1})` of a recurrence, at a set of points.

    The state s is h, (.., M); for an LSTM the concatenation [h, c], (.., 2M). p_t = W_ih x_t + b is the input's part,
    (.., G·M). Every factor has shape (.., M), where the dots are the points: (T, B) along whole rows; a single step is
    `derivative[t]`. No Jacobian is ever formed: J_t is a product with W_hh between elementwise factors.
    """

    weight_hh: Tensor  # (G·M, M)

    @abstractmethod
    def pull(self, ds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return J_tᵀ ds, (.., S), the gradient D_t δ_t at p_t, and the gradient at W_hh h_{t−1}, (.., G·M)."""

    @abstractmethod
    def push(self, ds: Tensor, dp: Tensor | None = None) -> Tensor:
        """Return J_t ds + ∂s_t/∂p_t dp: carry a change of s_{t−1} and of p_t forward over the step."""

    @abstractmethod
    def bound(self) -> Tensor:
        """Bound ‖J_t‖ by norms, (..): ‖D_t‖‖W_hh‖ plus the largest direct path past W_hh, if there is one."""

    def weight_gradient(self, d_recurrent: Tensor, h_before: Tensor) -> Tensor:
        """Return ∂L/∂W_hh = Σ_t (D_t δ_t) h_{t−1}ᵀ from `pull`'s d_recurrent (.., G·M) and h_{t−1} (.., M)."""
        return outer_sum(d_recurrent, h_before)

    def whole_gradient(self, ds: Tensor) -> Tensor:
        """Add to the gradient at c_t, which covers only the next step, the part through h_t."""
        return ds

    def __getitem__(self, point: int | slice) -> Self:
        return self.each(lambda factor: factor[point])

    def each(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Apply `function` to every factor, for example to select or reshape points."""
        factors = [field.name for field in fields(self) if field.name != "weight_hh"]
        return replace(self, **{name: function(getattr(self, name)) for name in factors})

    @property
    def points(self) -> torch.Size:
        """Shape of the set of points."""
        first = next(field.name for field in fields(self) if field.name != "weight_hh")
        factor: Tensor = getattr(self, first)
        return factor.shape[:-1]

    @property
    def state_size(self) -> int:
        """State size S: M, or 2M with a cell."""
        return self.weight_hh.shape[1]


@dataclass(frozen=True)
class Passage:
    """Every step of a layer along real data, with its derivative; tensors are (T, B, M)."""

    h: Tensor  # outputs, each computed by a single step from h_before
    h_before: Tensor  # h_{t−1}
    c: Tensor | None  # cell states, or `None`
    gates: dict[str, Tensor]  # gates by name, after σ or tanh
    derivative: Derivative  # derivatives at the points (T, B)

    @property
    def values(self) -> dict[str, Tensor]:
        """Gates by name, the hidden state, and the cell state if there is one."""
        return self.gates | {"hidden": self.h} | ({} if self.c is None else {"cell": self.c})


def outer_sum(left: Tensor, right: Tensor) -> Tensor:
    """Sum left rightᵀ over all points, (.., K) and (.., M) → (K, M)."""
    return left.flatten(0, -2).t() @ right.flatten(0, -2)


def leaf(x: Tensor) -> Tensor:
    """A copy of x to differentiate by."""
    return x.detach().requires_grad_()


def slopes(y: Tensor, *inputs: Tensor) -> list[Tensor]:
    """Return ∂y/∂x for each input of an elementwise function y."""
    return [part.detach() for part in torch.autograd.grad(y.sum(), inputs, retain_graph=True)]


@torch.enable_grad()
def rnn(projected: Tensor, weight_hh: Tensor, h_before: Tensor, nonlinearity: str) -> Passage:
    r"""Compute all steps :math:`h_t = f(p_t + W_{hh} h_{t-1})` at once from the known h_{t−1}, (T, B, M)."""
    a = leaf(projected + h_before @ weight_hh.t())
    h = activation(nonlinearity, a)
    return Passage(h.detach(), h_before, None, {}, RNNDerivative(weight_hh, *slopes(h, a)))


@dataclass(frozen=True)
class RNNDerivative(Derivative):
    """Derivative of an RNN; slope is D_t = f′(a_t)."""

    slope: Tensor

    def pull(self, ds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        d = self.slope * ds  # D_t δ_t
        return d @ self.weight_hh, d, d

    def push(self, ds: Tensor, dp: Tensor | None = None) -> Tensor:
        da = ds @ self.weight_hh.t()
        return self.slope * (da if dp is None else da + dp)

    def bound(self) -> Tensor:
        return self.slope.abs().amax(-1) * matrix_norm(self.weight_hh, 2)


def lstm(projected: Tensor, weight_hh: Tensor, h_before: Tensor, c0: Tensor) -> Passage:
    """Compute all steps at once from the known h_{t−1}; only c runs through time, number by number.

    projected: (T, B, 4M) in the gate order i, f, g, o; h_before: (T, B, M); c0: (B, M).
    """
    a = (projected + h_before @ weight_hh.t()).chunk(4, -1)
    gates = {name: activation(function, part) for (name, function), part in zip(LSTM_GATES.items(), a, strict=True)}
    before = [c0]
    for steps in zip(*a, strict=True):
        before.append(lstm_cell(steps, before[-1])[1])
    with torch.enable_grad():
        inputs, c_before = [leaf(part) for part in a], leaf(torch.stack(before[:-1]))
        h, c = lstm_cell(inputs, c_before)
        c_by_i, c_by_f, c_by_g, c_by_c = slopes(c, *inputs[:3], c_before)
        h_by_o, h_by_c = slopes(h, inputs[3], c)
    derivative = LSTMDerivative(weight_hh, c_by_i, c_by_f, c_by_g, c_by_c, h_by_o, h_by_c)
    return Passage(h.detach(), h_before, c.detach(), gates, derivative)


@dataclass(frozen=True)
class LSTMDerivative(Derivative):
    """Derivative of an LSTM; factors are partial derivatives of c_t or h_t by pre-activations, c_{t−1} or c_t."""

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
        # Per unit, ∂(h, c)/∂(i, f, g, o) is the 2×4 matrix [[h_by_c·r, h_by_o], [r, 0]] with r = (c_by_i, c_by_f,
        # c_by_g). Its norm is the square root of the larger eigenvalue of its 2×2 Gram matrix.
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


def gru_after(projected: Tensor, weight_hh: Tensor, bias_hn: Tensor, h_before: Tensor) -> Passage:
    """Compute all steps of a GRU whose reset comes after the product.

    projected: (T, B, 3M) in the order r, z, n; bias_hn: (M,) in q = W_hn h_{t−1} + b_hn; h_before: (T, B, M).
    """
    size = len(bias_hn)
    p_rz, p_n = projected.split([2 * size, size], -1)
    q_rz, q_n = (h_before @ weight_hh.t()).split([2 * size, size], -1)
    with torch.enable_grad():
        a_rz, a_n, q, before = leaf(p_rz + q_rz), leaf(p_n), leaf(q_n + bias_hn), leaf(h_before)
        h = gru_reset_after(a_rz, a_n, q, before)
        h_by_rz, h_by_n, h_by_q, h_by_h = slopes(h, a_rz, a_n, q, before)
    r, z = activation("sigmoid", a_rz.detach()).chunk(2, -1)
    gates = {"reset": r, "update": z, "candidate": activation("tanh", a_n.detach() + r * q.detach())}
    h_by_r, h_by_z = h_by_rz.chunk(2, -1)
    derivative = ResetAfterDerivative(weight_hh, h_by_r, h_by_z, h_by_n, h_by_q, h_by_h)
    return Passage(h.detach(), h_before, None, gates, derivative)


def gru_before(projected: Tensor, weight_hh: Tensor, h_before: Tensor) -> Passage:
    """Compute all steps of a GRU whose reset comes before the product; projected includes all biases."""
    size = h_before.shape[-1]
    p_rz, p_n = projected.split([2 * size, size], -1)
    a_r, a_z = (p_rz + h_before @ weight_hh[: 2 * size].t()).chunk(2, -1)
    with torch.enable_grad():
        at_r, before = leaf(a_r), leaf(h_before)
        r = activation("sigmoid", at_r)
        reset_by_r, reset_by_h = slopes(r * before, at_r, before)
        at_z, at_n = leaf(a_z), leaf(p_n + (r * before).detach() @ weight_hh[2 * size :].t())
        z = activation("sigmoid", at_z)
        h = gru_mean(z, at_n, before)
        h_by_n, h_by_z, h_by_h = slopes(h, at_n, at_z, before)
    gates = {"reset": r.detach(), "update": z.detach(), "candidate": activation("tanh", at_n.detach())}
    derivative = ResetBeforeDerivative(weight_hh, reset_by_h, reset_by_r, h_by_n, h_by_z, h_by_h)
    return Passage(h.detach(), h_before, None, gates, derivative)


@dataclass(frozen=True)
class ResetAfterDerivative(Derivative):
    """Partial derivatives of h_t by the pre-activations of r and z, by p_n, by q and by h_{t−1} directly."""

    h_by_r: Tensor
    h_by_z: Tensor
    h_by_n: Tensor
    h_by_q: Tensor
    h_by_h: Tensor

    def pull(self, ds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        d_rz = torch.cat([ds * self.h_by_r, ds * self.h_by_z], -1)
        d_recurrent = torch.cat([d_rz, ds * self.h_by_q], -1)
        return d_recurrent @ self.weight_hh + ds * self.h_by_h, torch.cat([d_rz, ds * self.h_by_n], -1), d_recurrent

    def push(self, ds: Tensor, dp: Tensor | None = None) -> Tensor:
        qr, qz, qn = (ds @ self.weight_hh.t()).chunk(3, -1)
        pr, pz, pn = (0, 0, 0) if dp is None else dp.chunk(3, -1)
        through_gates = self.h_by_r * (qr + pr) + self.h_by_z * (qz + pz)
        return through_gates + self.h_by_n * pn + self.h_by_q * qn + self.h_by_h * ds

    def bound(self) -> Tensor:
        # Per unit, ∂h/∂(r, z, q) is a row, whose norm is Euclidean.
        row = (self.h_by_r**2 + self.h_by_z**2 + self.h_by_q**2).sqrt()
        return row.amax(-1) * matrix_norm(self.weight_hh, 2) + self.h_by_h.amax(-1)


@dataclass(frozen=True)
class ResetBeforeDerivative(Derivative):
    """Partial derivatives by pre-activations; reset is r, and reset_by_r the derivative of r ⊙ h_{t−1}."""

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
