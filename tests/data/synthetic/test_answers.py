"""The targets of each task against an answer worked out from the inputs, row by row."""

import math
import re

import numpy as np
import pytest
import torch

from chainrule.data.synthetic import AddingProblem, CopyMemory, DelayedRecall, Parity, SubjectVerbAgreement
from chainrule_app.readers.corpus import prepare_corpus


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


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("distance", [6, 7, 8, 9, 20, 101])
def test_the_clause_between_subject_and_verb_has_as_many_words_as_asked(distance):
    for sentence in SubjectVerbAgreement(distance).words(SubjectVerbAgreement(distance).sample(20, generator())):
        verb = next(place for place, word in enumerate(sentence) if word in ("was", "were"))
        clause = sentence[2:verb]
        assert len(clause) == distance
        assert clause[:2] == [",", "which"]
        assert clause[-1] == ","
        assert len(sentence) == verb + 3
        assert sentence[-1] == "."


@pytest.mark.parametrize("distance", range(6, 13))
def test_the_clause_is_built_as_its_grammar_says(distance):
    task = SubjectVerbAgreement(distance)
    noun = "(cat|dog|bird|horse|goat|duck|lion|bear)s?"
    adverb = {0: "", 1: r"\w+ly ", 2: r"(very|rather|quite|so) \w+ly "}[distance % 3]
    grammar = (
        rf"the {noun} , which {adverb}(?!\w+ly )\w+ the {noun}"
        rf"( (near|behind|beside|beyond) the {noun}){{{distance // 3 - 2}}} , (was|were) \w+ \."
    )
    for sentence in task.text(50, generator()).splitlines():
        assert re.fullmatch(grammar, sentence)


@pytest.mark.parametrize("distance", [7, 8, 9, 14])
def test_the_entropy_of_longer_sentences_is_that_of_their_independent_words(distance):
    task = SubjectVerbAgreement(distance)
    batch = task.sample(20_000, generator())
    words = torch.cat([batch.inputs[:, :1], batch.targets], 1)
    entropy, free = 0.0, []
    for place in range(words.shape[1]):
        if place == distance + 2:
            continue  # the verb, which the subject decides
        choices, index, counts = words[:, place].unique(return_inverse=True, return_counts=True)
        expected = len(words) / len(choices)
        assert (counts - expected).abs().max() <= 5 * expected**0.5
        entropy += math.log(len(choices))
        if len(choices) > 1:
            free.append((index, len(choices)))
    assert task.sentence_entropy == pytest.approx(entropy, rel=1e-12)
    for one, (a, m) in enumerate(free):
        for b, k in free[:one]:
            counts = (a * k + b).bincount(minlength=m * k).double()
            expected = len(words) / (m * k)
            chi_square = ((counts - expected) ** 2 / expected).sum()
            assert chi_square < m * k - 1 + 5 * (2 * m * k) ** 0.5  # so no word tells of another


@pytest.mark.parametrize("distance", [6, 20])
def test_the_number_of_the_last_noun_predicts_nothing(distance):
    task = SubjectVerbAgreement(distance)
    agree = [
        (words[distance].endswith("s")) == (words[distance + 2] == "were")
        for words in task.words(task.sample(20_000, generator()))
    ]
    assert sum(agree) / len(agree) == pytest.approx(0.5, abs=5 * 0.5 / 20_000**0.5)


def test_a_run_reads_the_text_line_by_line(tmp_path):
    task = SubjectVerbAgreement(11)
    (tmp_path / "agreement.txt").write_text(task.text(2000, generator()))
    corpus = prepare_corpus(tmp_path / "agreement.txt", tmp_path / "corpus", level="word", reading="lines")
    assert corpus.train.line_count + corpus.valid.line_count == 2000
    assert len(corpus.train) == corpus.train.line_count * (task.length + 2)  # its words and <eos>
    assert set(corpus.vocabulary.words) == set(task.vocabulary)
    assert corpus.manifest["valid"]["unknown"] == 0


def test_every_word_of_the_vocabulary_has_one_number_and_is_used():
    task = SubjectVerbAgreement(11)
    assert len(set(task.vocabulary)) == len(task.vocabulary) == task.input_size == task.output_size
    assert set(task.text(2000, generator()).split()) == set(task.vocabulary)
