import numpy as np
import pytest
import torch

from chainrule.data.synthetic import AddingProblem

TASK = AddingProblem(20)


def test_chance_is_the_squared_error_of_the_best_constant():
    nodes, weights = np.polynomial.legendre.leggauss(3)  # exact for polynomials up to degree 5
    u, w = (nodes + 1) / 2, weights / 2
    error = {c: float((w[:, None] * w * (u[:, None] + u - c) ** 2).sum()) for c in np.linspace(0, 2, 201)}
    assert min(error.values()) == pytest.approx(TASK.chance, rel=1e-12)


def test_chance_accuracy_is_the_most_that_a_constant_gets_right():
    u = (np.arange(100_000) + 0.5) / 100_000
    right = []
    for c in np.linspace(0, 2, 201):
        low, high = (np.clip(c + side * 0.04 - u, 0, 1) for side in (-1, 1))
        right.append((high - low).mean())  # the length of the v for which |u + v - c| < 0.04, over all u
    assert max(right) == pytest.approx(TASK.chance_accuracy, abs=1e-8)  # the midpoint rule at three kinks


def test_the_loss_of_that_constant_on_a_sample_is_chance():
    batch = TASK.sample(100_000, torch.Generator().manual_seed(0))
    ones = torch.ones(100_000, 20, 1)
    # Four standard errors: (y - 1)² has variance 1/15 - 1/36, being right 0.0784 (1 - 0.0784).
    assert TASK.loss(ones, batch).item() == pytest.approx(TASK.chance, abs=4 * (7 / 180 / 1e5) ** 0.5)
    assert TASK.accuracy(ones, batch) == pytest.approx(TASK.chance_accuracy, abs=4 * (0.0784 * 0.9216 / 1e5) ** 0.5)


@pytest.mark.parametrize("length", [3, 4, 9, 20])
def test_markers_fall_uniformly_on_either_half_and_never_on_the_last_step(length):
    n = 20_000
    markers = AddingProblem(length).sample(n, torch.Generator().manual_seed(0)).inputs[..., 1]
    half = length // 2
    counts = markers.sum(0)
    assert counts[-1] == 0  # else the last element would tell a part of the answer without memory
    for part in (counts[:half], counts[half:-1]):
        assert part.sum() == n
        assert (part - n / len(part)).abs().max() <= 5 * (n / len(part)) ** 0.5


@pytest.mark.parametrize("length", [3, 4, 9, 20])
def test_the_distance_is_the_least_from_the_first_marked_number_to_the_answer(length):
    task = AddingProblem(length)
    first = task.sample(2000, torch.Generator().manual_seed(0)).inputs[..., 1].argmax(1)
    assert task.distance == (length - 1 - first).min()


def test_numbers_are_uniform_and_independent_of_the_markers():
    values, markers = TASK.sample(20_000, torch.Generator().manual_seed(0)).inputs.unbind(-1)
    assert values.min() >= 0
    assert values.max() < 1
    for chosen in (values[markers == 1], values[markers == 0]):
        counts = torch.histc(chosen, 10, 0, 1)
        expected = len(chosen) / 10
        assert ((counts - expected) ** 2 / expected).sum() < 35  # chi-square of 9 degrees of freedom: p < 1e-4
