"""A run with positive weights finds the paths of a network, whatever its weights."""

import pytest
import torch
from torch import nn

from chainrule.models import GatedPixelCNN, PixelCNN, PixelCNNPP, PixelRNN
from chainrule.models._raster_model import dependencies, raster_dependencies

MODELS = {
    "PixelCNN": lambda: PixelCNN((2, 5, 4), 3, channels=8, layers=1, first_kernel_size=3),
    "gated": lambda: GatedPixelCNN((1, 5, 4), 3, channels=4, layers=1, first_kernel_size=3),
    "row": lambda: PixelRNN((1, 5, 4), 3, "row", channels=4, layers=1, first_kernel_size=3),
    "diagonal": lambda: PixelRNN((1, 5, 4), 3, "diagonal", channels=4, layers=1, first_kernel_size=3),
    "PixelCNN++": lambda: PixelCNNPP((1, 5, 4), 3, channels=4, layers=1, resolutions=3),
}


def network(*weights):
    linears = [nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)]
    for linear, weight in zip(linears[::2], weights, strict=True):
        linear.weight.data = torch.tensor(weight)
    return nn.Sequential(*linears)


def test_neither_cancelled_nor_dormant_paths_are_missed():
    made = network([[1.0, 1.0], [-1.0, -1.0]], [[0.0, 0.0], [1.0, -1.0]])
    assert dependencies(made, made, torch.eye(2)).all()


def test_a_path_that_a_mask_closes_is_not_found():
    made = network([[1.0, 1.0]] * 2, [[1.0, 1.0]] * 2)
    seen = dependencies(made, lambda x: made[2](made[0](x * torch.tensor([1.0, 0.0])).relu()), torch.eye(2))
    assert seen.tolist() == [[True, True], [False, False]]


@pytest.mark.parametrize("kind", MODELS)
def test_the_first_rows_tell_what_every_element_sees(kind, monkeypatch):
    """Shifted down, they are what every element gives when it is asked about on its own."""
    model = MODELS[kind]()
    first = model.visible_past(model.sequence_length)
    calls = []

    def all_rows(network, function, image_shape, period=1):
        calls.append(period)
        return raster_dependencies(network, function, image_shape, period=image_shape[1])

    monkeypatch.setattr("chainrule.models._raster_model.raster_dependencies", all_rows)
    assert torch.equal(model.visible_past(model.sequence_length), first)
    assert calls == [4 if kind == "PixelCNN++" else 1]
    assert not first.triu().any()


def test_a_leak_in_a_mask_shows(monkeypatch):
    model = MODELS["PixelCNN"]()
    assert not model.visible_past(40).triu().any()
    narrow = PixelCNN.narrow

    def leaking(self):
        made = narrow(self)
        made.first.mask.fill_(True)
        return made

    monkeypatch.setattr(PixelCNN, "narrow", leaking)
    assert model.visible_past(40).triu().any()


def test_asking_draws_no_global_random_numbers():
    model, before = MODELS["row"](), torch.get_rng_state()
    model.visible_past(20)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_period_longer_than_the_image_is_the_image():
    made = nn.Conv2d(1, 1, 1)
    assert torch.equal(raster_dependencies(made, made, (1, 2, 3), period=4), torch.eye(6, dtype=torch.bool))
