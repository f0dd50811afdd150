"""The recurrences over whole sequences with hand-written gradients, see `chainrule.kernels._bptt`.

In training on a CPU the steps in time run in compiled loops where `training_loops` returns them. Each function takes
its plain twin, the cell of `chainrule.layers._cells` step after step, which autograd differentiates where a
hand-written gradient does not work, and for second derivatives.
"""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chainrule.kernels._bptt import (
    Product,
    backwards,
    forwards,
    gradients_again,
    last,
    lstm_backward,
    lstm_forward,
    placeholder,
    previous,
    tanh,
    weight_gradient,
    wide_dtype,
)
from chainrule.kernels._compiled import compiled_loops
from chainrule.kernels._transforms import custom_gradients_work, records_or_transforms

Plain = Callable[..., tuple[Tensor, ...]]
LEAST_MULTIPLICATIONS = 2**24  # of the forward steps of one layer, from which a minute of training repays loading numba
_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # d * y * (1 - y)
_tanh_backward = torch.ops.aten.tanh_backward.grad_input  # d * (1 - y * y)

# f in place, and d * f'(a) from the output y = f(a), both without a further array.
NONLINEARITIES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "tanh": (lambda a: tanh(a, out=a), lambda d, y, out: torch.ops.aten.tanh_backward.grad_input(d, y, grad_input=out)),
    "relu": (Tensor.relu_, lambda d, y, out: torch.ops.aten.threshold_backward.grad_input(d, y, 0, grad_input=out)),
    "sigmoid": (Tensor.sigmoid_, lambda d, y, out: torch.ops.aten.sigmoid_backward.grad_input(d, y, grad_input=out)),
    "identity": (lambda a: a, lambda d, y, out: out.copy_(d)),
}


class Steps(NamedTuple):
    """A recurrence over all steps, and its gradient.

    Attributes:
        forward: from (sizes, projected, *operands): h of every step and each part of the last state; what is kept.
        backward: from (sizes, operands, kept, *gradients of the results): the gradients of projected and operands.
        known: the activations among what is kept, as the plain twin takes them.
    """

    forward: Callable[..., tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]
    backward: Callable[..., tuple[Tensor, ...]]
    known: Callable[..., tuple[Tensor, ...]]


def training_loops(weight_hh: Tensor, sizes: list[int]) -> ModuleType | None:
    """Return the compiled loops where a layer records its gradient, and its work repays loading them.

    `sizes` are the rows running at each step. Nothing else decides, so that the same training has the same bits.
    """
    trains = torch.is_grad_enabled() and weight_hh.requires_grad and custom_gradients_work()
    if not trains or sizes[0] * len(sizes) * weight_hh.numel() < LEAST_MULTIPLICATIONS:
        return None
    if compiled_loops(weight_hh) is None:
        return None
    from chainrule.kernels import _compiled_recurrent as loops

    return loops if weight_hh.shape[1] >= loops.panel_width(weight_hh.dtype) else None


def rnn(
    projected: Tensor, weight_hh: Tensor, h0: Tensor, nonlinearity: str, sizes: list[int], plain: Plain
) -> tuple[Tensor, ...]:
    """Run `RNN` over W_ih x_t + b_ih + b_hh of every real element, (R, M), from h0 (B, M), rows longest first.

    `sizes` are the rows running at each step; `plain` is the same function of (projected, weight_hh, h0), with known
    activations. `projected` may be overwritten. Returns h of every step (R, M), and h of each row after its last step,
    (B, M).
    """
    return _run(nonlinearity, sizes, plain, projected, weight_hh, h0)


def lstm(
    projected: Tensor, weight_hh: Tensor, h0: Tensor, c0: Tensor, sizes: list[int], plain: Plain
) -> tuple[Tensor, ...]:
    """Run `LSTM` over projected inputs (R, 4M), gates in the order i, f, g, o; other arguments as for `rnn`.

    Returns:
        h of every step (R, M), and h and c of each row after its last step, (B, M).
    """
    return _run("lstm", sizes, plain, projected, weight_hh, h0, c0)


def gru(
    projected: Tensor, weight_hh: Tensor, bias_hn: Tensor | None, h0: Tensor, sizes: list[int], plain: Plain
) -> tuple[Tensor, ...]:
    """Run `GRU` over projected inputs (R, 3M), order r, z, n; other arguments and results as for `rnn`.

    bias_hn: (M,), the bias inside the reset gate's reach; `None` for the reset gate before the product.
    """
    if bias_hn is not None:
        return _run("gru", sizes, plain, projected, weight_hh, bias_hn, h0)

    def plain_before(projected: Tensor, weight_hh: Tensor, h0: Tensor, **known: Any) -> tuple[Tensor, ...]:
        return plain(projected, weight_hh, None, h0, **known)

    return _run("gru-before", sizes, plain_before, projected, weight_hh, h0)


