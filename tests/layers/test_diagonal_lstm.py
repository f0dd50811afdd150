"""The Diagonal BiLSTM is its equations, and sees everything that is past."""

import pytest
import torch
from light import gradient_reach, positive_reach
from torch import nn

from chainrule.layers import DiagonalLSTM, skew
from chainrule.layers import _lattice_lstm as diagonal_lstm


def drawn(*arguments, **options):
    layer = DiagonalLSTM(*arguments, **options).double()
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
def test_it_is_its_equations(height, width, groups):
    layer = drawn(7, groups, image_channels=groups, num_classes=3)
    x, image = (torch.randn(2, size, height, width, dtype=torch.float64) for size in (7, groups))
    label = torch.tensor([2, 0])
    expected = written_out(layer, x, label, image)
    torch.testing.assert_close(layer(x, None, label, image)[0], expected, rtol=0, atol=1e-12)


def test_a_skew_by_one_too_many_is_none_of_its_equations(monkeypatch):
    layer, x = drawn(6), torch.randn(2, 6, 3, 4, dtype=torch.float64)
    expected = written_out(layer, x)
    torch.testing.assert_close(layer(x)[0], expected, rtol=0, atol=1e-12)
    monkeypatch.setattr(diagonal_lstm, "skew", lambda a: skew(a).roll(1, 1))
    assert not torch.allclose(layer(x)[0], expected)


@pytest.mark.parametrize("groups", [1, 3])
def test_gradients_go_where_it_lets_light_through_and_nowhere_else(groups):
    layer = drawn(6, groups)
    seen = gradient_reach(lambda x: layer(x)[0], 6, 3, 4, groups)
    assert torch.equal(seen, positive_reach(layer, 6, 3, 4, groups, lambda layer, x: layer(x)[0]))


def test_of_the_image_it_sees_what_stands_above_and_to_the_right():
    layer, x = drawn(4, image_channels=1), torch.randn(1, 4, 3, 4, dtype=torch.float64)
    seen = gradient_reach(lambda image: layer(x, image=image)[0], 1, 3, 4, 1)
    rows, columns = torch.arange(3), torch.arange(4)
    above, right = rows.view(3, 1, 1, 1) > rows.view(3, 1), columns.view(4, 1, 1) <= columns
    assert torch.equal(seen, (above & right).view(12, 12))
    assert torch.equal(seen[9].view(3, 4).int(), torch.tensor([[0, 1, 1, 1], [0, 1, 1, 1], [0, 0, 0, 0]]))


def test_everything_past_is_seen():
    layer = drawn(4)
    seen = gradient_reach(lambda x: layer(x)[0], 4, 4, 5, 1)
    assert torch.equal(seen, torch.ones(20, 20, dtype=torch.bool).tril())


def test_rows_follow_those_above():
    layer, x = drawn(6), torch.randn(2, 6, 7, 3, dtype=torch.float64)
    above, parts = (x.new_zeros(2, 3, 1, 3),) * 2, []
    for rows in x.split([1, 4, 2], 2):
        part, above = layer(rows, above)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 2), layer(x)[0], rtol=0, atol=1e-12)


def test_dropout_acts_in_training_only():
    layer, x = DiagonalLSTM(8, dropout=0.5), torch.randn(1, 8, 3, 3)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    assert torch.equal(layer.eval()(x)[0], layer(x)[0])


def test_an_image_that_is_missing_is_named():
    with pytest.raises(ValueError, match="image: expected"):
        DiagonalLSTM(8, image_channels=1)(torch.zeros(1, 8, 3, 3))
