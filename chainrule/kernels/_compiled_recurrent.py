"""The recurrences in training, their steps in compiled loops, and products with a matrix laid out once for many."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor

from chainrule.kernels._bptt import last, weight_gradient
from chainrule.kernels._compiled_models import BEFORE, GRU, KINDS, LSTM, RELU, SIGMOID, TANH, copy, reset, unit
from chainrule.kernels._machine_code import compiled, compiled_sums, kept
from chainrule.kernels._recurrent import Steps

_TILE = 6  # rows: with two vectors each, twelve of the sixteen registers of AVX2
_DEPTH = 256  # lines of a panel that stay in the first cache while all rows read them
_BYTES = 64 if binding.get_host_cpu_features().get("avx512f") else 32  # of a vector


def panels(weight: Tensor) -> Tensor:
    """Lay out W (K, M) for `add_product`: (P, M, w), w columns of Wᵀ together; K ≥ w.

    The last panel has the last w columns. Those among them that are in the one before, too, are zeros there.
    """
    wide = panel_width(weight.dtype)
    zeros = weight.new_zeros(-len(weight) % wide, weight.shape[1])
    columns = torch.cat([weight[:-wide], zeros, weight[-wide:]])
    return columns.view(-1, wide, weight.shape[1]).transpose(1, 2).contiguous()


def panel_width(dtype: torch.dtype) -> int:
    """Return the columns of a panel."""
    return 2 * _BYTES // dtype.itemsize


@compiled
def add_product(x: Any, panels: Any, out: Any) -> None:
    """Add x Wᵀ to `out`: x (B, M), the `panels` of W, and out (B, K).

    Each sum is taken in the order of M whatever B is, so that rows may be shared out.
    """
    rows, depth = x.shape
    count, wide = panels.shape[0], panels.shape[2]
    for begin in range(0, depth, _DEPTH):
        deep = min(_DEPTH, depth - begin)
        for panel in range(count):
            column, row = min(panel * wide, out.shape[1] - wide), 0
            for left in range((rows + _TILE - 1) // _TILE, 0, -1):
                tile = (rows - row + left - 1) // left
                _add_tile(tile, deep, x[row:, begin:], panels[panel, begin:], out[row:, column:])
                row += tile


@intrinsic
def _add_tile(typing: Any, rows: Any, depth: Any, x: Any, panel: Any, out: Any) -> Any:
    """out[:rows, :w] += x[:rows, :depth] panel[:depth]; rows from 1 to `_TILE`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, step = context.get_value_type(x.dtype), ir.IntType(64)
        lanes = _BYTES // (x.dtype.bitwidth // 8)
        vector = ir.VectorType(number, lanes)
        count, end = arguments[:2]
        (x_at, x_row), (w_at, _), (y_at, y_row) = (
            (view.data, builder.sdiv(cgutils.unpack_tuple(builder, view.strides)[0], step(kind.dtype.bitwidth // 8)))
            for kind, value in zip(signature.args[2:], arguments[2:], strict=True)
            for view in [context.make_array(kind)(context, builder, value)]
        )

        def vectors(pointer: Any, offset: Any) -> list[Any]:
            return [
                builder.bitcast(builder.gep(pointer, [builder.add(offset, step(part * lanes))]), vector.as_pointer())
                for part in range(2)
            ]

        def load(pointer: Any) -> Any:
            return builder.load(pointer, align=x.dtype.bitwidth // 8)

        after = builder.append_basic_block()
        choice = builder.switch(count, after)
        for tile in range(1, _TILE + 1):
            start = builder.append_basic_block()
            choice.add_case(ir.Constant(count.type, tile), start)
            builder.position_at_end(start)
            sums = [place for row in range(tile) for place in vectors(y_at, builder.mul(y_row, step(row)))]
            lines = [builder.gep(x_at, [builder.mul(x_row, step(row))]) for row in range(tile)]
            first = [load(place) for place in sums]
            body = builder.append_basic_block()
            builder.branch(body)
            builder.position_at_end(body)
            k = builder.phi(step)
            now = [builder.phi(vector) for _ in sums]
            weights = [load(place) for place in vectors(w_at, builder.mul(k, step(2 * lanes)))]
            new = []
            for row, line in enumerate(lines):
                one = builder.insert_element(
                    ir.Constant(vector, ir.Undefined), builder.load(builder.gep(line, [k])), step(0)
                )
                spread = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), lanes), None))
                for part, weight in enumerate(weights):
                    term = builder.fmul(spread, weight, flags=("contract",))
                    new.append(builder.fadd(term, now[2 * row + part], flags=("contract",)))
            following = builder.add(k, step(1))
            for phi, before, then in zip([k, *now], [step(0), *first], [following, *new], strict=True):
                phi.add_incoming(before, start)
                phi.add_incoming(then, body)
            stop = builder.append_basic_block()
            builder.cbranch(builder.icmp_signed("<", following, end), body, stop)
            builder.position_at_end(stop)
            for place, value in zip(sums, new, strict=True):
                builder.store(value, place, align=x.dtype.bitwidth // 8)
            builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    return types.void(rows, depth, x, panel, out), generate


__all__ = ["panel_width", "steps"]

threaded = njit(_nrt=False, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
_LEAST_ROWS = 8  # of a thread: fewer do not pay for reading the weights


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


@compiled_sums
def add(x: Any, y: Any) -> None:
    """y += x."""
    for j in range(len(y)):
        y[j] += x[j]


@compiled_sums
def _descend(kind: int, d: Any, y: Any, out: Any) -> None:
    """out = d f'(a), from y = f(a)."""
    one = y.dtype.type(1)
    if kind == TANH:
        for j in range(len(y)):
            out[j] = d[j] * (one - y[j] * y[j])
    elif kind == RELU:
        for j in range(len(y)):
            out[j] = y.dtype.type(0) if y[j] <= 0 else d[j]
    elif kind == SIGMOID:
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
def _unit_back(kind: int, a: Any, e: Any, h_prev: Any, c_prev: Any, d: Any, d_e: Any, dh: Any, dc: Any) -> None:
    """Gradients d at a row's pre-activations from those at its state, which pass on to the state before."""
    size, one = len(dh), dh.dtype.type(1)
    if kind == LSTM:
        i, f, g, o = a[:size], a[size : 2 * size], a[2 * size : 3 * size], a[3 * size :]
        d_g = d[2 * size : 3 * size]
        for j in range(size):
            dc[j] += dh[j] * o[j] * (one - e[j] * e[j])
        _gate(dc, g, i, d[:size])
        _gate(dc, c_prev, f, d[size : 2 * size])
        for j in range(size):
            d_g[j] = dc[j] * i[j] * (one - g[j] * g[j])
        _gate(dh, e, o, d[3 * size :])
        for j in range(size):
            dc[j] *= f[j]
        dh[:] = 0
    elif kind in (GRU, BEFORE):
        r, z, n, d_z, d_n = a[:size], a[size : 2 * size], a[2 * size :], d[size : 2 * size], d[2 * size :]
        for j in range(size):
            d_z[j] = dh[j] * (h_prev[j] - n[j]) * (z[j] * (one - z[j]))
        for j in range(size):
            d_n[j] = dh[j] * (one - z[j]) * (one - n[j] * n[j])
        for j in range(size):
            dh[j] *= z[j]
        if kind == GRU:
            for j in range(size):
                d_e[j] = d_n[j] * r[j]
            _gate(d_n, e, r, d[:size])
        else:
            d_e[:] = 0
    else:
        _descend(kind, dh, a, d)
        dh[:] = 0


@kept
@threaded
def _forwards(
    first: int, starts: Any, counts: Any, kind: int, weight: Any, candidate: Any, bias: Any, h0: Any, c0: Any,
    gates: Any, e: Any, h: Any, c: Any,
) -> None:  # fmt: skip
    """gates (R, G·M) hold the projected inputs; e (R, M) becomes tanh c, W_hn h + b_hn, or r ⊙ h of the step before.

    A GRU's weights of n are the `candidate`, not in `weight`; an RNN's gates are its h. Any array stands for what a
    kind does not have.
    """
    size = h.shape[1]
    early = gates.shape[1] - size * (kind in (GRU, BEFORE))
    for t in range(len(starts)):
        now, count = starts[t], counts[t]
        h_prev = (h[starts[t - 1] :] if t else h0[first:])[:count]
        c_prev = c[starts[t - 1] :] if t else c0[first:]
        a, e_t = gates[now : now + count], e[now : now + count]
        add_product(h_prev, weight, a[:, :early])
        if kind == GRU:
            for row in range(count):
                copy(bias, e_t[row])
            add_product(h_prev, candidate, e_t)
        elif kind == BEFORE:
            for row in range(count):
                reset(a[row, :early], h_prev[row], e_t[row])
            add_product(e_t, candidate, a[:, early:])
        for row in range(count):
            unit(kind, a[row], e_t[row], h_prev[row], c_prev[row], h[now + row], c[now + row])


@kept
@threaded
def _backwards(
    first: int, starts: Any, counts: Any, kind: int, weight: Any, candidate: Any, h0: Any, c0: Any, gates: Any, e: Any,
    h: Any, c: Any, local: Any, d: Any, d_e: Any, dh: Any, dc: Any,
) -> None:  # fmt: skip
    """d (R, G·M) at the gates; d_e (R, M) at e of a GRU; dh and dc (B, M) at the last states, then at the first."""
    size = h.shape[1]
    early = gates.shape[1] - size * (kind in (GRU, BEFORE))
    for t in range(len(starts) - 1, -1, -1):
        now, count = starts[t], counts[t]
        h_prev = h[starts[t - 1] :] if t else h0[first:]
        c_prev = c[starts[t - 1] :] if t else c0[first:]
        d_t, d_e_t, dh_t = d[now : now + count], d_e[now : now + count], dh[first : first + count]
        for row in range(count):
            at, d_h = now + row, dh_t[row]
            add(local[at], d_h)
            _unit_back(kind, gates[at], e[at], h_prev[row], c_prev[row], d_t[row], d_e_t[row], d_h, dc[first + row])
        if kind == GRU:
            add_product(d_e_t, candidate, dh_t)
        elif kind == BEFORE:
            add_product(d_t[:, early:], candidate, d_e_t)
            for row in range(count):
                r, d_h, at_product = gates[now + row, :size], dh_t[row], d_e_t[row]
                _gate(at_product, h_prev[row], r, d_t[row, :size])
                for j in range(size):
                    d_h[j] += at_product[j] * r[j]
        add_product(d_t[:, :early], weight, dh_t)


def steps(name: str) -> Steps:
    """Return the steps of one of `KINDS`."""
    kind = KINDS[name]
    gru, simple = kind in (GRU, BEFORE), kind >= TANH

    def laid_out(weight_hh: Tensor, turned: bool) -> list[Tensor]:
        size = weight_hh.shape[1]
        parts = weight_hh.split([2 * size, size]) if gru else [weight_hh]
        found = [panels(part.t() if turned else part) for part in parts]
        return [found[0], found[-1]]

    def forward(sizes: list[int], projected: Tensor, weight_hh: Tensor, *others: Tensor) -> Any:
        state = others[kind == GRU :]
        bias, h0, c0 = (part.contiguous() for part in (others[0], state[0], state[-1]))
        gates = projected.detach()
        shape = len(gates), weight_hh.shape[1]
        # An RNN's h has the memory of its gates, but is another tensor for autograd.
        h = torch.from_numpy(gates.numpy()) if simple else gates.new_empty(shape)
        e = h if simple else torch.empty_like(h)
        c = torch.empty_like(h) if kind == LSTM else h
        _over_rows(_forwards, sizes, kind, *laid_out(weight_hh, False), bias.view(-1), h0, c0, gates, e, h, c)
        ends = [last(part, flat, sizes) for part, flat in zip(state, (h, c), strict=False)]
        return (h, *ends), (gates, e, h, c)

    def backward(sizes: list[int], operands: list[Tensor], kept: list[Tensor], local: Tensor, *ends: Tensor) -> Any:
        weight_hh, *others = operands
        state, (gates, e, h, _) = others[kind == GRU :], kept
        h0, c0 = state[0].contiguous(), state[-1].contiguous()
        d = torch.empty_like(gates)
        d_e = torch.empty_like(e) if gru else d
        dh, dc = (part.clone(memory_format=torch.contiguous_format) for part in (ends[0], ends[-1]))
        arrays = (h0, c0, *kept, local.contiguous(), d, d_e, dh, dc)
        _over_rows(_backwards, sizes, kind, *laid_out(weight_hh, True), *arrays)
        if not gru:
            return d, weight_gradient(d, h0, h, sizes), *(dh, dc)[: len(ends)]
        d_gates, d_n = d.split([2 * h.shape[1], h.shape[1]], 1)
        d_candidate = weight_gradient(d_e, h0, h, sizes) if kind == GRU else torch.mm(d_n.t(), e)
        d_weight = torch.cat([weight_gradient(d_gates, h0, h, sizes), d_candidate])
        return d, d_weight, *([d_e.sum(0)] if kind == GRU else []), dh

    def known(gates: Tensor, e: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        return gates.split([2 * h.shape[1], h.shape[1]], 1) if gru else (gates,)

    return Steps(forward, backward, known)
