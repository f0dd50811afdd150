"""PixelCNN behind the contract, with the blind spot that it declares, and gated PixelCNN, without one."""

import pytest
import torch

from chainrule.models import GatedPixelCNN, PixelCNN
from chainrule.testing._dependence import check_full_context


def made(model, **options):
    return model(**{"image_shape": (1, 5, 5), "levels": 2, "channels": 8, "layers": 2, "kernel_size": 3, **options})


def test_the_blind_spot_lies_to_the_upper_right():
    model = made(PixelCNN, image_shape=(1, 4, 7), layers=1, first_kernel_size=3)
    seen = model.visible_past(28)[3 * 7 + 2].view(4, 7)  # of the pixel in row 3, column 2
    assert seen.int().tolist() == [
        [0, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
    ]


def test_the_check_names_the_blind_spot():
    model = made(PixelCNN, image_shape=(1, 2, 4), layers=1, first_kernel_size=3)
    result = check_full_context(model, torch.randint(2, (2, 1, 2, 4)))
    assert result.ok
    assert "each of 22 pairs" in result.detail
    assert "6 more are a blind spot or limited context, as visible_past declares" in result.detail


@pytest.mark.parametrize("shape", [(1, 5, 5), (3, 3, 4), (2, 4, 3)])
def test_every_earlier_element_is_visible_to_a_gated_model_within_its_reach(shape):
    model = made(GatedPixelCNN, image_shape=shape, layers=2, first_kernel_size=5)
    time = model.sequence_length
    assert torch.equal(model.visible_past(time), torch.ones(time, time, dtype=torch.bool).tril(-1))


def test_beyond_its_reach_a_gated_model_declares_to_see_nothing():
    model = made(GatedPixelCNN, image_shape=(1, 5, 9), layers=1, first_kernel_size=3)
    seen = model.visible_past(45)[4 * 9 + 4].view(5, 9)  # of the pixel in row 4, column 4
    assert seen.int().tolist() == [
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 1, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0, 0, 0, 0],
    ]
    report = check_full_context(model, torch.randint(2, (2, 1, 5, 9)))
    assert report.ok, report.detail


def test_a_label_changes_every_conditional():
    model = made(GatedPixelCNN, num_classes=10).double()
    x = torch.randint(2, (1, 1, 5, 5)).expand(2, -1, -1, -1)
    logits = model(x, torch.tensor([3, 4])).logits
    assert (logits[0] != logits[1]).all()
