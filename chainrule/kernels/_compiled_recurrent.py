"""The recurrences in training, their steps in compiled loops, so that no Python is between products and nonlinearities.

Arrays are flat, as in `chainrule.kernels._bptt`, and named as in `chainrule.kernels._recurrent`. Each loop runs some
rows of the batch, from row `first` on: at step t those from `starts[t]` on, `counts[t]` of them. Rows do not meet, so
that threads share them out. A row is read in short passes of one written array each, which LLVM turns into vectors.
What is not needed twice is overwritten, as the first use of memory costs as much as the nonlinearities.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from chainrule.kernels._bptt import last, weight_gradient
from chainrule.kernels._compiled_math import sigmoid, tanh
from chainrule.kernels._compiled_models import KINDS, copy
from chainrule.kernels._compiled_products import add_product, panel_width, panels
from chainrule.kernels._machine_code import compiled_sums, kept
from chainrule.kernels._products import product
from chainrule.kernels._recurrent import Steps

__all__ = ["LSTM", "RESET_AFTER", "RESET_BEFORE", "panel_width", "rnn"]

_threaded = njit(_nrt=False, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
_LEAST_ROWS = 8  # of a thread: fewer do not pay for reading the weights
_TANH, _RELU, _SIGMOID = KINDS["tanh"], KINDS["relu"], KINDS["sigmoid"]


def _over_rows(loop: Callable[..., None], sizes: list[int], *arguments: Tensor | int) -> None:
    """Run a loop over all rows of a batch, some in each of torch's threads; results are written into arguments."""
    arrays = [part.detach().numpy() if isinstance(part, Tensor) else part for part in arguments]
    running = np.array(sizes)
    ends = np.searchsorted(-running, -np.arange(1, sizes[0] + 1), side="right").cumsum()  # elements of the first rows
    threads = max(1, min(torch.get_num_threads(), sizes[0] // _LEAST_ROWS))
    bounds = np.searchsorted(ends, ends[-1] * np.arange(1, threads) // threads)

    def run(first: int, end: int) -> None:
        counts = np.minimum(running, end) - first
        loop(first, (np.cumsum(running) - running + first)[counts > 0], counts[counts > 0], *arrays)

    shares = list(pairwise([0, *bounds.tolist(), sizes[0]]))
    if threads == 1:
        run(*shares[0])
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, *zip(*shares, strict=True)))


def _copied(part: Tensor) -> Tensor:
    return part.clone(memory_format=torch.contiguous_format)


@compiled_sums
def _add(x: Any, y: Any) -> None:
    """y += x."""
    for j in range(len(y)):
        y[j] += x[j]


@compiled_sums
def _activate(kind: int, a: Any) -> None:
    """a = f(a)."""
    if kind == _TANH:
        for j in range(len(a)):
            a[j] = tanh(a[j])
    elif kind == _RELU:
        for j in range(len(a)):
            a[j] = a.dtype.type(0) if a[j] < 0 else a[j]  # NaN stays
    elif kind == _SIGMOID:
        for j in range(len(a)):
            a[j] = sigmoid(a[j])


@compiled_sums
def _descend(kind: int, d: Any, y: Any, out: Any) -> None:
    """out = d f'(a), from y = f(a)."""
    one = y.dtype.type(1)
    if kind == _TANH:
        for j in range(len(y)):
            out[j] = d[j] * (one - y[j] * y[j])
    elif kind == _RELU:
        for j in range(len(y)):
            out[j] = y.dtype.type(0) if y[j] <= 0 else d[j]
    elif kind == _SIGMOID:
        for j in range(len(y)):
            out[j] = d[j] * (y[j] * (one - y[j]))
    else:
        copy(d, out)


@compiled_sums
def _gate(d: Any, x: Any, y: Any, out: Any) -> None:
    """out = d x f'(a), from y = f(a) of the sigmoid."""
    for j in range(len(y)):
        out[j] = d[j] * x[j] * (y[j] * (y.dtype.type(1) - y[j]))


@compiled_sums
def _mix(z: Any, n: Any, h: Any, out: Any) -> None:
    """out = (1 − z) n + z h."""
    for j in range(len(n)):
        out[j] = n[j] + z[j] * (h[j] - n[j])


@compiled_sums
def _unmix(d: Any, z: Any, n: Any, h: Any, d_z: Any, d_n: Any) -> None:
    """Gradients at the pre-activations of z and n, from d at (1 − z) n + z h; d becomes that at h."""
    one = z.dtype.type(1)
    for j in range(len(d)):
        d_z[j] = d[j] * (h[j] - n[j]) * (z[j] * (one - z[j]))
    for j in range(len(d)):
        d_n[j] = d[j] * (one - z[j]) * (one - n[j] * n[j])
    for j in range(len(d)):
        d[j] *= z[j]


@kept
@_threaded
def _rnn_loop(first: int, starts: Any, counts: Any, kind: int, weight: Any, h0: Any, h: Any) -> None:
    for t in range(len(starts)):
        now, count = starts[t], counts[t]
        add_product((h[starts[t - 1] :] if t else h0[first:])[:count], weight, h[now : now + count])
        for row in range(now, now + count):
            _activate(kind, h[row])


@kept
@_threaded
def _rnn_back(
    first: int, starts: Any, counts: Any, kind: int, weight: Any, h: Any, local: Any, d: Any, dh: Any
) -> None:
    for t in range(len(starts) - 1, -1, -1):
        now, count = starts[t], counts[t]
        for row in range(count):
            dh_t = dh[first + row]
            _add(local[now + row], dh_t)
            _descend(kind, dh_t, h[now + row], d[now + row])
            dh_t[:] = 0
        add_product(d[now : now + count], weight, dh[first : first + count])


def rnn(nonlinearity: str) -> Steps:
    """Return the steps of `RNN`."""
    kind = KINDS[nonlinearity]

    def forward(sizes: list[int], projected: Tensor, weight_hh: Tensor, h0: Tensor) -> Any:
        h = projected.new_empty(0).set_(projected.detach())  # the same memory, but another tensor for autograd
        _over_rows(_rnn_loop, sizes, kind, panels(weight_hh), h0.contiguous(), h)
        return (h, last(h0, h, sizes)), (h,)

    def backward(sizes: list[int], operands: list[Tensor], kept: list[Tensor], local: Tensor, dh_last: Tensor) -> Any:
        (weight_hh, h0), (h,) = operands, kept
        d, dh = torch.empty_like(h), _copied(dh_last)
        _over_rows(_rnn_back, sizes, kind, panels(weight_hh.t()), h, local.contiguous(), d, dh)
        return d, weight_gradient(d, h0, h, sizes), dh

    return Steps(forward, backward, lambda h: (h.detach(),))


@kept
@_threaded
def _lstm_loop(
    first: int, starts: Any, counts: Any, weight: Any, h0: Any, c0: Any, gates: Any, h: Any, c: Any, tanh_c: Any
) -> None:
    size = h.shape[1]
    for t in range(len(starts)):
        now, count = starts[t], counts[t]
        c_prev = c[starts[t - 1] :] if t else c0[first:]
        add_product((h[starts[t - 1] :] if t else h0[first:])[:count], weight, gates[now : now + count])
        for row in range(count):
            a, before = gates[now + row], c_prev[row]
            c_t, tanh_t, h_t = c[now + row], tanh_c[now + row], h[now + row]
            i, f, g, o = a[:size], a[size : 2 * size], a[2 * size : 3 * size], a[3 * size :]
            _activate(_SIGMOID, a[: 2 * size])
            _activate(_TANH, g)
            _activate(_SIGMOID, o)
            for j in range(size):
                c_t[j] = f[j] * before[j] + i[j] * g[j]
            for j in range(size):
                tanh_t[j] = tanh(c_t[j])
            for j in range(size):
                h_t[j] = o[j] * tanh_t[j]


@kept
@_threaded
def _lstm_back(
    first: int, starts: Any, counts: Any, weight: Any, c0: Any, gates: Any, c: Any, tanh_c: Any, local: Any, d: Any,
    dh: Any, dc: Any,
) -> None:  # fmt: skip
    size, one = c.shape[1], c.dtype.type(1)
    for t in range(len(starts) - 1, -1, -1):
        now, count = starts[t], counts[t]
        c_prev = c[starts[t - 1] :] if t else c0[first:]
        for row in range(count):
            a, d_a, tanh_t, dh_t, dc_t = (
                gates[now + row],
                d[now + row],
                tanh_c[now + row],
                dh[first + row],
                dc[first + row],
            )
            i, f, g, o = a[:size], a[size : 2 * size], a[2 * size : 3 * size], a[3 * size :]
            d_g = d_a[2 * size : 3 * size]
            _add(local[now + row], dh_t)
            for j in range(size):
                dc_t[j] += dh_t[j] * o[j] * (one - tanh_t[j] * tanh_t[j])
            _gate(dc_t, g, i, d_a[:size])
            _gate(dc_t, c_prev[row], f, d_a[size : 2 * size])
            for j in range(size):
                d_g[j] = dc_t[j] * i[j] * (one - g[j] * g[j])
            _gate(dh_t, tanh_t, o, d_a[3 * size :])
            for j in range(size):
                dc_t[j] *= f[j]
            dh_t[:] = 0
        add_product(d[now : now + count], weight, dh[first : first + count])


def _lstm_forward(sizes: list[int], gates: Tensor, weight_hh: Tensor, h0: Tensor, c0: Tensor) -> Any:
    h, c, tanh_c = (gates.new_empty(len(gates), weight_hh.shape[1]) for _ in range(3))
    _over_rows(_lstm_loop, sizes, panels(weight_hh), h0.contiguous(), c0.contiguous(), gates, h, c, tanh_c)
    return (h, last(h0, h, sizes), last(c0, c, sizes)), (gates.detach(), h, c, tanh_c)


def _lstm_backward(
    sizes: list[int], operands: list[Tensor], kept: list[Tensor], local: Tensor, dh_last: Tensor, dc_last: Tensor
) -> Any:
    (weight_hh, h0, c0), (gates, h, c, tanh_c) = operands, kept
    d, dh, dc = torch.empty_like(gates), _copied(dh_last), _copied(dc_last)
    rest = (c0.contiguous(), gates, c, tanh_c, local.contiguous(), d, dh, dc)
    _over_rows(_lstm_back, sizes, panels(weight_hh.t()), *rest)
    return d, weight_gradient(d, h0, h, sizes), dh, dc


LSTM = Steps(_lstm_forward, _lstm_backward, lambda gates, h, c, tanh_c: (gates,))


@kept
@_threaded
def _after_loop(
    first: int, starts: Any, counts: Any, gate: Any, candidate: Any, bias: Any, h0: Any, gates: Any, q: Any, h: Any
) -> None:
    size = h.shape[1]
    for t in range(len(starts)):
        now, count = starts[t], counts[t]
        h_prev = (h[starts[t - 1] :] if t else h0[first:])[:count]
        for row in range(now, now + count):
            copy(bias, q[row])
        add_product(h_prev, gate, gates[now : now + count, : 2 * size])
        add_product(h_prev, candidate, q[now : now + count])
        for row in range(count):
            a, q_t = gates[now + row], q[now + row]
            r, n = a[:size], a[2 * size :]
            _activate(_SIGMOID, a[: 2 * size])
            for j in range(size):
                n[j] = tanh(n[j] + r[j] * q_t[j])
            _mix(a[size : 2 * size], n, h_prev[row], h[now + row])


@kept
@_threaded
def _after_back(
    first: int, starts: Any, counts: Any, gate: Any, candidate: Any, h0: Any, gates: Any, q: Any, h: Any, local: Any,
    d: Any, d_q: Any, dh: Any,
) -> None:  # fmt: skip
    size = h.shape[1]
    for t in range(len(starts) - 1, -1, -1):
        now, count = starts[t], counts[t]
        h_prev, dh_t = h[starts[t - 1] :] if t else h0[first:], dh[first : first + count]
        for row in range(count):
            a, d_a, d_q_t = gates[now + row], d[now + row], d_q[now + row]
            r, d_n = a[:size], d_a[2 * size :]
            _add(local[now + row], dh_t[row])
            _unmix(dh_t[row], a[size : 2 * size], a[2 * size :], h_prev[row], d_a[size : 2 * size], d_n)
            for j in range(size):
                d_q_t[j] = d_n[j] * r[j]
            _gate(d_n, q[now + row], r, d_a[:size])
        add_product(d[now : now + count, : 2 * size], gate, dh_t)
        add_product(d_q[now : now + count], candidate, dh_t)


def _after_forward(sizes: list[int], gates: Tensor, weight_hh: Tensor, bias_hn: Tensor, h0: Tensor) -> Any:
    q, h = (gates.new_empty(len(gates), weight_hh.shape[1]) for _ in range(2))
    _over_rows(_after_loop, sizes, *_split(weight_hh), bias_hn.contiguous(), h0.contiguous(), gates, q, h)
    return (h, last(h0, h, sizes)), (gates.detach(), q, h)


def _after_backward(
    sizes: list[int], operands: list[Tensor], kept: list[Tensor], local: Tensor, dh_last: Tensor
) -> Any:
    (weight_hh, _, h0), (gates, q, h) = operands, kept
    d, d_q, dh = torch.empty_like(gates), torch.empty_like(q), _copied(dh_last)
    rest = (h0.contiguous(), gates, q, h, local.contiguous(), d, d_q, dh)
    _over_rows(_after_back, sizes, *_split(weight_hh, turned=True), *rest)
    d_gates = weight_gradient(d[:, : 2 * h.shape[1]], h0, h, sizes)
    return d, torch.cat([d_gates, weight_gradient(d_q, h0, h, sizes)]), d_q.sum(0), dh


def _split(weight_hh: Tensor, turned: bool = False) -> list[Tensor]:
    """Lay out a GRU's weights of the gates, and those of the candidate."""
    parts = weight_hh.split([2 * weight_hh.shape[1], weight_hh.shape[1]])
    return [panels(part.t() if turned else part) for part in parts]


def _known(gates: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    return gates.split([gates.shape[1] // 3 * 2, gates.shape[1] // 3], 1)


RESET_AFTER = Steps(_after_forward, _after_backward, _known)


@kept
@_threaded
def _before_loop(
    first: int, starts: Any, counts: Any, gate: Any, candidate: Any, h0: Any, gates: Any, reset: Any, h: Any
) -> None:
    size = h.shape[1]
    for t in range(len(starts)):
        now, count = starts[t], counts[t]
        h_prev, a = (h[starts[t - 1] :] if t else h0[first:])[:count], gates[now : now + count]
        add_product(h_prev, gate, a[:, : 2 * size])
        for row in range(count):
            r, before, product = a[row], h_prev[row], reset[now + row]
            _activate(_SIGMOID, r[: 2 * size])
            for j in range(size):
                product[j] = r[j] * before[j]
        add_product(reset[now : now + count], candidate, a[:, 2 * size :])
        for row in range(count):
            _activate(_TANH, a[row, 2 * size :])
            _mix(a[row, size : 2 * size], a[row, 2 * size :], h_prev[row], h[now + row])


@kept
@_threaded
def _before_back(
    first: int, starts: Any, counts: Any, gate: Any, candidate: Any, h0: Any, gates: Any, h: Any, local: Any, d: Any,
    dh: Any, scratch: Any,
) -> None:  # fmt: skip
    size = h.shape[1]
    for t in range(len(starts) - 1, -1, -1):
        now, count = starts[t], counts[t]
        h_prev, dh_t, s = (
            h[starts[t - 1] :] if t else h0[first:],
            dh[first : first + count],
            scratch[first : first + count],
        )
        for row in range(count):
            a, d_a = gates[now + row], d[now + row]
            _add(local[now + row], dh_t[row])
            _unmix(dh_t[row], a[size : 2 * size], a[2 * size :], h_prev[row], d_a[size : 2 * size], d_a[2 * size :])
            s[row] = 0
        add_product(d[now : now + count, 2 * size :], candidate, s)  # at r ⊙ h_{t-1}
        for row in range(count):
            r, d_h, s_t = gates[now + row, :size], dh_t[row], s[row]
            _gate(s_t, h_prev[row], r, d[now + row, :size])
            for j in range(size):
                d_h[j] += s_t[j] * r[j]
        add_product(d[now : now + count, : 2 * size], gate, dh_t)


def _before_forward(sizes: list[int], gates: Tensor, weight_hh: Tensor, h0: Tensor) -> Any:
    reset, h = (gates.new_empty(len(gates), weight_hh.shape[1]) for _ in range(2))
    _over_rows(_before_loop, sizes, *_split(weight_hh), h0.contiguous(), gates, reset, h)
    return (h, last(h0, h, sizes)), (gates.detach(), reset, h)


def _before_backward(
    sizes: list[int], operands: list[Tensor], kept: list[Tensor], local: Tensor, dh_last: Tensor
) -> Any:
    (weight_hh, h0), (gates, reset, h) = operands, kept
    d, dh = torch.empty_like(gates), _copied(dh_last)
    rest = (h0.contiguous(), gates, h, local.contiguous(), d, dh, torch.empty_like(dh))
    _over_rows(_before_back, sizes, *_split(weight_hh, turned=True), *rest)
    d_gates, d_n = d.split([2 * h.shape[1], h.shape[1]], 1)
    return d, torch.cat([weight_gradient(d_gates, h0, h, sizes), product(d_n.t(), reset.t())]), dh


RESET_BEFORE = Steps(_before_forward, _before_backward, _known)
