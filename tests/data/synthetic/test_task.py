import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from chainrule.data.synthetic import (
    AddingProblem,
    CopyMemory,
    DelayedRecall,
    Parity,
    SubjectVerbAgreement,
    SyntheticBatch,
    SyntheticTask,
)
from chainrule.data.synthetic._task import SymbolTask
from chainrule.layers import RNN

tasks = st.one_of(
    st.builds(AddingProblem, st.integers(3, 40)),
    st.builds(CopyMemory, st.integers(1, 20), st.integers(2, 9), st.integers(1, 10)),
    st.builds(DelayedRecall, st.integers(1, 40), st.integers(2, 9)),
    st.builds(Parity, st.integers(2, 40)),
    st.builds(SubjectVerbAgreement, st.integers(6, 40)),
)
seeds = st.integers(0, 2**32)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(tasks, st.integers(1, 5), seeds)
def test_a_recurrent_layer_of_the_stated_sizes_reads_a_batch(task, n, seed):
    batch = task.sample(n, generator(seed))
    assert batch.targets.shape == batch.mask.shape == (n, task.length)
    assert batch.mask.dtype == torch.bool
    assert batch.mask.any(1).all()
    assert 1 <= task.distance < task.length
    outputs, _ = RNN(task.input_size, task.output_size)(batch.inputs)
    assert task.loss(outputs, batch).isfinite()
    if isinstance(task, SymbolTask):
        assert batch.inputs.min() >= 0
        assert batch.inputs.max() < task.input_size
        assert batch.targets[batch.mask].min() >= 0
        assert batch.targets[batch.mask].max() < task.output_size


@given(tasks, seeds)
def test_the_same_seed_draws_the_same_rows_and_other_rows_follow(task, seed):
    source = generator(seed)
    first, second, again = task.sample(64, source), task.sample(64, source), task.sample(64, generator(seed))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.inputs, second.inputs)


@given(tasks)
def test_the_right_answer_scores_the_optimum_and_another_one_does_not(task):
    batch = task.sample(8, generator())
    if isinstance(task, SymbolTask):
        right = F.one_hot(batch.targets, task.output_size) * 100.0
    else:
        right = batch.targets.unsqueeze(-1)
    assert task.loss(right, batch).item() == pytest.approx(task.optimum, abs=1e-6)  # float32
    assert task.accuracy(right, batch) == 1
    assert task.loss(right.roll(1, -1) + 0.1, batch) > task.optimum + 1e-3
    assert task.accuracy(right.roll(1, -1) + 0.1, batch) == 0


@given(tasks)
def test_what_is_said_at_other_steps_does_not_count(task):
    batch = task.sample(8, generator())
    outputs = torch.randn(8, task.length, task.output_size, generator=generator())
    other = torch.where(batch.mask.unsqueeze(-1), outputs, torch.nan)
    assert torch.equal(task.loss(outputs, batch), task.loss(other, batch))
    assert task.accuracy(outputs, batch) == task.accuracy(other, batch)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AddingProblem(2), "length: expected a whole number >= 3: two marked steps"),
        (lambda: CopyMemory(0), "delay: expected a whole number >= 1, got 0"),
        (lambda: CopyMemory(5, symbols=1), "symbols: expected a whole number >= 2, got 1"),
        (lambda: CopyMemory(5, payload=0), "payload: expected a whole number >= 1, got 0"),
        (lambda: DelayedRecall(0), "distance: expected a whole number >= 1, got 0"),
        (lambda: DelayedRecall(5, symbols=1), "symbols: expected a whole number >= 2, got 1"),
        (lambda: Parity(1), "length: expected a whole number >= 2: the parity of a single bit"),
        (lambda: SubjectVerbAgreement(5), "distance: expected a whole number >= 6: the shortest clause"),
        (lambda: Parity(2.5), "length: expected a whole number >= 2: the parity of a single bit .*, got 2.5"),
    ],
)
def test_a_size_that_cannot_be_is_refused(build, message):
    with pytest.raises(ValueError, match=re.escape(message) if ".*" not in message else message):
        build()


@pytest.mark.parametrize(
    "task", [AddingProblem(5), CopyMemory(5), DelayedRecall(5), Parity(5), SubjectVerbAgreement(6)], ids=repr
)
def test_no_rows_are_refused(task: SyntheticTask):
    with pytest.raises(ValueError, match=r"n: expected a whole number >= 1, got 0"):
        task.sample(0, generator())


