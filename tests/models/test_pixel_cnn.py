"""PixelCNN behind the contract, with the blind spot that it declares."""

import torch

from chainrule.models import PixelCNN
from chainrule.testing import check_full_context


def made(**options):
    return PixelCNN(**{"image_shape": (1, 5, 5), "levels": 2, "channels": 8, "layers": 2, "kernel_size": 3, **options})


def test_the_blind_spot_lies_to_the_upper_right():
    model = made(image_shape=(1, 4, 7), layers=1, first_kernel_size=3)
    seen = model.visible_past(28)[3 * 7 + 2].view(4, 7)  # of the pixel in row 3, column 2
    assert seen.int().tolist() == [
        [0, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
    ]


def test_the_check_names_the_blind_spot():
    model = made(image_shape=(1, 2, 4), layers=1, first_kernel_size=3)
    result = check_full_context(model, torch.randint(2, (2, 1, 2, 4)))
    assert result.ok
    assert "each of 22 pairs" in result.detail
    assert "6 more are a blind spot or limited context, as visible_past declares" in result.detail
