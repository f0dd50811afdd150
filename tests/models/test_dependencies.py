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


def gradients(model):
    """(T, T) booleans: which elements change which conditionals, over several draws of the weights."""
    seen = torch.zeros(model.sequence_length, model.sequence_length, dtype=torch.bool)
    for _ in range(5):
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=max(parameter[0].numel(), 1) ** -0.5)
        x = torch.rand(1, *model.image_shape, dtype=torch.float64) * 2 - 1

        def scores(x):
            return model.rows(x, model.blank_rows(1), None)[0].unflatten(1, (model.image_shape[0], -1))[0]

        jacobian = torch.autograd.functional.jacobian(scores, x).abs().sum(1)[:, :, :, 0]  # (C, H, W, C, H, W)
        seen |= jacobian.permute(1, 2, 0, 4, 5, 3).reshape(seen.shape) > 0
    return seen


@pytest.mark.parametrize(
    "model",
    [
        *(PixelCNN(shape, 2, 8, 2, 3, 3) for shape in ((1, 5, 5), (3, 3, 4))),
        *(PixelRNN(shape, 2, kind, 12, 2, 3) for shape in ((1, 4, 6), (3, 2, 4)) for kind in ("row", "diagonal")),
    ],
    ids=lambda model: f"{type(model).__name__}-{model.image_shape}-{getattr(model, 'kind', '')}",
)
def test_what_a_model_declares_to_see_is_what_gradients_see(model):
    model = model.double()
    assert torch.equal(gradients(model), model.visible_past(model.sequence_length))
