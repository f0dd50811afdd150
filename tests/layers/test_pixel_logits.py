"""From features of pixels to scores, colour by colour."""

import torch
from light import gradient_reach, positive_reach
from torch import nn

from chainrule.layers._masked_conv2d import PixelLogits


def test_the_scores_of_a_colour_read_its_own_features_and_those_before():
    layer = PixelLogits(8, image_channels=3, levels=4).double()
    nn.init.constant_(layer.hidden.bias, 10.0)  # rectifiers that fire
    seen = gradient_reach(lambda x: layer(x.exp()), 8, 2, 2, 3)
    assert torch.equal(seen, positive_reach(layer, 8, 2, 2, 3))
    assert seen.view(3, 4, 3, 4)[:, 0, :, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
