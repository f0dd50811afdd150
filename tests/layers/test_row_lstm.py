"""The Row LSTM is its equations, and sees a triangle."""

import pytest
import torch
from light import gradient_reach, positive_reach
from torch import nn

from chainrule.layers import RowLSTM


def drawn(*arguments, **options):
    layer = RowLSTM(*arguments, **options).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def written_out(layer, x, label=None):
    """Pixel by pixel, from the weights alone."""
    batch, _, height, width = x.shape
    taps, half, _ = layer.recurrent.shape
    side = taps // 2
    kernel = (layer.input.weight * layer.input.mask)[:, :, 0]  # (4M/2, M, taps)
    bias = layer.input.bias if label is None else layer.input.bias + layer.label_bias.weight[label]
    out = (layer.output.weight * layer.output.mask)[:, :, 0, 0]
    h, c, y = {}, {}, torch.empty_like(x)
    zero = x.new_zeros(batch, half)
    for i in range(height):
        for j in range(width):
            a = bias.expand(batch, -1)
            for k in range(taps):
                column = j + k - side
                if 0 <= column < width:
                    a = a + x[:, :, i, column] @ kernel[:, :, k].t()
                    a = a + h.get((i - 1, column), zero) @ layer.recurrent[k]
            opening_in, forget, opening_out, value = a.chunk(4, 1)
            c[i, j] = forget.sigmoid() * c.get((i - 1, j), zero) + opening_in.sigmoid() * value.tanh()
            h[i, j] = opening_out.sigmoid() * c[i, j].tanh()
            y[:, :, i, j] = x[:, :, i, j] + h[i, j] @ out.t()
    return y


@pytest.mark.parametrize(("channels", "kernel_size", "groups"), [(6, 3, 1), (7, 5, 3)])
def test_it_is_its_equations(channels, kernel_size, groups):
    layer, x = drawn(channels, kernel_size, groups, num_classes=3), torch.randn(2, channels, 4, 5, dtype=torch.float64)
    label = torch.tensor([2, 0])
    torch.testing.assert_close(layer(x, None, label)[0], written_out(layer, x, label), rtol=0, atol=1e-12)


def test_a_state_to_state_kernel_that_is_off_by_one_is_none_of_its_equations():
    layer, x = drawn(6), torch.randn(2, 6, 4, 5, dtype=torch.float64)
    expected = written_out(layer, x)
    layer.recurrent.data = layer.recurrent.data.roll(1, 0)
    assert not torch.allclose(layer(x)[0], expected)


@pytest.mark.parametrize("groups", [1, 3])
def test_gradients_go_where_it_lets_light_through_and_nowhere_else(groups):
    layer = drawn(6, channel_groups=groups)
    seen = gradient_reach(lambda x: layer(x)[0], 6, 3, 4, groups)
    assert torch.equal(seen, positive_reach(layer, 6, 3, 4, groups, lambda layer, x: layer(x)[0]))


def test_it_sees_a_triangle():
    seen = positive_reach(RowLSTM(4), 4, 5, 7, 1, lambda layer, x: layer(x)[0])[4 * 7 + 3].view(
        5, 7
    )  # of the pixel in row 4, column 3
    assert seen.int().tolist() == [
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 0],
        [0, 1, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0, 0],
    ]


def test_rows_follow_those_above():
    layer, x = drawn(6), torch.randn(2, 6, 7, 3, dtype=torch.float64)
    above, parts = (x.new_zeros(2, 3, 1, 3),) * 2, []
    for rows in x.split([1, 4, 2], 2):
        part, above = layer(rows, above)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 2), layer(x)[0], rtol=0, atol=1e-12)


def test_dropout_acts_in_training_only():
    layer, x = RowLSTM(8, dropout=0.5), torch.randn(1, 8, 3, 3)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    assert torch.equal(layer.eval()(x)[0], layer(x)[0])
