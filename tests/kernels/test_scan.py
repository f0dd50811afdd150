"""The linear recurrence by pairs and step by step: the same values and the same derivatives of any order."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from chainrule.layers import linear_scan

pytestmark = pytest.mark.usefixtures("float64")

TOLERANCE = 1e-12  # float64; sums of terms of size one, whose weights fall geometrically
B, M = 2, 3


@pytest.fixture(params=["by pairs", "in order"])
def _both_forms(request, monkeypatch):
    monkeypatch.setattr("chainrule.kernels._scan.WIDE_STEP", B * M if request.param == "in order" else B * M + 1)


def drawn(time, seed=0):
    """a in [0, 1) with some exact zeros and ones, and b and h_0 of any sign."""
    generator = torch.Generator().manual_seed(seed)
    a = (1.2 * torch.rand(B, time, M, generator=generator) - 0.1).clamp(0, 1)
    b = torch.randn(B, time, M, generator=generator)
    return a, b, torch.randn(B, M, generator=generator)


def loop(a, b, h):
    steps = []
    for t in range(b.shape[1]):
        h = a[:, t] * h + b[:, t]
        steps.append(h)
    return torch.stack(steps, 1)


def with_gradients(function, inputs):
    inputs = [part.clone().requires_grad_() for part in inputs]
    h = function(*inputs)
    weights = torch.randn(h.shape, generator=torch.Generator().manual_seed(1))
    return [h, *torch.autograd.grad((h * weights).sum(), inputs)]


def assert_equal(left, right):
    for one, other in zip(left, right, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE)


@given(st.integers(1, 40), st.integers(0, 1000), st.sampled_from([B * M, B * M + 1]))
@settings(max_examples=25, deadline=None)
def test_values_and_gradients_are_those_of_the_loop(time, seed, wide_step):
    inputs = drawn(time, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chainrule.kernels._scan.WIDE_STEP", wide_step)
        assert_equal(with_gradients(linear_scan, inputs), with_gradients(loop, inputs))


@pytest.mark.usefixtures("_both_forms")
def test_one_coefficient_for_many_units_gets_the_sum_of_their_gradients():
    _, b, initial = drawn(9)
    a = torch.rand(B, 9, 1)
    whole = with_gradients(lambda a, b, h: linear_scan(a.expand(b.shape), b, h), [a, b, initial])
    assert_equal(with_gradients(linear_scan, [a, b, initial]), whole)


@pytest.mark.usefixtures("_both_forms")
def test_products_that_underflow_leave_no_trace():
    """Logarithms of such products, or quotients of them, are where other forms give nan or inf."""
    a = torch.full((B, 400, M), 1e-30)
    a[:, 1::2] = 0
    b = torch.randn(B, 400, M)
    values = with_gradients(linear_scan, [a, b, torch.randn(B, M)])
    assert_equal(values[:1], [torch.cat([values[0][:, :1], b[:, 1:]], 1)])
    assert all(value.isfinite().all() for value in values)


def test_no_steps_give_no_outputs():
    inputs = [part.requires_grad_() for part in (torch.ones(B, 0, 3), torch.ones(B, 0, 3), torch.ones(B, 3))]
    h = linear_scan(*inputs)
    assert h.shape == (B, 0, 3)
    h.sum().backward()
    assert_equal([inputs[2].grad], [torch.zeros(B, 3)])


@pytest.mark.usefixtures("_both_forms")
def test_derivatives_of_second_order_are_right():
    inputs = [part.requires_grad_() for part in drawn(5)]
    assert gradcheck(linear_scan, inputs)
    assert gradgradcheck(linear_scan, inputs)


@pytest.mark.usefixtures("_both_forms")
def test_the_transforms_of_torch_func_work():
    a, b, initial = drawn(7)
    for_all = torch.func.grad(lambda *inputs: linear_scan(*inputs).square().sum(), (0, 1, 2))(a, b, initial)
    assert_equal(for_all, torch.func.grad(lambda *inputs: loop(*inputs).square().sum(), (0, 1, 2))(a, b, initial))
    each = torch.func.vmap(lambda a, b, h: linear_scan(a[None], b[None], h[None])[0])
    assert_equal([each(a, b, initial)], [loop(a, b, initial)])


@pytest.mark.usefixtures("_both_forms")
def test_several_gradients_at_once_are_those_one_by_one():
    a, b, initial = drawn(5)
    a.requires_grad_()
    h = linear_scan(a, b, initial)
    weights = torch.randn(3, *h.shape)
    (together,) = torch.autograd.grad(h, a, weights, is_grads_batched=True, retain_graph=True)
    single = torch.stack([torch.autograd.grad(h, a, weight, retain_graph=True)[0] for weight in weights])
    assert_equal([together], [single])
