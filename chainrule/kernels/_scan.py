"""A linear recurrence over all time steps at once: an associative scan with a custom gradient."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from chainrule.kernels._transforms import custom_gradients_work, records_or_transforms

# Numbers in one step from which a CPU is faster step by step, in place, than by pairs with its further passes over
# memory. Measured on one thread; the pairs win below it and on other devices, where a step costs its launch.
WIDE_STEP = 768


def associative_scan(a: Tensor, b: Tensor, initial: Tensor) -> Tensor:
    r"""Run the recurrence of `chainrule.layers.linear_scan` in O(log T) dependent operations.

    Two steps are one: :math:`(a_2, b_2) \circ (a_1, b_1) = (a_2 a_1,\; a_2 b_1 + b_2)`. This product is associative, so
    T steps take O(T) arithmetic and O(T) memory (Blelloch 1990): pairs of neighbours are joined, the half as long
    recurrence is solved, and the steps between are filled in. Nothing is divided by and no logarithm is taken, so b and
    h may have any sign and a may be 0; products of :math:`|a_t| \le 1` cannot overflow.

    The gradient is the same recurrence from the last step to the first,
    :math:`\delta_t = g_t + a_{t+1} \odot \delta_{t+1}`, with
    :math:`\partial a_t = \delta_t \odot h_{t-1}` and :math:`\partial b_t = \delta_t`.
    """
    if not custom_gradients_work():
        return _from(a, b, initial)
    h: Tensor = _Scan.apply(a, b, initial)
    return h


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, initial: Tensor) -> Tensor:
        if _is_wide(b):
            h = torch.empty_like(b)
            _in_order(a.unbind(1), b.unbind(1), initial, h.unbind(1))
        else:
            h = _from(a, b, initial)
        ctx.save_for_backward(a, initial, h)
        return h

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        a, initial, h = ctx.saved_tensors
        if not h.shape[1]:
            return torch.zeros_like(a), gradient, torch.zeros_like(initial)
        if not records_or_transforms(gradient) and _is_wide(h):
            d = torch.empty_like(h)
            d_steps, last = d.unbind(1), gradient[:, -1]
            d_steps[-1].copy_(last)
            _in_order(a.unbind(1)[:0:-1], gradient.unbind(1)[-2::-1], last, d_steps[-2::-1])
        else:
            backwards = _from(a[:, 1:].flip(1), gradient[:, :-1].flip(1), gradient[:, -1])
            d = torch.cat([backwards.flip(1), gradient[:, -1:]], 1)
        d_a = None
        if ctx.needs_input_grad[0]:
            before = torch.cat([initial.unsqueeze(1), h[:, :-1]], 1)
            d_a = (d * before).sum_to_size(a.shape)
        return d_a, d, (a[:, 0] * d[:, 0]).sum_to_size(initial.shape)


def _is_wide(b: Tensor) -> bool:
    return b.device.type == "cpu" and b.numel() >= WIDE_STEP * b.shape[1] > 0


def _in_order(a: Sequence[Tensor], b: Sequence[Tensor], h: Tensor, out: Sequence[Tensor]) -> None:
    for a_t, b_t, h_t in zip(a, b, out, strict=True):
        h = torch.addcmul(b_t, a_t, h, out=h_t)


# narrow() where a slice may be the whole, and no flatten(): `is_grads_batched` supports neither aliases nor the latter.


def _from(a: Tensor, b: Tensor, initial: Tensor) -> Tensor:
    """Run the scan in plain operations."""
    time = b.shape[1]
    if not time:
        return b
    first = b.narrow(1, 0, 1) + a.narrow(1, 0, 1) * initial.unsqueeze(1)
    return _by_pairs(a, torch.cat([first, b.narrow(1, 1, time - 1)], 1))


def _by_pairs(a: Tensor, b: Tensor) -> Tensor:
    """Run the scan from zero, so that h_1 = b_1."""
    time, pairs = b.shape[1], b.shape[1] // 2
    if time == 1:
        return b
    a_second, b_second = a[:, 1::2], b[:, 1::2]
    second = _by_pairs(a_second * a[:, : 2 * pairs : 2], b_second + a_second * b[:, : 2 * pairs : 2])
    later = b[:, 2::2] + a[:, 2::2] * second.narrow(1, 0, (time - 1) // 2)
    first = torch.cat([b[:, :1], later], 1)
    joined = torch.stack([first.narrow(1, 0, pairs), second], 2).reshape(len(b), 2 * pairs, *b.shape[2:])
    return torch.cat([joined, first[:, pairs:]], 1) if time % 2 else joined
