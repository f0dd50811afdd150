"""The Diagonal BiLSTM and the Row LSTM are their equations; one sees everything that is past, the other a triangle."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from light import gradient_reach, positive_reach
from torch import nn

from chainrule.layers import DiagonalLSTM, RowLSTM
from chainrule.layers import _lattice_lstm as lattice
from chainrule.layers._lattice_lstm import skew, unskew

KINDS = pytest.mark.parametrize("kind", [DiagonalLSTM, RowLSTM])
SIZES = st.integers(1, 6)


def drawn(kind, *arguments, **options):
    layer = kind(*arguments, **options).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def stream(entering, weights, mirrored):
    """h of every pixel, by row and column, from the gates' input (B, 4M/2, H, W)."""
    batch, gates, height, width = entering.shape
    h, c, side = {}, {}, 1 if mirrored else -1
    zero = entering.new_zeros(batch, gates // 4)
    for i in range(height):
        for j in reversed(range(width)) if mirrored else range(width):
            up, sideways = h.get((i - 1, j), zero), h.get((i, j + side), zero)
            opening_in, forget, opening_out, value = (
                entering[:, :, i, j] + up @ weights[0] + sideways @ weights[1]
            ).chunk(4, 1)
            c[i, j] = forget.sigmoid() * c.get((i, j + side), zero) + opening_in.sigmoid() * value.tanh()
            h[i, j] = opening_out.sigmoid() * c[i, j].tanh()
    return h


def written_out(layer, x, label=None, image=None):
    """Pixel by pixel, from the weights alone, without skewing."""

    def product(weight, read):
        return torch.einsum("oi,bihw->bohw", weight[:, :, 0, 0], read)

    left = product(layer.input_left.weight * layer.input_left.mask, x) + layer.input_left.bias.view(-1, 1, 1)
    right = product(layer.input_right.weight, x) + layer.input_right.bias.view(-1, 1, 1)
    if image is not None:
        right = right + product(layer.image_right.weight, image)
    if label is not None:
        bias = layer.label_bias.weight[label].unsqueeze(2).unsqueeze(3)
        left, right = left + bias[:, : left.shape[1]], right + bias[:, left.shape[1] :]
    left, right = stream(left, layer.recurrent[0], False), stream(right, layer.recurrent[1], True)
    out = (layer.output.weight * layer.output.mask)[:, :, 0, 0]
    y = torch.empty_like(x)
    for i, j in left:
        h = left[i, j] + right[i - 1, j] if i else left[i, j]
        y[:, :, i, j] = x[:, :, i, j] + h @ out.t()
    return y


@pytest.mark.parametrize(("height", "width"), [(3, 5), (5, 3), (1, 4), (4, 1)])
@pytest.mark.parametrize("groups", [1, 3])
def test_diagonals_are_their_equations(height, width, groups):
    layer = drawn(DiagonalLSTM, 7, groups, image_channels=groups, num_classes=3)
    x, image = (torch.randn(2, size, height, width, dtype=torch.float64) for size in (7, groups))
    label = torch.tensor([2, 0])
    expected = written_out(layer, x, label, image)
    torch.testing.assert_close(layer(x, None, label, image)[0], expected, rtol=0, atol=1e-12)


def test_a_skew_by_one_too_many_is_none_of_its_equations(monkeypatch):
    layer, x = drawn(DiagonalLSTM, 6), torch.randn(2, 6, 3, 4, dtype=torch.float64)
    expected = written_out(layer, x)
    torch.testing.assert_close(layer(x)[0], expected, rtol=0, atol=1e-12)
    monkeypatch.setattr(lattice, "skew", lambda a: skew(a).roll(1, 1))
    assert not torch.allclose(layer(x)[0], expected)


def test_of_the_image_it_sees_what_stands_above_and_to_the_right():
    layer, x = drawn(DiagonalLSTM, 4, image_channels=1), torch.randn(1, 4, 3, 4, dtype=torch.float64)
    seen = gradient_reach(lambda image: layer(x, image=image)[0], 1, 3, 4, 1)
    rows, columns = torch.arange(3), torch.arange(4)
    above, right = rows.view(3, 1, 1, 1) > rows.view(3, 1), columns.view(4, 1, 1) <= columns
    assert torch.equal(seen, (above & right).view(12, 12))
    assert torch.equal(seen[9].view(3, 4).int(), torch.tensor([[0, 1, 1, 1], [0, 1, 1, 1], [0, 0, 0, 0]]))


def test_everything_past_is_seen():
    layer = drawn(DiagonalLSTM, 4)
    seen = gradient_reach(lambda x: layer(x)[0], 4, 4, 5, 1)
    assert torch.equal(seen, torch.ones(20, 20, dtype=torch.bool).tril())


def test_an_image_that_is_missing_is_named():
    with pytest.raises(ValueError, match="image: expected"):
        DiagonalLSTM(8, image_channels=1)(torch.zeros(1, 8, 3, 3))


def rows_written_out(layer, x, label=None):
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
def test_rows_are_their_equations(channels, kernel_size, groups):
    layer, x = (
        drawn(RowLSTM, channels, kernel_size, groups, num_classes=3),
        torch.randn(2, channels, 4, 5, dtype=torch.float64),
    )
    label = torch.tensor([2, 0])
    torch.testing.assert_close(layer(x, None, label)[0], rows_written_out(layer, x, label), rtol=0, atol=1e-12)


def test_a_state_to_state_kernel_that_is_off_by_one_is_none_of_its_equations():
    layer, x = drawn(RowLSTM, 6), torch.randn(2, 6, 4, 5, dtype=torch.float64)
    expected = rows_written_out(layer, x)
    layer.recurrent.data = layer.recurrent.data.roll(1, 0)
    assert not torch.allclose(layer(x)[0], expected)


def test_rows_see_a_triangle():
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


@KINDS
@pytest.mark.parametrize("groups", [1, 3])
def test_gradients_go_where_it_lets_light_through_and_nowhere_else(kind, groups):
    layer = drawn(kind, 6, channel_groups=groups)
    seen = gradient_reach(lambda x: layer(x)[0], 6, 3, 4, groups)
    assert torch.equal(seen, positive_reach(layer, 6, 3, 4, groups, lambda layer, x: layer(x)[0]))


@KINDS
def test_rows_follow_those_above(kind):
    layer, x = drawn(kind, 6), torch.randn(2, 6, 7, 3, dtype=torch.float64)
    above, parts = (x.new_zeros(2, 3, 1, 3),) * 2, []
    for rows in x.split([1, 4, 2], 2):
        part, above = layer(rows, above)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 2), layer(x)[0], rtol=0, atol=1e-12)


@KINDS
def test_dropout_acts_in_training_only(kind):
    layer, x = kind(8, dropout=0.5), torch.randn(1, 8, 3, 3)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    assert torch.equal(layer.eval()(x)[0], layer(x)[0])


@given(SIZES, SIZES, SIZES, st.integers(0, 2))
def test_a_skewed_image_comes_back_as_it_was(count, height, width, features):
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


def test_gradients_of_a_skew_come_back_to_their_pixels_and_what_is_outside_gives_none():
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 6, 3, dtype=torch.float64)
    (skew(x) * weight).sum().backward()
    assert torch.equal(x.grad, unskew(weight))
