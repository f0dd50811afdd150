"""The lattice LSTM with a hand-written gradient."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chainrule.kernels._bptt import gradients_again, lstm_backward, lstm_forward, placeholder, wide_dtype
from chainrule.kernels._transforms import custom_gradients_work, records_or_transforms

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
        c, tanh_c = torch.zeros_like(h), torch.empty_like(h)  # c stays 0 where no position takes part
        c_prev = torch.zeros_like(c[:, 0]) if c0 is None else c0.to(wide)
        products = weights.to(wide).unbind(1)
        before = (0, 0)
        for t, (first, end) in enumerate(windows):
            a = gates[:, t, first:end]
            for weight, offset in zip(products, offsets, strict=True):
                for read, written in _overlap((first, end), before, offset):
                    _add_product(_rows(gates[:, t, written]), _rows(h[:, t - 1, read]), weight)
            i, f, o, g = a.chunk(4, -1)
            c_t, tanh_t, h_t = (part[:, t, first:end] for part in (c, tanh_c, h))
            lstm_forward((a[..., : 3 * size],), (i, f, g, o), c_prev[:, first:end], c_t, tanh_t, h_t)
            before, c_prev = (first, end), c[:, t]
        c_last = torch.zeros_like(c[:, 0])
        c_last[:, slice(*before)] = c[:, -1, slice(*before)]
        ctx.save_for_backward(anchor, weights, c0, gates, h, c, tanh_c)
        ctx.offsets, ctx.windows, ctx.projected_type, ctx.plain = offsets, windows, projected.dtype, plain
        return h.to(projected.dtype), c_last

    @staticmethod
    def backward(ctx: Any, local: Tensor, dc_last: Tensor) -> Any:
        anchor, weights, c0, gates, h, c, tanh_c = ctx.saved_tensors
        windows = ctx.windows
        if records_or_transforms(local, dc_last):
            plain = partial(ctx.plain, offsets=ctx.offsets, windows=windows, activations=gates)
            gradients = gradients_again(plain, (anchor, weights, c0), (local, dc_last))
            return gradients[0], None, *gradients[1:], None, None, None
        d_gates = torch.zeros_like(gates)
        d_products = torch.zeros_like(weights, dtype=gates.dtype).unbind(1)
        products = weights.to(gates.dtype).transpose(2, 3).unbind(1)
        dh = torch.empty_like(h).copy_(local)
        dc, scratch = torch.zeros_like(dh[:, 0]), torch.empty_like(dh[:, 0])
        c_first = torch.zeros_like(dc) if c0 is None else c0.to(dc.dtype)
        dc[:, slice(*windows[-1])] = dc_last[:, slice(*windows[-1])].to(dc.dtype)
        for t in reversed(range(len(windows))):
            first, end = windows[t]
            before = windows[t - 1] if t else (0, 0)
            i, f, o, g = gates[:, t, first:end].chunk(4, -1)
            d_i, d_f, d_o, d_g = d_gates[:, t, first:end].chunk(4, -1)
            own = slice(first, end)
            c_prev = c[:, t - 1] if t else c_first
            lstm_backward(
                (i, f, g, o), c_prev[:, own], tanh_c[:, t, own], dh[:, t, own], dc[:, own], scratch[:, own],
                (d_i, d_f, d_g, d_o),
            )  # fmt: skip
            for weight, d_weight, offset in zip(products, d_products, ctx.offsets, strict=True):
                for read, written in _overlap((first, end), before, offset):
                    d = _rows(d_gates[:, t, written])
                    _add_product(_rows(dh[:, t - 1, read]), d, weight)
                    _add_product(d_weight, _rows(h[:, t - 1, read]).transpose(1, 2), d)
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
