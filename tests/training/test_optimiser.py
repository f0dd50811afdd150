import pytest
import torch
from torch import nn
from training_toy import ToyModel

from chainrule.training import make_optimiser
from chainrule.training._optimiser import AdamW, clip_gradient, moments, restore_moments


def test_matrices_decay_and_vectors_do_not() -> None:
    layer = nn.Linear(3, 2)
    nn.init.ones_(layer.weight)
    nn.init.ones_(layer.bias)
    optimiser = make_optimiser(layer, learning_rate=0.1, weight_decay=0.5)
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    torch.testing.assert_close(layer.weight.detach(), torch.full((2, 3), 0.95))
    torch.testing.assert_close(layer.bias.detach(), torch.ones(2))


def test_the_norm_told_is_the_one_before_clipping() -> None:
    layer = nn.Linear(2, 1, bias=False)
    layer.weight.grad = torch.tensor([[3.0, 4.0]])
    assert clip_gradient(layer, 1.0).item() == pytest.approx(5.0)
    torch.testing.assert_close(layer.weight.grad, torch.tensor([[0.6, 0.8]]))


def test_a_small_gradient_and_an_unlimited_one_are_left_as_they_are() -> None:
    layer = nn.Linear(2, 1, bias=False)
    for limit in (10.0, None):
        layer.weight.grad = torch.tensor([[3.0, 4.0]])
        clip_gradient(layer, limit)
        torch.testing.assert_close(layer.weight.grad, torch.tensor([[3.0, 4.0]]), rtol=0, atol=0)


def test_restored_moments_continue_as_the_originals_do() -> None:
    def update(model: ToyModel, optimiser: AdamW, seed: int) -> None:
        torch.manual_seed(seed)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimiser.step()

    first = ToyModel()
    optimiser = make_optimiser(first, 0.1, 0.1)
    update(first, optimiser, 1)
    second = ToyModel(seed=1)
    second.load_state_dict(first.state_dict())
    other = make_optimiser(second, 0.1, 0.1)
    restore_moments(other, second, {name: value.clone() for name, value in moments(optimiser, first).items()})
    update(first, optimiser, 2)
    update(second, other, 2)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_a_model_without_weights_cannot_be_trained() -> None:
    with pytest.raises(ValueError, match="nothing to train"):
        make_optimiser(nn.Tanh(), 0.1, 0.1)
