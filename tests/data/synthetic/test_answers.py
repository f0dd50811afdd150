"""The targets of each task against an answer worked out from the inputs, row by row."""

import pytest
import torch

from chainrule.data.synthetic import AddingProblem, CopyMemory, DelayedRecall, Parity, SubjectVerbAgreement


def sample(task):
    return task.sample(200, torch.Generator().manual_seed(1))


@pytest.mark.parametrize("length", [3, 4, 17])
def test_adding_the_two_marked_numbers(length):
    batch = sample(AddingProblem(length))
    for row, target, mask in zip(batch.inputs.tolist(), batch.targets.tolist(), batch.mask.tolist(), strict=True):
        marked = [value for value, marker in row if marker == 1]
        assert len(marked) == 2
        assert target[-1] == pytest.approx(sum(marked), rel=1e-6)
        assert mask == [False] * (length - 1) + [True]


@pytest.mark.parametrize(("delay", "symbols", "payload"), [(1, 2, 1), (7, 8, 3)])
def test_copying_what_stood_before_the_delay(delay, symbols, payload):
    batch = sample(CopyMemory(delay, symbols, payload))
    blank, delimiter = symbols, symbols + 1
    for row, target in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        said = row[:payload]
        assert max(said) < symbols
        assert row[payload:] == [blank] * (delay - 1) + [delimiter] + [blank] * payload
        assert target == [blank] * (payload + delay) + said


@pytest.mark.parametrize(("distance", "symbols"), [(1, 2), (9, 8)])
def test_recalling_the_first_symbol(distance, symbols):
    batch = sample(DelayedRecall(distance, symbols))
    for row, target in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert target[-1] == row[0] < symbols
        assert all(symbols <= distractor < 2 * symbols for distractor in row[1:-1])
        assert row[-1] == 2 * symbols


@pytest.mark.parametrize("length", [2, 9])
def test_telling_the_parity(length):
    batch = sample(Parity(length))
    for row, target in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert target[-1] == sum(row) % 2


@pytest.mark.parametrize("distance", range(6, 15))
def test_the_verb_agrees_with_the_subject(distance):
    task = SubjectVerbAgreement(distance)
    batch = sample(task)
    for sentence, mask in zip(task.words(batch), batch.mask.tolist(), strict=True):
        verb = 1 + distance + 1
        assert sentence[verb] == ("were" if sentence[1].endswith("s") else "was")
        assert mask == [step == verb - 1 for step in range(task.length)]
