"""PixelCNN behind the contract, with the blind spot that it declares."""

import pytest
import torch

from chainrule.models import PixelCNN
from chainrule.testing import check_causality, check_full_context, check_model

VARIANTS = {
    "binary": {"image_shape": (1, 5, 4), "levels": 2, "channels": 8, "first_kernel_size": 3},
    "RGB, uneven groups": {"image_shape": (3, 3, 3), "levels": 3, "channels": 10},
    "labels": {"image_shape": (1, 4, 4), "levels": 3, "channels": 6, "num_classes": 3},
    "two colours, labels, dropout": {
        "image_shape": (2, 2, 5),
        "levels": 2,
        "channels": 8,
        "num_classes": 2,
        "first_kernel_size": 3,
        "dropout": 0.3,
    },
}


def made(**options):
    return PixelCNN(**{"image_shape": (1, 5, 5), "levels": 2, "channels": 8, "layers": 2, "kernel_size": 3, **options})


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_keeps_the_contract(variant):
    model = made(**VARIANTS[variant])
    x = torch.randint(model.levels, (3, *model.image_shape))
    labels = None if model.num_classes is None else torch.arange(3) % model.num_classes
    report = check_model(model, x, labels)
    assert report.ok, str(report)


def dependence(model):
    """(T, T) booleans: which elements change which conditionals, over several draws of the weights."""
    seen = torch.zeros(model.sequence_length, model.sequence_length, dtype=torch.bool)
    for _ in range(5):
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=max(parameter[0].numel(), 1) ** -0.5)
        x = torch.rand(1, *model.image_shape, dtype=torch.float64) * 2 - 1

        def scores(x):
            return model.rows(x, model.blank_rows(1), None)[0].unflatten(1, (model.image_shape[0], -1))[0]

        jacobian = torch.autograd.functional.jacobian(scores, x).abs().sum(1)[:, :, :, 0]  # (C, H, W, C, H, W)
        seen |= jacobian.permute(1, 2, 0, 4, 5, 3).reshape(seen.shape) > 0
    return seen


@pytest.mark.parametrize("shape", [(1, 5, 5), (3, 3, 4)])
def test_what_it_declares_to_see_is_what_gradients_see(shape):
    model = made(image_shape=shape, first_kernel_size=3).double()
    assert torch.equal(dependence(model), model.visible_past(model.sequence_length))


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


def test_an_undeclared_blind_spot_is_found():
    class Silent(PixelCNN):
        def visible_past(self, length):
            return torch.ones(length, length, dtype=torch.bool).tril(-1)

    model = Silent((1, 2, 4), 2, channels=8, layers=1, first_kernel_size=3)
    assert not check_full_context(model, torch.randint(2, (2, 1, 2, 4))).ok


def test_type_b_first_breaks_causality():
    model = made(image_shape=(1, 3, 4))
    model.first.mask[:, :, 3, 3] = True
    assert not check_causality(model, torch.randint(2, (2, 1, 3, 4))).ok


def test_type_a_after_the_first_layer_breaks_full_context():
    model = made(image_shape=(1, 2, 3), layers=1)
    model.head.hidden.mask[:] = False  # the mask A of one pixel: nothing is read
    assert not check_full_context(model, torch.randint(2, (2, 1, 2, 3))).ok


def test_colours_in_the_wrong_order_break_causality():
    model = made(image_shape=(3, 2, 2), channels=12)
    for module in model.modules():
        if hasattr(module, "mask"):
            centre = module.mask[:, :, module.mask.shape[2] // 2, module.mask.shape[3] // 2]
            centre.copy_(centre.flip(0, 1))
    assert not check_causality(model, torch.randint(2, (2, 3, 2, 2))).ok
