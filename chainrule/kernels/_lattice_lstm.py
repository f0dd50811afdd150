"""The lattice LSTM with a hand-written gradient, and one position of it with few calls."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chainrule.kernels._bptt import gradients_again, placeholder, tanh, wide_dtype
from chainrule.kernels._transforms import custom_gradients_work, records_or_transforms

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # d * y * (1 - y)
_tanh_backward = torch.ops.aten.tanh_backward.grad_input  # d * (1 - y * y)
Window = tuple[int, int]
Plain = Callable[..., tuple[Tensor, Tensor]]


def lattice(
    projected: Tensor,
    weights: Tensor,
    c0: Tensor | None,
    offsets: tuple[int, ...],
    windows: tuple[Window, ...],
    plain: Plain,
) -> tuple[Tensor, Tensor]:
    """Run `chainrule.layers._lattice_lstm.lattice_lstm`, whose plain form is given too."""
    if not custom_gradients_work():
        return plain(projected, weights, c0, offsets, windows)
    h, c_last = _LatticeLSTM.apply(projected, placeholder(projected), weights, c0, offsets, windows, plain)
    return h, c_last


class _LatticeLSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        anchor: Tensor,
        weights: Tensor,
        c0: Tensor | None,
        offsets: tuple[int, ...],
        windows: tuple[Window, ...],
        plain: Plain,
    ) -> Any:
        wide, size = wide_dtype(projected), weights.shape[2]
        gates = torch.empty(projected.shape, dtype=wide, device=projected.device).copy_(projected)
        h = gates.new_zeros(*gates.shape[:4], size)
        c, tanh_c = torch.empty_like(h), torch.empty_like(h)
        products = weights.to(wide).unbind(1)
        before = (0, 0)
        for t, (first, end) in enumerate(windows):
            a = gates[:, t, first:end]
            for weight, offset in zip(products, offsets, strict=True):
                for read, written in _overlap((first, end), before, offset):
                    _add_product(_rows(gates[:, t, written]), _rows(h[:, t - 1, read]), weight)
            a[..., : 3 * size].sigmoid_()
            i, f, o, g = a.chunk(4, -1)
            tanh(g, out=g)
            c_t, tanh_t = c[:, t, first:end], tanh_c[:, t, first:end]
            torch.mul(i, g, out=c_t)
            if t == 0 and c0 is not None:
                c_t.addcmul_(f, c0[:, first:end].to(wide))
            for positions, _ in _overlap((first, end), before, 0):
                c[:, t, positions].addcmul_(gates[:, t, positions, :, size : 2 * size], c[:, t - 1, positions])
            torch.mul(o, tanh(c_t, out=tanh_t), out=h[:, t, first:end])
            before = (first, end)
        c_last = torch.zeros_like(c[:, 0])
        c_last[:, slice(*before)] = c[:, -1, slice(*before)]
        ctx.save_for_backward(anchor, weights, c0, gates, h, c, tanh_c)
        ctx.offsets, ctx.windows, ctx.projected_type, ctx.plain = offsets, windows, projected.dtype, plain
        return h.to(projected.dtype), c_last

    @staticmethod
    def backward(ctx: Any, local: Tensor, dc_last: Tensor) -> Any:
        anchor, weights, c0, gates, h, c, tanh_c = ctx.saved_tensors
        size, windows = h.shape[-1], ctx.windows
        if records_or_transforms(local, dc_last):
            plain = partial(ctx.plain, offsets=ctx.offsets, windows=windows, activations=gates)
            gradients = gradients_again(plain, (anchor, weights, c0), (local, dc_last))
            return gradients[0], None, *gradients[1:], None, None, None
        d_gates = torch.zeros_like(gates)
        d_products = torch.zeros_like(weights, dtype=gates.dtype).unbind(1)
        products = weights.to(gates.dtype).transpose(2, 3).unbind(1)
        dh = torch.empty_like(h).copy_(local)
        dc, scratch = torch.zeros_like(dh[:, 0]), torch.empty_like(dh[:, 0])
        dc[:, slice(*windows[-1])] = dc_last[:, slice(*windows[-1])].to(dc.dtype)
        for t in reversed(range(len(windows))):
            first, end = windows[t]
            before = windows[t - 1] if t else (0, 0)
            i, f, o, g = gates[:, t, first:end].chunk(4, -1)
            d_i, d_f, d_o, d_g = d_gates[:, t, first:end].chunk(4, -1)
            dh_t, dc_t, s = dh[:, t, first:end], dc[:, first:end], scratch[:, first:end]
            tanh_t = tanh_c[:, t, first:end]
            dc_t.add_(_tanh_backward(torch.mul(dh_t, o, out=s), tanh_t, grad_input=s))
            d_o.copy_(_sigmoid_backward(torch.mul(dh_t, tanh_t, out=s), o, grad_input=s))
            d_i.copy_(_sigmoid_backward(torch.mul(dc_t, g, out=s), i, grad_input=s))
            d_g.copy_(_tanh_backward(torch.mul(dc_t, i, out=s), g, grad_input=s))
            if t == 0 and c0 is not None:
                d_f.copy_(_sigmoid_backward(torch.mul(dc_t, c0[:, first:end].to(s.dtype), out=s), f, grad_input=s))
            for positions, _ in _overlap((first, end), before, 0):
                part, opening = scratch[:, positions], gates[:, t, positions, :, size : 2 * size]
                torch.mul(dc[:, positions], c[:, t - 1, positions], out=part)
                d_gates[:, t, positions, :, size : 2 * size] = _sigmoid_backward(part, opening, grad_input=part)
            for weight, d_weight, offset in zip(products, d_products, ctx.offsets, strict=True):
                for read, written in _overlap((first, end), before, offset):
                    d = _rows(d_gates[:, t, written])
                    _add_product(_rows(dh[:, t - 1, read]), d, weight)
                    _add_product(d_weight, _rows(h[:, t - 1, read]).transpose(1, 2), d)
            dc_t.mul_(f)
        d_weights = torch.stack(d_products, 1).to(weights.dtype)
        d_c0 = None
        if c0 is not None:  # read inside the first window alone; elsewhere dc is of positions that began later
            d_c0 = torch.zeros_like(c0)
            d_c0[:, slice(*windows[0])] = dc[:, slice(*windows[0])].to(c0.dtype)
        return d_gates.to(ctx.projected_type), None, d_weights, d_c0, None, None, None


def _overlap(window: Window, before: Window, offset: int) -> Iterator[tuple[slice, slice]]:
    """Yield the positions of the previous step that are read at an offset, and the positions of this step that read."""
    first, end = max(window[0] + offset, before[0]), min(window[1] + offset, before[1])
    if first < end:
        yield slice(first, end), slice(first - offset, end - offset)


def _add_product(total: Tensor, x: Tensor, y: Tensor) -> None:
    """total += x y, matrix by matrix: in a form that counters of arithmetic know, as they do not `baddbmm_`."""
    torch.baddbmm(total, x, y, out=total)


def _rows(x: Tensor) -> Tensor:
    """(G, n, B, F) -> (G, n·B, F), a view."""
    return x.view(len(x), -1, x.shape[-1])


def lattice_cell(a: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """h and c of one position from all its gates read, a (B, 4M) in the order i, f, o, g, and the cell before."""
    size = a.shape[1] // 4
    i, f, o = a[:, : 3 * size].sigmoid().chunk(3, 1)
    c = torch.addcmul(f * c, i, a[:, 3 * size :].tanh())
    return o * c.tanh(), c