# A small task, and the number of its rows counted by hand: all are equally likely.
TASKS = [
    (CopyMemory(delay=1, symbols=2, payload=1), 2),
    (CopyMemory(delay=3, symbols=3, payload=2), 3**2),
    (DelayedRecall(distance=1, symbols=3), 3),
    (DelayedRecall(distance=4, symbols=3), 3 * 3**3),
    (Parity(length=2), 2**2),
    (Parity(length=7), 2**7),
    (SubjectVerbAgreement(distance=6), 16 * 8 * 16 * 8),
]


@pytest.fixture(params=TASKS, ids=lambda param: repr(param[0]), scope="module")
def drawn(request) -> tuple[SymbolTask, int, SyntheticBatch]:
    """A task, its number of rows, and a sample so large that a row is missed with probability below 1e-6."""
    task, rows = request.param
    return task, rows, task.sample(24 * rows + 100, torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def support(drawn) -> tuple[SymbolTask, SyntheticBatch]:
    """A task, and each row that it can draw once."""
    task, _, batch = drawn
    both = torch.cat([batch.inputs, batch.targets], 1).unique(dim=0)
    inputs, targets = both.split(task.length, 1)
    return task, SyntheticBatch(inputs, targets, batch.mask[:1].expand(len(both), -1))


def best_predictor(task: SymbolTask, batch: SyntheticBatch, history: int) -> Tensor:
    """log p(target | t, x_t and the `history` elements before it) by counting, (B, T, V)."""
    outputs = torch.zeros(*batch.targets.shape, task.output_size, dtype=torch.float64)
    for t in range(task.length):
        window = batch.inputs[:, max(0, t - history) : t + 1]
        _, known = window.unique(dim=0, return_inverse=True)
        pair = known * task.output_size + batch.targets[:, t]
        counts = pair.bincount(minlength=int(known.max() + 1) * task.output_size).view(-1, task.output_size)
        outputs[:, t] = (counts.double() / counts.sum(1, keepdim=True)).log()[known]
    return outputs


def figures(task: SymbolTask, batch: SyntheticBatch, history: int) -> tuple[float, float]:
    outputs = best_predictor(task, batch, history)
    return task.loss(outputs, batch).item(), task.accuracy(outputs, batch)


def test_every_row_is_drawn_and_all_are_equally_likely(drawn):
    _, rows, batch = drawn
    both = torch.cat([batch.inputs, batch.targets], 1)
    counts = both.unique(dim=0, return_counts=True)[1].double()
    assert len(counts) == rows
    expected = len(both) / rows
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < rows - 1 + 5 * (2 * rows) ** 0.5  # its mean is rows - 1, its variance 2 (rows - 1)


def test_the_entropy_of_the_sentences_is_that_of_all_of_them_counted():
    task, rows = TASKS[-1]
    assert task.sentence_entropy == pytest.approx(math.log(rows), rel=1e-12)


def test_the_same_steps_are_scored_in_every_row(drawn):
    _, _, batch = drawn
    assert torch.equal(batch.mask, batch.mask[:1].expand_as(batch.mask))
    assert batch.mask.any()


def test_chance_is_the_best_without_memory(support):
    task, batch = support
    loss, accuracy = figures(task, batch, history=0)
    assert loss == pytest.approx(task.chance, rel=1e-12)
    assert accuracy == pytest.approx(task.chance_accuracy, rel=1e-6)  # a share of float32


def test_optimum_is_the_best_with_the_whole_past(support):
    task, batch = support
    loss, accuracy = figures(task, batch, history=task.length)
    assert loss == pytest.approx(task.optimum, abs=1e-12)
    assert accuracy == 1


def test_memory_helps_from_the_stated_distance_on_and_not_before(support):
    task, batch = support
    assert figures(task, batch, history=task.distance - 1)[0] == pytest.approx(task.chance, rel=1e-12)
    assert figures(task, batch, history=task.distance)[0] == pytest.approx(task.optimum, abs=1e-12)


def test_the_baseline_of_the_copying_task_is_that_of_the_literature():
    # Arjovsky, Shah and Bengio 2016: 10 log(8) / (T + 20); for T = 100, their smallest, that is about 0.17.
    assert CopyMemory(delay=100).chance == pytest.approx(0.17328679513998632, rel=1e-12)
