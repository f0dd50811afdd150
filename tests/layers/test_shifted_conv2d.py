"""What a shifted convolution reads, and the way back from a coarser resolution."""

import pytest
import torch

from chainrule.layers._gated_pyramid import ShiftedConv2d, ShiftedUpsampling
from chainrule.layers._pointwise import concatenated_elu

RIGHT = pytest.mark.parametrize("reads_right", [True, False])
SIZES = pytest.mark.parametrize(("height", "width"), [(4, 6), (5, 5), (1, 3), (3, 1)])


def test_concatenated_elu_has_both_signs():
    x = torch.tensor([[1.0, -2.0]])
    expected = torch.tensor([[1, torch.e**-2 - 1, torch.e**-1 - 1, 2]])
    torch.testing.assert_close(concatenated_elu(x), expected)


@RIGHT
@SIZES
@pytest.mark.parametrize("stride", [1, 2])
def test_the_sum_is_that_of_the_equation(reads_right, height, width, stride):
    layer = ShiftedConv2d(3, 2, reads_right=reads_right, stride=stride).double()
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(2, 3, height, width, dtype=torch.float64)
    rows, columns = -(-height // stride), -(-width // stride)
    expected = layer.bias.view(1, -1, 1, 1).repeat(2, 1, rows, columns)
    for i in range(rows):
        for j in range(columns):
            for u in (-1, 0):
                for v in range(-1, 1 + reads_right):
                    row, column = stride * i + u, stride * j + v
                    if 0 <= row < height and 0 <= column < width:
                        expected[:, :, i, j] += x[:, :, row, column] @ layer.weight[:, :, 1 + u, 1 + v].t()
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-12)  # the same sums in another order


@RIGHT
@SIZES
def test_the_way_back_is_that_of_the_equation(reads_right, height, width):
    layer = ShiftedUpsampling(3, reads_right=reads_right).double()
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(2, 3, -(-height // 2), -(-width // 2), dtype=torch.float64)
    expected = layer.bias.view(1, -1, 1, 1).repeat(2, 1, 2 * x.shape[2], width)
    for i in range(expected.shape[2]):
        for j in range(width):
            for column in range(x.shape[3]):
                tap = j - 2 * column + reads_right
                if 0 <= tap < layer.weight.shape[3]:
                    expected[:, :, i, j] += x[:, :, i // 2, column] @ layer.weight[:, :, i % 2, tap]
    torch.testing.assert_close(layer(x, width), expected, rtol=0, atol=1e-12)


def gradient_reach(function, height, width):
    """(rows, columns, H, W) booleans: whether an output has a gradient in an input of (1, 2, H, W)."""
    x = torch.randn(1, 2, height, width, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: function(x)[0], x)[:, :, :, 0].abs()
    return jacobian.sum((0, 3)) > 0


def test_a_coarse_row_knows_nothing_after_the_first_of_the_rows_that_it_stands_for():
    reach = gradient_reach(ShiftedConv2d(2, 2, reads_right=False, stride=2).double(), 6, 6)
    for row in range(3):
        assert not reach[row, :, 2 * row + 1 :].any()
        assert reach[row, :, 2 * row].any()
