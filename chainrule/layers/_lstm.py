"""The long short-term memory layer, and its gradient."""

from collections.abc import Sequence
from functools import partial
from typing import Any, final

import torch
from torch import Tensor

from chainrule._modes import custom_gradients_work, records_or_transforms
from chainrule.layers._bptt import (
    Product,
    activation,
    backwards,
    forwards,
    gradients_again,
    last,
    placeholder,
    previous,
    tanh,
    weight_gradient,
    wide_dtype,
)
from chainrule.layers._recurrent import Recurrent


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

    kernel = "LSTM"
    has_cell = True

    def _run(
        self, projected: Tensor, weights: Sequence[Tensor], state: list[Tensor], sizes: list[int]
    ) -> tuple[Tensor, ...]:
        return lstm(projected, weights[0], state[0], state[1], sizes)

    def cell(self, projected: Tensor, weights: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        h, c = state
        i, f, g, o = torch.addmm(projected, h, weights[0].t()).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # d * y * (1 - y)
_tanh_backward = torch.ops.aten.tanh_backward.grad_input  # d * (1 - y * y)


def lstm(
    projected: Tensor, weight_hh: Tensor, h0: Tensor, c0: Tensor, sizes: list[int]
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Run the recurrence over projected inputs.

    .. math::
        i, f, o = \sigma(a^{i,f,o}), \quad g = \tanh(a^g), \quad a = W_{ih} x_t + b_{ih} + b_{hh} + W_{hh} h_{t-1} \\
        c_t = f \odot c_{t-1} + i \odot g, \qquad h_t = o \odot \tanh(c_t)

    Args:
        projected: (R, 4M), W_ih x_t + b_ih + b_hh for every real element, gates in the order i, f, g, o.
        weight_hh: (4M, M).
        h0, c0: (B, M), rows longest first.
        sizes: b_t, the rows running at each step.

    Returns:
        h of every step (R, M), and h and c of each row after its last step, (B, M).
    """
    if not custom_gradients_work():
        return _plain(projected, weight_hh, h0, c0, sizes)
    h, h_last, c_last = _LSTM.apply(projected, placeholder(projected), weight_hh, h0, c0, sizes)
    return h, h_last, c_last


def _plain(
    projected: Tensor, weight_hh: Tensor, h0: Tensor, c0: Tensor, sizes: list[int], known: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The recurrence in plain operations; known: the gates of every step, where projected is a placeholder."""
    low, wide, weight = projected.dtype, wide_dtype(projected), weight_hh.to(projected.dtype)
    gates = [None] * len(sizes) if known is None else known.split(sizes)
    h, c, hs, cs = h0.to(low), c0.to(wide), [], []
    for p_t, known_t in zip(projected.split(sizes), gates, strict=True):
        a = (p_t.to(wide) + (h[: len(p_t)] @ weight.t()).to(wide)).chunk(4, 1)
        values = [None] * 4 if known_t is None else known_t.chunk(4, 1)
        functions = ("sigmoid", "sigmoid", "tanh", "sigmoid")
        i, f, g, o = (activation(*each) for each in zip(functions, a, values, strict=True))
        c = f * c[: len(p_t)] + i * g
        h = (o * c.tanh()).to(low)
        hs.append(h)
        cs.append(c)
    h, c = torch.cat(hs), torch.cat(cs)
    return h, last(h0, h, sizes).to(h0.dtype), last(c0, c, sizes).to(c0.dtype)


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        anchor: Tensor,
        weight_hh: Tensor,
        h0: Tensor,
        c0: Tensor,
        sizes: list[int],
    ) -> Any:
        low, wide = projected.dtype, wide_dtype(projected)
        size, weight = weight_hh.shape[1], weight_hh.to(low)
        rows = projected.shape[0]
        gates = projected.new_empty(rows, 4 * size, dtype=wide)
        h = projected.new_empty(rows, size)
        c = projected.new_empty(rows, size, dtype=wide)
        tanh_c = torch.empty_like(c)
        recurrent = Product(weight, h0.shape[0], len(sizes), wide)
        h_prev, c_prev = h0.to(low), c0.to(wide)
        i, f, g, o = gates.split(size, 1)
        for p_t, a_t, if_t, i_t, f_t, g_t, o_t, h_t, c_t, tanh_t in forwards(
            sizes, projected, gates, gates[:, : 2 * size], i, f, g, o, h, c, tanh_c
        ):
            running = len(p_t)
            recurrent.add(p_t, h_prev[:running], out=a_t)
            if_t.sigmoid_()
            tanh(g_t, out=g_t)
            o_t.sigmoid_()
            torch.mul(f_t, c_prev[:running], out=c_t).addcmul_(i_t, g_t)
            torch.mul(o_t, tanh(c_t, out=tanh_t), out=h_t)
            h_prev, c_prev = h_t, c_t
        ctx.save_for_backward(anchor, weight_hh, h0, c0, gates, h, c, tanh_c)
        ctx.sizes = sizes
        return h, last(h0, h, sizes).to(h0.dtype), last(c0, c, sizes).to(c0.dtype)

    @staticmethod
    def backward(ctx: Any, local: Tensor, dh_last: Tensor, dc_last: Tensor) -> Any:
        anchor, weight_hh, h0, c0, gates, h, c, tanh_c = ctx.saved_tensors
        sizes, size, low = ctx.sizes, h.shape[1], h.dtype
        if records_or_transforms(local, dh_last, dc_last):
            plain = partial(_plain, sizes=sizes, known=gates)
            found = gradients_again(plain, (anchor, weight_hh, h0, c0), (local, dh_last, dc_last))
            return found[0], None, *found[1:], None
        weight = weight_hh.to(low)
        d_gates = gates.new_empty(gates.shape, dtype=low)  # D_t δ_t of each gate
        dh, dc = dh_last.to(gates.dtype, copy=True), dc_last.to(gates.dtype, copy=True)
        scratch = torch.empty_like(dh)
        recurrent = Product(weight.t(), dh.shape[0], len(sizes), gates.dtype)
        c_prev = previous(c0, c, sizes)
        for i, f, g, o, c_before, tanh_t, d, d_i, d_f, d_g, d_o, local_t in backwards(
            sizes, *gates.split(size, 1), c_prev, tanh_c, d_gates, *d_gates.split(size, 1), local
        ):
            running = len(local_t)
            dh_t, dc_t, s = dh[:running], dc[:running], scratch[:running]
            dh_t.add_(local_t)  # δ_t, complete
            dc_t.add_(_tanh_backward(torch.mul(dh_t, o, out=s), tanh_t, grad_input=s))
            d_o.copy_(_sigmoid_backward(torch.mul(dh_t, tanh_t, out=s), o, grad_input=s))
            d_i.copy_(_sigmoid_backward(torch.mul(dc_t, g, out=s), i, grad_input=s))
            d_f.copy_(_sigmoid_backward(torch.mul(dc_t, c_before, out=s), f, grad_input=s))
            d_g.copy_(_tanh_backward(torch.mul(dc_t, i, out=s), g, grad_input=s))
            recurrent.into(d, out=dh_t)
            dc_t.mul_(f)
        d_weight = weight_gradient(d_gates, h0, h, sizes).to(weight_hh.dtype)
        return d_gates, None, d_weight, dh.to(h0.dtype), dc.to(c0.dtype), None
