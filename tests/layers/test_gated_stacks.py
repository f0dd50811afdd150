"""The two stacks compute their equations and leave no blind spot; what a shifted convolution reads."""

import pytest
import torch
from light import gradient_reach, positive_reach
from torch import nn

from chainrule.layers._masked_conv2d import GatedStacks


class Stacks(nn.Module):
    """A layer of type A and some of type B over an image, as the gated PixelCNN has them."""

    def __init__(self, colours, count, kernel_size=3):
        super().__init__()
        self.first = GatedStacks(colours, 6, kernel_size, "A", colours)
        self.others = nn.ModuleList(GatedStacks(6, 6, kernel_size, "B", colours) for _ in range(count))

    def forward(self, x):
        v, h = self.first(nn.functional.pad(x, (0, 0, 1, 0))[:, :, :-1], x)
        for layer in self.others:
            v, h = layer(v, h)
        return h


def by_pixel(seen, colours, pixels):
    return seen.view(colours, pixels, colours, pixels).permute(1, 0, 3, 2).reshape(colours * pixels, -1)


@pytest.mark.parametrize(("colours", "height", "width"), [(1, 4, 5), (3, 3, 3), (2, 4, 2)])
def test_gradients_go_where_the_stacks_let_light_through_and_nowhere_else(colours, height, width):
    stacks = Stacks(colours, 2).double()
    seen = gradient_reach(stacks, colours, height, width, colours)
    assert torch.equal(seen, positive_reach(stacks, colours, height, width, colours))
    assert not by_pixel(seen, colours, height * width).triu().any()


def test_there_is_no_blind_spot():
    """Four layers over five columns: every earlier pixel is within reach, those to the upper right as well."""
    seen = gradient_reach(Stacks(1, 4).double(), 1, 5, 5, 1)
    assert torch.equal(seen, torch.ones(25, 25, dtype=torch.bool).tril(-1))


def test_one_layer_is_its_equations():
    layer = GatedStacks(4, 4, 3, "B").double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    v, h = torch.randn(2, 2, 4, 5, 6, dtype=torch.float64)
    a = nn.functional.conv2d(nn.functional.pad(v, (1, 1, 1, 0)), layer.vertical.weight, layer.vertical.bias)
    b = nn.functional.conv2d(h, layer.horizontal.weight * layer.horizontal.mask, padding=(0, 1))
    b = b + nn.functional.conv2d(a, layer.vertical_to_horizontal.weight, layer.vertical_to_horizontal.bias)
    below, across = layer(v, h)
    torch.testing.assert_close(below, a[:, :4].tanh() * a[:, 4:].sigmoid(), rtol=0, atol=1e-12)
    gated = b[:, :4].tanh() * b[:, 4:].sigmoid()
    expected = h + nn.functional.conv2d(gated, layer.residual.weight)
    torch.testing.assert_close(across, expected, rtol=0, atol=1e-12)


def test_the_first_layer_has_no_residual_connection():
    layer = GatedStacks(2, 2, 3, "A")
    nn.init.zeros_(layer.residual.weight)
    assert not layer(torch.randn(1, 2, 3, 3), torch.randn(1, 2, 3, 3))[1].any()


def test_a_block_of_rows_under_others_is_part_of_the_whole():
    layer = GatedStacks(4, 4, 5, "B").double()
    v = torch.randn(2, 4, 7, 5, dtype=torch.float64)
    whole = layer.down(nn.functional.pad(v, (0, 0, 2, 0)))
    for part, expected in zip(layer.down(v[:, :, 1:6]), whole, strict=True):
        torch.testing.assert_close(part, expected[:, :, 3:6], rtol=0, atol=1e-12)


def test_a_label_moves_both_stacks():
    layer = GatedStacks(4, 4, 3, "B", num_classes=3)
    v, h = torch.randn(2, 1, 4, 3, 3).expand(2, 2, 4, 3, 3)
    below, across = layer(v, h, torch.tensor([0, 2]))
    assert (below[0] != below[1]).all()
    assert (across[0] != across[1]).all()


def test_dropout_acts_in_training_only():
    layer = GatedStacks(4, 4, 3, "B", dropout=0.5)
    v, h = torch.randn(2, 1, 4, 3, 3)
    assert not torch.equal(layer(v, h)[1], layer(v, h)[1])
    layer.eval()
    assert torch.equal(layer(v, h)[1], layer(v, h)[1])
