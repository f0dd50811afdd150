import pytest
import torch
from torch import nn

from chainrule.layers import ImageEncoder
from chainrule.layers._image_encoder import ResidualBlock, SqueezeExcitation, standardised


def test_excitation_is_its_equation():
    layer, x = SqueezeExcitation(8).double(), torch.randn(2, 8, 3, 5, dtype=torch.float64)
    inside = torch.relu(x.mean((2, 3)) @ layer.squeeze.weight.T + layer.squeeze.bias)
    scale = 1 / (1 + torch.exp(-(inside @ layer.excite.weight.T + layer.excite.bias)))
    torch.testing.assert_close(layer(x), x * scale[:, :, None, None])


def test_a_new_block_is_the_identity_of_what_is_positive():
    block, x = ResidualBlock(8, 8), torch.rand(2, 8, 4, 4)
    torch.testing.assert_close(block(x), x)
    nn.init.ones_(block.second_norm.weight)
    assert (block(x) - x).abs().max() > 0.01


@pytest.mark.parametrize(("size", "positions"), [((64, 64), 64), ((32, 64), 32), ((33, 33), 25)])
def test_the_grid_halves_with_each_stage(size, positions):
    grid = ImageEncoder((8, 8, 16))(torch.zeros(2, 3, *size, dtype=torch.uint8))
    assert grid.shape == (2, positions, 16)


def test_positions_of_the_grid_stand_row_by_row():
    encoder = ImageEncoder((8, 8, 16)).double()
    for block in encoder.stages:  # no position knows of the whole image
        block.excitation = nn.Identity()
    for module in encoder.modules():
        if isinstance(module, nn.GroupNorm):
            module.forward = lambda x: x
    image = torch.zeros(1, 3, 64, 64)
    lit = image.clone()
    lit[:, :, 20, 60] = 255  # row 2, column 7 of 8
    changed = (encoder(lit) - encoder(image)).abs().sum(2).flatten()
    assert int(changed.argmax()) in (2 * 8 + 7, 3 * 8 + 7)
    assert not changed.view(8, 8)[:, :4].any()
    assert not changed.view(8, 8)[6:].any()


def test_images_of_a_batch_do_not_influence_each_other():
    encoder = ImageEncoder((8, 16)).double()
    images = torch.randint(256, (3, 3, 16, 16))
    together = encoder(images)
    torch.testing.assert_close(together[1:2], encoder(images[1:2]))


def test_bytes_become_numbers_about_zero():
    images = torch.randint(256, (1, 3, 5, 4), dtype=torch.uint8)
    expected = (images.double() / 255 - torch.tensor([0.485, 0.456, 0.406]).double().view(3, 1, 1)) / torch.tensor(
        [0.229, 0.224, 0.225]
    ).double().view(3, 1, 1)
    torch.testing.assert_close(standardised(images, torch.zeros(1, dtype=torch.float64)), expected)
    with pytest.raises(ValueError, match=r"\(B, 3, H, W\)"):
        standardised(torch.zeros(1, 1, 5, 5), torch.zeros(1))


@pytest.mark.parametrize("channels", [(), (8, 0)])
def test_no_stage_is_refused(channels):
    with pytest.raises(ValueError, match="channels"):
        ImageEncoder(channels)
