"""Diagonals become rows and come back."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.layers import skew
from chainrule.layers._lattice_lstm import unskew

SIZES = st.integers(1, 6)


@given(SIZES, SIZES, SIZES, st.integers(0, 2))
def test_an_image_comes_back_as_it_was(count, height, width, features):
    x = torch.arange(count * height * width * 2**features).view(count, height, width, *[2] * features)
    assert torch.equal(unskew(skew(x)), x)


@given(SIZES, SIZES)
def test_every_pixel_stands_in_its_diagonal_and_zeros_elsewhere(height, width):
    x = torch.arange(1, 1 + height * width).view(1, height, width)
    y = skew(x)
    assert y.shape == (1, height + width - 1, height)
    expected = torch.zeros_like(y)
    for i in range(height):
        for j in range(width):
            expected[0, i + j, i] = x[0, i, j]
    assert torch.equal(y, expected)


def test_gradients_come_back_to_their_pixels_and_what_is_outside_gives_none():
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 6, 3, dtype=torch.float64)
    (skew(x) * weight).sum().backward()
    assert torch.equal(x.grad, unskew(weight))
