"""Norms of Jacobians and of their running products: written out where states are few, found by iteration beyond."""

import pytest
import torch
from recurrences import KINDS, B, N, T, jacobians

from chainrule.diagnostics import _backpropagation as module
from chainrule.diagnostics._backpropagation import jacobian_norms, running_products
from chainrule.diagnostics._subject import replay, subject_of

LENGTHS = torch.tensor([7, 4, 2, 1])


def generator():
    return torch.Generator().manual_seed(0)


def derivative_of(kind, size, time=T, scale=1.5):
    layer = KINDS[kind](size=size, layers=1)
    for weight in layer.parameters():
        weight.data *= scale
    x = torch.randn(B, time, N)
    with torch.no_grad():
        passages, _, _ = replay(subject_of(layer, x))
    return layer, x, passages[0].derivative


@pytest.mark.parametrize("kind", KINDS)
def test_small_states_are_exact(kind):
    layer, x, derivative = derivative_of(kind, 5)
    matrices = jacobians(layer, x)
    torch.testing.assert_close(jacobian_norms(derivative, generator()).t(), torch.linalg.matrix_norm(matrices, 2))
    products = running_products(derivative, jacobian_norms(derivative, generator()), LENGTHS, generator()).t()
    for row, length in enumerate(LENGTHS):
        product = torch.eye(matrices.shape[-1])
        for t in reversed(range(T)):
            if t < length:
                expected = torch.linalg.matrix_norm(product, 2)
                product = product @ matrices[row, t]
            else:
                expected = torch.tensor(0.0)
            torch.testing.assert_close(products[row, t], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_large_states_agree_with_their_matrices(kind, monkeypatch):
    _, _, derivative = derivative_of(kind, 48, time=20)
    lengths = torch.tensor([20, 20, 9, 2])
    monkeypatch.setattr(module, "EXACT", 1000)
    exact = jacobian_norms(derivative, generator())
    exact_products = running_products(derivative, exact, lengths, generator())
    monkeypatch.setattr(module, "EXACT", 1)
    monkeypatch.setattr(module, "WRITTEN_OUT", 0)
    found = jacobian_norms(derivative, generator())
    torch.testing.assert_close(found, exact, rtol=1e-2, atol=0)  # 16 products of a space of 48 or 96
    products = running_products(derivative, found, lengths, generator())
    torch.testing.assert_close(
        products, exact_products, rtol=0.15, atol=0
    )  # a subspace: from below, within 15% at worst
    assert (products <= exact_products * (1 + 1e-9)).all()


def test_a_single_random_direction_would_not_do(monkeypatch):
    """What the iteration is for: a random direction finds a small part of a norm."""
    _, _, derivative = derivative_of("tanh", 80, time=40)
    monkeypatch.setattr(module, "EXACT", 1)
    monkeypatch.setattr(module, "ITERATIONS", 1)
    monkeypatch.setattr(module, "_leading_direction", lambda weight, v: 0 * v)
    poor = jacobian_norms(derivative, generator())
    monkeypatch.setattr(module, "EXACT", 1000)
    assert (poor < 0.8 * jacobian_norms(derivative, generator())).all()


def test_products_over_a_thousand_steps_neither_vanish_to_nan_nor_overflow():
    for alpha in (0.3, 3.0):
        layer = KINDS["identity"](size=3, layers=1).float()
        layer.weight_hh_l0.data = alpha * torch.eye(3)
        layer.weight_ih_l0.data.zero_()
        layer.bias_ih_l0.data.zero_()
        layer.bias_hh_l0.data.zero_()
        with torch.no_grad():
            passages, _, _ = replay(subject_of(layer, torch.zeros(1, 500, N, dtype=torch.float32)))
        derivative = passages[0].derivative
        found = running_products(derivative, jacobian_norms(derivative, generator()), torch.tensor([500]), generator())[
            0, 0
        ]
        assert torch.log(found) == pytest.approx(499 * torch.log(torch.tensor(alpha)).item(), rel=1e-5)
