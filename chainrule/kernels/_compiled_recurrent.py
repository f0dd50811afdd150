"""The time loops of the recurrences in training: products, nonlinearities and their gradients without Python between.

Arrays are flat, as in `chainrule.kernels._bptt`, and named as in `chainrule.kernels._recurrent`. Each loop runs some
rows of the batch, from row `first` on: at step t those from `starts[t]` on, `counts[t]` of them. Rows do not meet, so
that threads share them out. A row is read in short passes of one written array each, which LLVM turns into vectors.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from chainrule.kernels._compiled_math import sigmoid, tanh
from chainrule.kernels._compiled_models import KINDS, copy
from chainrule.kernels._compiled_products import add_product, panel_width, panels
from chainrule.kernels._machine_code import compiled_sums, kept

__all__ = ["KINDS", "panel_width", "panels"]

_threaded = njit(_nrt=False, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
_LEAST_ROWS = 8  # of a thread: fewer do not pay for reading the weights


def over_rows(loop: Callable[..., None], sizes: Sequence[int], *arguments: Tensor | int) -> None:
    """Run a loop over all rows of a batch, some in each of torch's threads; results are written into arguments."""
    assert all(part.is_contiguous() for part in arguments if isinstance(part, Tensor))
    arrays = [part.detach().numpy() if isinstance(part, Tensor) else part for part in arguments]
    running = np.array(sizes)
    ends = np.searchsorted(-running, -np.arange(1, sizes[0] + 1), side="right").cumsum()  # elements of the first rows
    threads = max(1, min(torch.get_num_threads(), sizes[0] // _LEAST_ROWS))
    bounds = np.searchsorted(ends, ends[-1] * np.arange(1, threads) // threads)

    def run(first: int, last: int) -> None:
        counts = np.minimum(running, last) - first
        loop(first, (np.cumsum(running) - running + first)[counts > 0], counts[counts > 0], *arrays)

    shares = list(pairwise([0, *bounds.tolist(), sizes[0]]))
    if threads == 1:
        run(*shares[0])
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, *zip(*shares, strict=True)))


@compiled_sums
def _add(x: Any, y: Any) -> None:
    """y += x."""
    for j in range(len(y)):
        y[j] += x[j]


@compiled_sums
def _activate(kind: int, a: Any) -> None:
    """a = f(a)."""
    if kind == 3:
        for j in range(len(a)):
            a[j] = tanh(a[j])
    elif kind == 4:
        for j in range(len(a)):
            a[j] = a[j] if a[j] > 0 or a[j] != a[j] else a.dtype.type(0)
    elif kind == 5:
        for j in range(len(a)):
            a[j] = sigmoid(a[j])


@compiled_sums
def _descend(kind: int, d: Any, y: Any, out: Any) -> None:
    """out = d f'(a), from y = f(a)."""
    one = y.dtype.type(1)
    if kind == 3:
        for j in range(len(y)):
            out[j] = d[j] * (one - y[j] * y[j])
    elif kind == 4:
        for j in range(len(y)):
            out[j] = d[j] if y[j] > 0 else y.dtype.type(0)
    elif kind == 5:
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
    """Gradients at the pre-activations of z and n, from d at (1 − z) n + z h; d is that at h afterwards."""
    one = z.dtype.type(1)
    for j in range(len(d)):
        d_z[j] = d[j] * (h[j] - n[j]) * (z[j] * (one - z[j]))
    for j in range(len(d)):
        d_n[j] = d[j] * (one - z[j]) * (one - n[j] * n[j])
    for j in range(len(d)):
        d[j] *= z[j]


@kept
@_threaded
def rnn(first: int, starts: Any, counts: Any, kind: int, weight: Any, h0: Any, h: Any) -> None:
    """h (R, M) holds the projected inputs."""
    for t in range(len(starts)):
        now, count = starts[t], counts[t]
        h_t = h[now : now + count]
        add_product((h[starts[t - 1] :] if t else h0[first:])[:count], weight, h_t)
        for row in range(count):
            _activate(kind, h_t[row])


@kept
@_threaded
def rnn_backward(
    first: int, starts: Any, counts: Any, kind: int, weight: Any, h: Any, local: Any, d: Any, dh: Any
) -> None:
    for t in range(len(starts) - 1, -1, -1):
        now, count = starts[t], counts[t]
        dh_t = dh[first : first + count]
        d_t = d[now : now + count]
        for row in range(count):
            _add(local[now + row], dh_t[row])
            _descend(kind, dh_t[row], h[now + row], d_t[row])
            dh_t[row] = 0
        add_product(d_t, weight, dh_t)


@kept
@_threaded
def lstm(
    first: int, starts: Any, counts: Any, weight: Any, h0: Any, c0: Any, gates: Any, h: Any, c: Any, tanh_c: Any
) -> None:
    """gates (R, 4M) hold the projected inputs."""
    size = h.shape[1]
    for t in range(len(starts)):
        now, count = starts[t], counts[t]
        c_prev = (c[starts[t - 1] :] if t else c0[first:])[:count]
        add_product((h[starts[t - 1] :] if t else h0[first:])[:count], weight, gates[now : now + count])
        for row in range(count):
            a, c_t, tanh_t, h_t = gates[now + row], c[now + row], tanh_c[now + row], h[now + row]
            i, f, g, o = a[:size], a[size : 2 * size], a[2 * size : 3 * size], a[3 * size :]
            _activate(5, a[: 2 * size])
            _activate(3, g)
            _activate(5, o)
            before = c_prev[row]
            for j in range(size):
                c_t[j] = f[j] * before[j] + i[j] * g[j]
            for j in range(size):
                tanh_t[j] = tanh(c_t[j])
            for j in range(size):
                h_t[j] = o[j] * tanh_t[j]


@kept
@_threaded
def lstm_backward(
    first: int, starts: Any, counts: Any, weight: Any, c0: Any, gates: Any, c: Any, tanh_c: Any, local: Any,
    d: Any, dh: Any, dc: Any,
) -> None:  # fmt: skip
    size = c.shape[1]
    one = c.dtype.type(1)
    for t in range(len(starts) - 1, -1, -1):
        now, count = starts[t], counts[t]
        c_prev, dh_t = (c[starts[t - 1] :] if t else c0[first:])[:count], dh[first : first + count]
        for row in range(count):
            a, d_a, tanh_t, d_h, d_c = gates[now + row], d[now + row], tanh_c[now + row], dh_t[row], dc[first + row]
            i, f, g, o = a[:size], a[size : 2 * size], a[2 * size : 3 * size], a[3 * size :]
            d_g = d_a[2 * size : 3 * size]
            _add(local[now + row], d_h)
            for j in range(size):
                d_c[j] += d_h[j] * o[j] * (one - tanh_t[j] * tanh_t[j])
            _gate(d_c, g, i, d_a[:size])
            _gate(d_c, c_prev[row], f, d_a[size : 2 * size])
            for j in range(size):
                d_g[j] = d_c[j] * i[j] * (one - g[j] * g[j])
            _gate(d_h, tanh_t, o, d_a[3 * size :])
            for j in range(size):
                d_c[j] *= f[j]
            d_h[:] = 0
        add_product(d[now : now + count], weight, dh_t)


@kept
@_threaded
def reset_after(
    first: int, starts: Any, counts: Any, weight: Any, bias: Any, h0: Any, projected: Any, product: Any, n: Any,
    h: Any,
) -> None:  # fmt: skip
    """product (R, 3M) becomes r, z and W_hn h + b_hn; bias (3M,) is what is added to the product."""
    size = h.shape[1]
    for t in range(len(starts)):
        now, count = starts[t], counts[t]
        h_prev = (h[starts[t - 1] :] if t else h0[first:])[:count]
        for row in range(count):
            copy(bias, product[now + row])
        add_product(h_prev, weight, product[now : now + count])
        for row in range(count):
            p, a, n_t = projected[now + row], product[now + row], n[now + row]
            _add(p[: 2 * size], a[: 2 * size])
            _activate(5, a[: 2 * size])
            r, q, p_n = a[:size], a[2 * size :], p[2 * size :]
            for j in range(size):
                n_t[j] = tanh(p_n[j] + r[j] * q[j])
            _mix(a[size : 2 * size], n_t, h_prev[row], h[now + row])


@kept
@_threaded
def reset_after_backward(
    first: int, starts: Any, counts: Any, weight: Any, h0: Any, product: Any, n: Any, h: Any, local: Any, d: Any,
    d_projected: Any, dh: Any,
) -> None:  # fmt: skip
    """d (R, 3M) at r, z and W_hn h; d_projected (R, 3M) at r, z and n."""
    size = h.shape[1]
    for t in range(len(starts) - 1, -1, -1):
        now, count = starts[t], counts[t]
        h_prev, dh_t = (h[starts[t - 1] :] if t else h0[first:])[:count], dh[first : first + count]
        for row in range(count):
            a, d_a, d_p = product[now + row], d[now + row], d_projected[now + row]
            r, z, q, d_n, d_q = a[:size], a[size : 2 * size], a[2 * size :], d_p[2 * size :], d_a[2 * size :]
            _add(local[now + row], dh_t[row])
            _unmix(dh_t[row], z, n[now + row], h_prev[row], d_a[size : 2 * size], d_n)
            for j in range(size):
                d_q[j] = d_n[j] * r[j]
            _gate(d_n, q, r, d_a[:size])
            copy(d_a[: 2 * size], d_p[: 2 * size])
        add_product(d[now : now + count], weight, dh_t)


@kept
@_threaded
def reset_before(
    first: int, starts: Any, counts: Any, gate: Any, candidate: Any, h0: Any, rz: Any, reset: Any, n: Any, h: Any
) -> None:
    """rz (R, 2M) and n (R, M) hold the projected inputs."""
    size = h.shape[1]
    for t in range(len(starts)):
        now, count = starts[t], counts[t]
        h_prev = (h[starts[t - 1] :] if t else h0[first:])[:count]
        add_product(h_prev, gate, rz[now : now + count])
        for row in range(count):
            r, before, product = rz[now + row], h_prev[row], reset[now + row]
            _activate(5, r)
            for j in range(size):
                product[j] = r[j] * before[j]
        add_product(reset[now : now + count], candidate, n[now : now + count])
        for row in range(count):
            _activate(3, n[now + row])
            _mix(rz[now + row, size:], n[now + row], h_prev[row], h[now + row])


@kept
@_threaded
def reset_before_backward(
    first: int, starts: Any, counts: Any, gate: Any, candidate: Any, h0: Any, rz: Any, n: Any, h: Any, local: Any,
    d: Any, dh: Any, scratch: Any,
) -> None:  # fmt: skip
    """scratch: (B, M)."""
    size = h.shape[1]
    for t in range(len(starts) - 1, -1, -1):
        now, count = starts[t], counts[t]
        h_prev = (h[starts[t - 1] :] if t else h0[first:])[:count]
        dh_t, s = dh[first : first + count], scratch[first : first + count]
        for row in range(count):
            z, d_a = rz[now + row, size:], d[now + row]
            _add(local[now + row], dh_t[row])
            _unmix(dh_t[row], z, n[now + row], h_prev[row], d_a[size : 2 * size], d_a[2 * size :])
            s[row] = 0
        add_product(d[now : now + count, 2 * size :], candidate, s)  # at r ⊙ h_{t-1}
        for row in range(count):
            r, d_h, s_t = rz[now + row, :size], dh_t[row], s[row]
            _gate(s_t, h_prev[row], r, d[now + row, :size])
            for j in range(size):
                d_h[j] += s_t[j] * r[j]
        add_product(d[now : now + count, : 2 * size], gate, dh_t)
