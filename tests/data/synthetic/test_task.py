import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from chainrule.data.synthetic import (
    AddingProblem,
    CopyMemory,
    DelayedRecall,
    Parity,
    SubjectVerbAgreement,
    SymbolTask,
    SyntheticTask,
)
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
