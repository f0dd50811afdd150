"""The recurrence over a lattice and its written-out gradient are those of the equations."""

import pytest
import torch

from chainrule.layers._lattice_lstm import lattice_cell, lattice_lstm

CASES = {
    "three neighbours, a cell before": ((-1, 0, 1), [(0, 4)] * 3, True),
    "diagonals of a wide image": ((-1, 0), [(0, 1), (0, 2), (0, 2), (1, 2)], False),
    "diagonals of a high image": ((-1, 0), [(0, 1), (0, 2), (1, 3), (2, 4), (3, 4)], False),
    "one position": ((0,), [(0, 1)] * 4, False),
    "a single step": ((-1, 0, 1), [(0, 3)], True),
    "positions that begin later, a cell before": ((-1, 0), [(0, 2), (0, 4), (2, 4)], True),
}


def written_out(projected, weights, offsets, c0, windows):
    """One position at a time, by autograd."""
    streams, steps, positions, batch, _ = projected.shape
    size = weights.shape[2]
    zero = projected.new_zeros(streams, batch, size)
    h = [[zero] * positions for _ in range(steps)]
    c = [c0[:, p] if c0 is not None and p in range(*windows[0]) else zero for p in range(positions)]
    for t, (first, end) in enumerate(windows):
        for p in range(first, end):
            a = projected[:, t, p]
            for k, offset in enumerate(offsets):
                if t and 0 <= p + offset < positions:
                    a = a + torch.einsum("gbm,gmn->gbn", h[t - 1][p + offset], weights[:, k])
            i, f, o, g = a.split(size, 2)
            c[p] = f.sigmoid() * c[p] + i.sigmoid() * g.tanh()
            h[t][p] = o.sigmoid() * c[p].tanh()
    first, end = windows[-1]
    last = [c[p] if first <= p < end else zero for p in range(positions)]
    return torch.stack([torch.stack(row, 1) for row in h], 1), torch.stack(last, 1)


def arguments(case, dtype=torch.float64):
    offsets, windows, with_cells = CASES[case]
    positions = max(end for _, end in windows)
    projected = torch.randn(2, len(windows), positions, 3, 8, dtype=dtype, requires_grad=True)
    weights = torch.randn(2, len(offsets), 2, 8, dtype=dtype, requires_grad=True)
    c0 = torch.randn(2, positions, 3, 2, dtype=dtype, requires_grad=True) if with_cells else None
    return projected, weights, offsets, c0, windows


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_the_equations(case):
    given = arguments(case)
    leaves = [leaf for leaf in (given[0], given[1], given[3]) if leaf is not None]
    results = []
    for function in (lattice_lstm, written_out):
        h, c = function(*given)
        loss = (h * torch.linspace(-1, 2, h.numel()).view_as(h)).sum() + (c * c).sum()
        results.append((h, c, *torch.autograd.grad(loss, leaves, allow_unused=True)))
    for got, expected in zip(*results, strict=True):
        expected = torch.zeros_like(got) if expected is None else expected  # weights that a single step does not use
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_half_precision_is_kept_in_float32_inside():
    projected, weights, offsets, c0, windows = arguments("three neighbours, a cell before", torch.float32)
    h, c = lattice_lstm(projected.bfloat16(), weights, offsets, c0, windows)
    exact, exact_c = lattice_lstm(projected.bfloat16().float(), weights, offsets, c0, windows)
    assert h.dtype == torch.bfloat16
    assert torch.equal(h, exact.bfloat16())
    assert torch.equal(c, exact_c)
    h.float().sum().backward()
    assert weights.grad.isfinite().all()


def test_one_cell_is_a_step_of_the_recurrence():
    projected, _, _, _, _ = arguments("one position")
    c = torch.randn(3, 2, dtype=torch.float64)
    h, c_after = lattice_cell(projected[0, 0, 0], c)
    expected = lattice_lstm(projected[:1, :1], torch.zeros(1, 1, 2, 8, dtype=torch.float64), (0,), c[None, None])
    torch.testing.assert_close(h, expected[0][0, 0, 0], rtol=0, atol=1e-14)
    torch.testing.assert_close(c_after, expected[1][0, 0], rtol=0, atol=1e-14)