def _run(kind: str, sizes: list[int], plain: Plain, projected: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
    if not custom_gradients_work():
        return plain(projected, *operands)
    loops = training_loops(operands[0], sizes) if len({part.dtype for part in (projected, *operands)}) == 1 else None
    steps = _STEPS[kind] if loops is None else loops.steps(kind)
    results: tuple[Tensor, ...] = _Recurrence.apply(steps, sizes, plain, projected, placeholder(projected), *operands)
    return results


class _Recurrence(torch.autograd.Function):
    """A recurrence with its hand-written gradient, whose own gradient is the plain twin's."""

    @staticmethod
    def forward(
        ctx: Any, steps: Steps, sizes: list[int], plain: Plain, projected: Tensor, anchor: Tensor, *operands: Tensor
    ) -> Any:
        results, kept = steps.forward(sizes, projected.contiguous(), *operands)
        ctx.save_for_backward(anchor, *operands, *kept)
        ctx.steps, ctx.sizes, ctx.plain, ctx.operands = steps, sizes, plain, len(operands)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        anchor, *saved = ctx.saved_tensors
        operands, kept = saved[: ctx.operands], saved[ctx.operands :]
        found: Any
        if records_or_transforms(*gradients):
            plain = partial(ctx.plain, activations=ctx.steps.known(*kept))
            found = gradients_again(plain, (anchor, *operands), gradients)
        else:
            d_projected, *others = ctx.steps.backward(ctx.sizes, operands, kept, *gradients)
            found = d_projected, *(d.to(part.dtype) for d, part in zip(others, operands, strict=True))
        return None, None, None, found[0], None, *found[1:]


def _rnn(nonlinearity: str) -> Steps:
    activate, slope = NONLINEARITIES[nonlinearity]

    def forward(sizes: list[int], projected: Tensor, weight_hh: Tensor, h0: Tensor) -> Any:
        low, wide = projected.dtype, wide_dtype(projected)
        h = torch.empty_like(projected, dtype=wide)
        h_low = h if low == wide else torch.empty_like(projected)
        recurrent = Product(weight_hh.to(low), h0.shape[0], len(sizes), wide)
        h_prev = h0.to(low)
        for p_t, h_t, h_low_t in forwards(sizes, projected, h, h_low):
            activate(recurrent.add(p_t, h_prev[: len(p_t)], out=h_t))
            h_prev = h_t if low == wide else h_low_t.copy_(h_t)
        return (h_low, last(h0, h, sizes).to(h0.dtype)), (h, h_low)

    def backward(sizes: list[int], operands: list[Tensor], kept: list[Tensor], local: Tensor, dh_last: Tensor) -> Any:
        (weight_hh, h0), (h, h_low) = operands, kept
        d = torch.empty_like(h)  # D_t δ_t
        d_low = d if h.dtype == h_low.dtype else torch.empty_like(h_low)
        dh = dh_last.to(h.dtype, copy=True)
        recurrent = Product(weight_hh.to(h_low.dtype).t(), dh.shape[0], len(sizes), h.dtype)
        for h_t, d_t, d_low_t, local_t in backwards(sizes, h, d, d_low, local):
            dh_t = dh[: len(local_t)]
            dh_t.add_(local_t)  # δ_t, complete
            slope(dh_t, h_t, d_t)
            recurrent.into(d_t if d is d_low else d_low_t.copy_(d_t), out=dh_t)
        return d_low, weight_gradient(d_low, h0, h_low, sizes), dh

    return Steps(forward, backward, lambda h, h_low: (h.detach(),))


def _lstm_forward(sizes: list[int], projected: Tensor, weight_hh: Tensor, h0: Tensor, c0: Tensor) -> Any:
    low, wide = projected.dtype, wide_dtype(projected)
    rows, size = projected.shape[0], weight_hh.shape[1]
    gates = projected.new_empty(rows, 4 * size, dtype=wide)
    h = projected.new_empty(rows, size)
    c = projected.new_empty(rows, size, dtype=wide)
    tanh_c = torch.empty_like(c)
    recurrent = Product(weight_hh.to(low), h0.shape[0], len(sizes), wide)
    h_prev, c_prev = h0.to(low), c0.to(wide)
    for p_t, a_t, if_t, i_t, f_t, g_t, o_t, h_t, c_t, tanh_t in forwards(
        sizes, projected, gates, gates[:, : 2 * size], *gates.split(size, 1), h, c, tanh_c
    ):
        running = len(p_t)
        recurrent.add(p_t, h_prev[:running], out=a_t)
        lstm_forward((if_t, o_t), (i_t, f_t, g_t, o_t), c_prev[:running], c_t, tanh_t, h_t)
        h_prev, c_prev = h_t, c_t
    return (h, last(h0, h, sizes).to(h0.dtype), last(c0, c, sizes).to(c0.dtype)), (gates, h, c, tanh_c)


def _lstm_backward(
    sizes: list[int], operands: list[Tensor], kept: list[Tensor], local: Tensor, dh_last: Tensor, dc_last: Tensor
) -> Any:
    (weight_hh, h0, c0), (gates, h, c, tanh_c) = operands, kept
    size, low = h.shape[1], h.dtype
    d_gates = gates.new_empty(gates.shape, dtype=low)  # D_t δ_t of each gate
    dh, dc = dh_last.to(gates.dtype, copy=True), dc_last.to(gates.dtype, copy=True)
    scratch = torch.empty_like(dh)
    recurrent = Product(weight_hh.to(low).t(), dh.shape[0], len(sizes), gates.dtype)
    c_prev = previous(c0, c, sizes)
    for i, f, g, o, c_before, tanh_t, d, d_i, d_f, d_g, d_o, local_t in backwards(
        sizes, *gates.split(size, 1), c_prev, tanh_c, d_gates, *d_gates.split(size, 1), local
    ):
        running = len(local_t)
        dh_t, dc_t = dh[:running], dc[:running]
        dh_t.add_(local_t)  # δ_t, complete
        lstm_backward((i, f, g, o), c_before, tanh_t, dh_t, dc_t, scratch[:running], (d_i, d_f, d_g, d_o))
        recurrent.into(d, out=dh_t)
    return d_gates, weight_gradient(d_gates, h0, h, sizes), dh, dc


def _after_forward(sizes: list[int], projected: Tensor, weight_hh: Tensor, bias_hn: Tensor, h0: Tensor) -> Any:
    low, wide = projected.dtype, wide_dtype(projected)
    rows, size = projected.shape[0], weight_hh.shape[1]
    product = projected.new_empty(rows, 3 * size, dtype=wide)  # becomes r, z and q
    n = projected.new_empty(rows, size, dtype=wide)
    h = torch.empty_like(n)
    h_low = h if low == wide else torch.empty_like(n, dtype=low)
    bias = torch.cat([bias_hn.new_zeros(2 * size), bias_hn]).to(wide)
    recurrent = Product(weight_hh.to(low), h0.shape[0], len(sizes), wide)
    h_prev, h_prev_low = h0.to(wide), h0.to(low)
    r, z, q = product.split(size, 1)
    for p_rz, p_n, all_t, rz_t, r_t, z_t, q_t, n_t, h_t, h_low_t in forwards(
        sizes, *projected.split([2 * size, size], 1), product, product[:, : 2 * size], r, z, q, n, h, h_low
    ):
        running = len(p_n)
        recurrent.add(bias, h_prev_low[:running], out=all_t)
        rz_t.add_(p_rz).sigmoid_()
        tanh(torch.addcmul(p_n, r_t, q_t, out=n_t), out=n_t)
        h_prev = torch.lerp(n_t, h_prev[:running], z_t, out=h_t)
        h_prev_low = h_t if low == wide else h_low_t.copy_(h_t)
    return (h_low, last(h0, h, sizes).to(h0.dtype)), (product, n, h, h_low)


def _mean_backward(dh: Tensor, h_prev: Tensor, z: Tensor, n: Tensor, d_z: Tensor, d_n: Tensor, d_prev: Tensor) -> None:
    """Write the gradients of h = n + z ⊙ (h_prev − n) at the pre-activations of z and n, and at h_prev by this way."""
    torch.mul(dh, z, out=d_prev)
    torch.sub(h_prev, n, out=d_n).mul_(dh)
    d_z.copy_(_sigmoid_backward(d_n, z, grad_input=d_n))
    _tanh_backward(torch.sub(dh, d_prev, out=d_n), n, grad_input=d_n)


def _after_backward(
    sizes: list[int], operands: list[Tensor], kept: list[Tensor], local: Tensor, dh_last: Tensor
) -> Any:
    (weight_hh, _, h0), (product, n, h, h_low) = operands, kept
    size, low, wide = h.shape[1], h_low.dtype, h.dtype
    d = product.new_empty(len(product), 3 * size, dtype=low)  # at r, z and q: what W_hh sees
    d_n = torch.empty_like(h_low)
    dh = dh_last.to(wide, copy=True)
    scratch, carried = torch.empty_like(dh), torch.empty_like(dh)
    recurrent = Product(weight_hh.to(low).t(), dh.shape[0], len(sizes), wide)
    for r, z, q, n_t, h_prev, d_t, d_r, d_z, d_q, d_n_t, local_t in backwards(
        sizes, *product.split(size, 1), n, previous(h0, h, sizes), d, *d.split(size, 1), d_n, local
    ):
        running = len(local_t)
        dh_t, s, k = dh[:running], scratch[:running], carried[:running]
        dh_t.add_(local_t)  # δ_t, complete
        _mean_backward(dh_t, h_prev, z, n_t, d_z, s, k)
        d_n_t.copy_(s)
        torch.mul(s, r, out=d_q)
        d_r.copy_(_sigmoid_backward(s.mul_(q), r, grad_input=s))
        recurrent.add(k, d_t, out=dh_t)
    d_projected = torch.cat([d[:, : 2 * size], d_n], 1)
    return d_projected, weight_gradient(d, h0, h_low, sizes), d[:, 2 * size :].sum(0, dtype=wide), dh


def _before_forward(sizes: list[int], projected: Tensor, weight_hh: Tensor, h0: Tensor) -> Any:
    low, wide = projected.dtype, wide_dtype(projected)
    rows, size = projected.shape[0], weight_hh.shape[1]
    rz = projected.new_empty(rows, 2 * size, dtype=wide)
    n = projected.new_empty(rows, size, dtype=wide)
    h = torch.empty_like(n)
    h_low = h if low == wide else torch.empty_like(n, dtype=low)
    reset = torch.empty_like(h_low)  # r ⊙ h_{t-1}
    weight = weight_hh.to(low)
    gate = Product(weight[: 2 * size], h0.shape[0], len(sizes), wide)
    candidate = Product(weight[2 * size :], h0.shape[0], len(sizes), wide)
    h_prev, h_prev_low = h0.to(wide), h0.to(low)
    r, z = rz.split(size, 1)
    for p_rz, p_n, rz_t, r_t, z_t, n_t, h_t, h_low_t, reset_t in forwards(
        sizes, projected[:, : 2 * size], projected[:, 2 * size :], rz, r, z, n, h, h_low, reset
    ):
        running = len(p_n)
        h_prev = h_prev[:running]
        gate.add(p_rz, h_prev_low[:running], out=rz_t).sigmoid_()
        torch.mul(r_t, h_prev, out=reset_t)
        tanh(candidate.add(p_n, reset_t, out=n_t), out=n_t)
        h_prev = torch.lerp(n_t, h_prev, z_t, out=h_t)
        h_prev_low = h_t if low == wide else h_low_t.copy_(h_t)
    return (h_low, last(h0, h, sizes).to(h0.dtype)), (rz, n, h, h_low, reset)


def _before_backward(
    sizes: list[int], operands: list[Tensor], kept: list[Tensor], local: Tensor, dh_last: Tensor
) -> Any:
    (weight_hh, h0), (rz, n, h, h_low, reset) = operands, kept
    size, low, wide = h.shape[1], h_low.dtype, h.dtype
    d = rz.new_empty(len(rz), 3 * size, dtype=low)
    dh = dh_last.to(wide, copy=True)
    scratch, carried = torch.empty_like(dh), torch.empty_like(dh)
    weight = weight_hh.to(low)
    gate = Product(weight[: 2 * size].t(), dh.shape[0], len(sizes), wide)
    candidate = Product(weight[2 * size :].t(), dh.shape[0], len(sizes), wide)
    for r, z, n_t, h_prev, d_rz, d_r, d_z, d_n, local_t in backwards(
        sizes, *rz.split(size, 1), n, previous(h0, h, sizes), d[:, : 2 * size], *d.split(size, 1), local
    ):
        running = len(local_t)
        dh_t, s, k = dh[:running], scratch[:running], carried[:running]
        dh_t.add_(local_t)  # δ_t, complete
        _mean_backward(dh_t, h_prev, z, n_t, d_z, s, k)
        d_n.copy_(s)
        candidate.into(d_n, out=s)  # at r ⊙ h_{t-1}
        k.addcmul_(s, r)
        d_r.copy_(_sigmoid_backward(s.mul_(h_prev), r, grad_input=s))
        gate.add(k, d_rz, out=dh_t)
    d_gates = weight_gradient(d[:, : 2 * size], h0, h_low, sizes)
    return d, torch.cat([d_gates, torch.mm(d[:, 2 * size :].t(), reset)]), dh


_STEPS = {
    "lstm": Steps(_lstm_forward, _lstm_backward, lambda gates, h, c, tanh_c: (gates,)),
    "gru": Steps(_after_forward, _after_backward, lambda product, n, *h: (product[:, : 2 * n.shape[1]], n)),
    "gru-before": Steps(_before_forward, _before_backward, lambda rz, n, *others: (rz, n)),
    **{nonlinearity: _rnn(nonlinearity) for nonlinearity in NONLINEARITIES},
}
