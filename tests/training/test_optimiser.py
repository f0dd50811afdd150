"""The optimiser, its schedule, and the options of training."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from training_toy import ToyModel

from chainrule.training import TrainingOptions, learning_rate, make_optimiser
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


fractions = st.floats(0, 1)
warmups = st.floats(0, 0.9)


@given(fractions, fractions, warmups)
def test_the_rate_rises_in_the_warm_up_and_falls_after_it(a: float, b: float, warmup: float) -> None:
    early, late = sorted((a, b))
    first, second = learning_rate(early, 1.0, warmup), learning_rate(late, 1.0, warmup)
    if late <= warmup:
        assert first <= second
    if early >= warmup:
        assert first >= second


@given(warmups)
def test_the_rate_peaks_where_the_warm_up_ends_and_ends_at_a_hundredth(warmup: float) -> None:
    assert learning_rate(warmup, 3.0, warmup) == pytest.approx(3.0)
    assert learning_rate(1.0, 3.0, warmup) == pytest.approx(0.03)


@given(fractions, warmups.filter(lambda warmup: warmup > 0))
def test_the_rate_never_exceeds_the_peak(progress: float, warmup: float) -> None:
    assert 0 <= learning_rate(progress, 1.0, warmup) <= 1.0


def test_the_cosine_is_half_way_down_in_the_middle() -> None:
    assert learning_rate(0.6, 1.0, 0.2) == pytest.approx(0.505)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0), ("steps", 1.5), ("epochs", 0.0), ("epochs", float("inf")), ("budget", -1.0), ("batch_size", 0),
        ("chunk_length", -1), ("line_length", 0), ("learning_rate", 0.0), ("learning_rate", float("nan")),
        ("weight_decay", -0.1), ("warmup", 1.0), ("clip_norm", 0.0), ("validate_every", 0), ("patience", 0),
        ("watch_every", 0), ("precision", "float16"), ("seed", -1),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name}: expected .*got"):
        TrainingOptions(**{name: value})


def test_a_number_of_another_type_is_shown_with_it() -> None:
    """The error of NumPy's 3 once read: expected an integer >= 1, got 3."""
    with pytest.raises(ValueError, match=r"^steps: expected an integer >= 1, got np\.int64\(3\)"):
        TrainingOptions(steps=np.int64(3))


def test_an_optimiser_of_another_kind_is_refused() -> None:
    """AdamW once came for any."""
    with pytest.raises(ValueError, match=r"^kind: expected adamw or muon, got 'sgd'"):
        make_optimiser(nn.Linear(2, 2), 1e-3, 0.0, "sgd")


def test_a_run_has_one_length() -> None:
    with pytest.raises(ValueError, match="got steps and budget"):
        TrainingOptions(steps=1, budget=1.0)


def test_length_patience_device_and_logging_may_change_on_resume() -> None:
    earlier = {**vars(TrainingOptions(steps=5)), "patience": 3, "device": "cuda", "watch_every": 7}
    TrainingOptions(budget=9.0).check_unchanged(earlier)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 1), ("chunk_length", 1), ("line_length", 1), ("learning_rate", 1.0), ("weight_decay", 1.0),
        ("warmup", 0.5), ("clip_norm", None), ("validate_every", 3), ("precision", "float32"), ("seed", 3),
    ],
)  # fmt: skip
def test_what_makes_another_run_may_not_change_on_resume(name: str, value: object) -> None:
    old = getattr(TrainingOptions(), name)
    with pytest.raises(ValueError, match=f"{name} was {old} and is {value}"):
        TrainingOptions(**{name: value}).check_unchanged(vars(TrainingOptions()))
