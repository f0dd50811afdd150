import math
import re

import pytest
import torch

from chainrule.data import prepare_corpus
from chainrule.data.synthetic import SubjectVerbAgreement


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
