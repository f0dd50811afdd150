"""The residual block of the PixelCNN."""

import torch
from light import gradient_reach, positive_reach
from torch import nn

from chainrule.layers._pixel_layers import MaskedResidualBlock


def test_it_is_its_equation():
    block = MaskedResidualBlock(6, 3, num_classes=2).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter)
    h, label = torch.randn(2, 6, 4, 5, dtype=torch.float64), torch.tensor([1, 0])
    a = nn.functional.conv2d(h.relu(), block.narrowing.weight, block.narrowing.bias).relu()
    b = nn.functional.conv2d(a, block.middle.weight * block.middle.mask, block.middle.bias, padding=1)
    b = b + block.label_bias.weight[label][:, :, None, None]
    expected = h + nn.functional.conv2d(b.relu(), block.widening.weight)
    torch.testing.assert_close(block(h, None, label)[0], expected, rtol=0, atol=1e-12)


def test_gradients_go_where_the_masks_let_light_through_and_nowhere_else():
    block = MaskedResidualBlock(14, 3, 3).double()
    nn.init.constant_(block.narrowing.bias, 10.0)  # rectifiers that fire
    nn.init.constant_(block.middle.bias, 100.0)
    seen = gradient_reach(lambda x: block(x.exp())[0], 14, 3, 3, 3)
    assert torch.equal(seen, positive_reach(block, 14, 3, 3, 3, lambda block, x: block(x)[0]))


def test_rows_follow_those_above():
    block = MaskedResidualBlock(4, 5).double()
    h = torch.randn(2, 4, 7, 3, dtype=torch.float64)
    above, parts = h.new_zeros(2, 2, 2, 3), []
    for rows in h.split([1, 4, 2], 2):
        part, above = block(rows, above)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 2), block(h)[0], rtol=0, atol=1e-12)
