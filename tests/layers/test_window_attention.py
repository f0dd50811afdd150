import pytest
import torch

from chainrule.layers._multi_head_attention import WindowAttention, relative_offsets, shifted_mask


def plain(layer, x):
    """The written equations, place by place: which places share a window and are neighbours, then softmax."""
    _, height, width, size = x.shape
    side, heads = layer.window, layer.num_heads
    # Along a side that one window spans, nothing is moved, as in torchvision.models.swin_transformer.
    down, right = (layer.shift if length > side else 0 for length in (height, width))
    depth = size // heads
    projected = torch.nn.functional.linear(x, layer.in_proj.weight, layer.in_proj.bias)
    queries, keys, values = projected.split(size, 3)
    y = torch.zeros_like(x)

    def window_of(row, column):
        moved = (row - down) % height, (column - right) % width
        # Places that were carried round the border are apart from those that were not.
        return moved[0] // side, moved[1] // side, row < down, column < right

    places = [(row, column) for row in range(height) for column in range(width)]
    for row, column in places:
        seen = [place for place in places if window_of(*place) == window_of(row, column)]
        for head in range(heads):
            part = slice(head * depth, (head + 1) * depth)
            offsets = [(row - r + side - 1) * (2 * side - 1) + column - c + side - 1 for r, c in seen]
            scores = torch.stack([(queries[:, row, column, part] * keys[:, r, c, part]).sum(1) for r, c in seen], 1)
            weights = (scores * depth**-0.5 + layer.bias[head, offsets]).softmax(1)
            y[:, row, column, part] = sum(
                weights[:, place : place + 1] * values[:, r, c, part] for place, (r, c) in enumerate(seen)
            )
    return torch.nn.functional.linear(y, layer.out_proj.weight, layer.out_proj.bias)


@pytest.mark.parametrize(
    ("height", "width", "window", "shift"),
    [(4, 4, 2, 1), (4, 6, 2, 0), (6, 3, 3, 1), (3, 6, 3, 2), (4, 4, 4, 0), (4, 4, 4, 1)],
)
def test_windows_are_those_of_the_written_equations(height, width, window, shift):
    layer = WindowAttention(4, 2, height, width, window, shift).double()
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(2, height, width, 4, dtype=torch.float64)
    torch.testing.assert_close(layer(x), plain(layer, x), rtol=0, atol=1e-12)


def test_the_mask_of_a_shift_is_seen_by_derivatives():
    layer = WindowAttention(4, 1, 4, 4, window=2, shift=1).double()
    x = torch.randn(1, 4, 4, 4, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x)[0, 0, 0].sum(), x)
    reached = gradient[0].abs().sum(2) > 0
    assert reached.nonzero().tolist() == [[0, 0]]  # a corner: its window holds nothing else that is near
    (gradient,) = torch.autograd.grad(layer(x)[0, 1, 2].sum(), x)
    assert (gradient[0].abs().sum(2) > 0).nonzero().tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]
    layer.mask = None  # without it the corner reads the opposite borders
    (gradient,) = torch.autograd.grad(layer(x)[0, 0, 0].sum(), x)
    assert (gradient[0].abs().sum(2) > 0).sum() == 4


def test_weights_sum_to_one_and_are_what_is_read():
    layer = WindowAttention(4, 2, 4, 4, window=2, shift=1)
    found = layer.attended(torch.randn(3, 4, 4, 4))
    assert found.shape == (3, 4, 2, 4, 4)
    torch.testing.assert_close(found.sum(-1), torch.ones(3, 4, 2, 4))
    assert (found[:, :, 0] > 0).eq(shifted_mask(4, 4, 2, 1)).all()


def test_offsets_are_numbered_once_each():
    offsets = relative_offsets(3)
    assert offsets.unique().tolist() == list(range(25))
    assert (offsets.diagonal() == 12).all()


def test_a_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="model_size"):
        WindowAttention(6, 4, 4, 4, 2)
