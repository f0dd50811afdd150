"""J_t and J_tᵀ as products, against each other, against autograd and against their bounds."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recurrences import KINDS, B, N, T, jacobians

from chainrule.diagnostics._subject import replay, subject_of


def derivative_of(kind, size=5, scale=1.0, seed=0):
    torch.manual_seed(seed)
    layer = KINDS[kind](size=size, layers=1)
    for weight in layer.parameters():
        weight.data *= scale
    x = torch.randn(B, T, N)
    with torch.no_grad():
        passages, _, _ = replay(subject_of(layer, x))
    return layer, x, passages[0].derivative


def matrices(derivative):
    eye = torch.eye(derivative.state_size).expand(T, B, -1, -1)
    return derivative.each(lambda factor: factor.unsqueeze(-2)).push(eye).permute(1, 0, 3, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_push_is_the_jacobian_of_a_step(kind):
    layer, x, derivative = derivative_of(kind)
    torch.testing.assert_close(matrices(derivative), jacobians(layer, x), rtol=0, atol=1e-10)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), scale=st.floats(0.1, 4), kind=st.sampled_from(list(KINDS)))
def test_pull_is_the_transpose_of_push(seed, scale, kind):
    _, _, derivative = derivative_of(kind, scale=scale, seed=seed)
    v, u = torch.randn(2, T, B, derivative.state_size)
    left, right = (derivative.push(v) * u).sum(-1), (v * derivative.pull(u)[0]).sum(-1)
    torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), scale=st.floats(0.1, 4), kind=st.sampled_from(list(KINDS)))
def test_no_jacobian_exceeds_its_bound(seed, scale, kind):
    _, _, derivative = derivative_of(kind, scale=scale, seed=seed)
    norms = torch.linalg.matrix_norm(matrices(derivative), 2)
    assert (norms <= derivative.bound().t() * (1 + 1e-9)).all()


def test_the_bound_of_the_linear_case_is_reached():
    layer, x, _ = derivative_of("identity")
    with torch.no_grad():
        passages, _, _ = replay(subject_of(layer, x))
    derivative = passages[0].derivative
    norms = torch.linalg.matrix_norm(matrices(derivative), 2)
    torch.testing.assert_close(derivative.bound().t(), norms)


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_is_pushed_as_its_gradient_is_pulled(kind):
    _, _, derivative = derivative_of(kind)
    dp = torch.randn(T, B, derivative.weight_hh.shape[0])
    u = torch.randn(T, B, derivative.state_size)
    pushed = derivative.push(torch.zeros_like(u), dp)
    torch.testing.assert_close((pushed * u).sum(-1), (dp * derivative.pull(u)[1]).sum(-1), rtol=0, atol=1e-10)
