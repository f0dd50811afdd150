"""The long short-term memory of a lattice, whose units read the last step of several neighbours."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from chainrule.kernels._bptt import wide_dtype
from chainrule.kernels._lattice_lstm import Window, lattice
from chainrule.layers._cells import lstm_cell


def lattice_lstm(
    projected: Tensor,
    weights: Tensor,
    offsets: Sequence[int],
    c0: Tensor | None = None,
    windows: Sequence[Window] | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Run G recurrences side by side over T steps, each at all of P positions at once.

    .. math::
        i, f, o = \sigma(a^{i,f,o}), \quad g = \tanh(a^g), \quad
        a_t(p) = \mathrm{projected}_t(p) + \sum_k U_k\, h_{t-1}(p + \mathrm{offset}_k) \\
        c_t(p) = f \odot c_{t-1}(p) + i \odot g, \qquad h_t(p) = o \odot \tanh c_t(p)

    projected is (G, T, P, B, 4M), gates in the order i, f, o, g, with h before the first step where it is not zero; U
    are (G, K, M, 4M), transposed; c_0 is (G, P, B, M), by default zero. A position takes part in successive steps only,
    those whose window [first, end) holds it; elsewhere h and c are zero, and no arithmetic is spent. Returns
    h (G, T, P, B, M), and c after the last step (G, P, B, M).
    """
    windows = [(0, projected.shape[2])] * projected.shape[1] if windows is None else windows
    return lattice(projected, weights, c0, tuple(offsets), tuple(windows), _plain)


def _plain(
    projected: Tensor,
    weights: Tensor,
    c0: Tensor | None,
    offsets: tuple[int, ...],
    windows: tuple[Window, ...],
    activations: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence in plain operations; activations: the gates of every step, if projected is a placeholder."""
    wide, positions, size = wide_dtype(projected), projected.shape[2], weights.shape[2]
    products = weights.to(wide).unsqueeze(2).unbind(1)  # (G, 1, M, 4M) each
    side = max([0, *map(abs, offsets)])
    h = projected.new_zeros(*projected.shape[:1], *projected.shape[2:4], size, dtype=wide)
    c = h if c0 is None else c0.to(wide)
    steps = []
    for t, (first, end) in enumerate(windows):
        a = projected[:, t, first:end].to(wide)
        if t:
            padded = pad(h, (0, 0, 0, 0, side, side))
            for weight, offset in zip(products, offsets, strict=True):
                a = a + padded[:, first + offset + side : end + offset + side] @ weight
        gates = None if activations is None else gate_order(activations[:, t, first:end])
        h_t, c_t = lstm_cell(gate_order(a), c[:, first:end], gates)
        beyond = (0, 0, 0, 0, first, positions - end)  # positions that take no part
        c, h = pad(c_t, beyond), pad(h_t, beyond)
        steps.append(h)
    return torch.stack(steps, 1).to(projected.dtype), c


def gate_order(a: Tensor) -> tuple[Tensor, ...]:
    """Return the gates i, f, g, o of (..., 4M) in the order i, f, o, g."""
    i, f, o, g = a.chunk(4, -1)
    return i, f, g, o
