"""Sentences as numbers and in batches: every sentence once, its own words, and unknown ones by chance."""

from collections import Counter

import numpy as np
import pytest

from chainrule.data._tagged import Sentence, TaggedVocabulary, number_sentences, tagged_batches, tagged_evaluation


def sentence(text):
    pairs = [word.split("/") for word in text.split()]
    return Sentence(tuple(w for w, _ in pairs), tuple(t for _, t in pairs), tuple(range(len(pairs))), 1)


SENTENCES = [sentence(f"The/D w{n}/N " + "runs/V " * (n % 5) + ("Zz/X" if n == 7 else "./P")) for n in range(30)]
VOCABULARY = TaggedVocabulary.fit(SENTENCES)
NUMBERS = number_sentences(SENTENCES, VOCABULARY)


def rows(batch):
    """Each row of a batch as it would have been written."""
    assert batch.context["words"].shape == batch.x.shape == batch.context["characters"].shape[:2]
    for words, spelled, tags, length in zip(
        batch.context["words"].tolist(), batch.context["characters"].tolist(), batch.x.tolist(), batch.lengths.tolist(),
        strict=True,
    ):  # fmt: skip
        letters = ["".join(VOCABULARY.characters[c - 2] for c in word if c) for word in spelled[:length]]
        yield tuple(letters), tuple(VOCABULARY.tags[tag] for tag in tags[:length]), words[:length]


def test_evaluation_reads_every_sentence_once_in_order():
    found = [row for batch in tagged_evaluation(NUMBERS, 7) for row in rows(batch)]
    assert [(words, tags) for words, tags, _ in found] == [(s.words, s.tags) for s in SENTENCES]
    for words, _, numbers in found:
        assert numbers == [VOCABULARY.word(word) for word in words]


def test_an_epoch_reads_every_sentence_once_but_for_the_rest():
    batches = tagged_batches(NUMBERS, VOCABULARY.counts, 4, seed=3)
    assert batches.steps_per_epoch == 7
    for epoch in range(2):
        seen = Counter(words for step in range(7) for words, _, _ in rows(batches.at(7 * epoch + step)))
        assert sum(seen.values()) == 28
        assert all(seen[s.words] <= 1 for s in SENTENCES)


def test_like_lengths_stand_together():
    many = [SENTENCES[n % 30] for n in np.random.default_rng(0).permutation(600)]
    batches = tagged_batches(number_sentences(many, VOCABULARY), VOCABULARY.counts, 10)
    spread = np.mean([float(np.ptp(batches.at(step).lengths.numpy())) for step in range(60)])
    assert spread < 0.5  # lengths go from 3 to 7; unsorted, the spread of ten is near 4


def test_a_word_is_read_as_unknown_as_often_as_it_is_rare():
    alpha, counts = 2.0, dict(zip(VOCABULARY.words, VOCABULARY.counts, strict=True))
    batches = tagged_batches(NUMBERS, VOCABULARY.counts, 5, word_dropout=alpha, seed=0)
    seen, dropped = Counter(), Counter()
    for step in range(60 * batches.steps_per_epoch):
        for words, _, numbers in rows(batches.at(step)):
            for word, number in zip(words, numbers, strict=True):
                kind = counts[word.lower()]
                seen[kind] += 1
                dropped[kind] += number == 0
                assert number in (0, VOCABULARY.word(word))
    for kind in (1, 30):
        # at least 1800 draws each: the standard deviation is at most 0.011
        assert dropped[kind] / seen[kind] == pytest.approx(alpha / (alpha + kind), abs=0.04)
    still = tagged_batches(NUMBERS, VOCABULARY.counts, 5, word_dropout=0.0)
    assert all(0 not in numbers for step in range(6) for _, _, numbers in rows(still.at(step)))


def test_empty_sentences_and_unknown_words_have_their_rows():
    numbers = number_sentences([Sentence((), (), (), 1), Sentence(("Zebra", "w1"), (), (2, 3), 2)], VOCABULARY)
    (batch,) = tagged_evaluation(numbers)
    assert batch.lengths.tolist() == [0, 2]
    assert batch.context["words"][1].tolist() == [0, VOCABULARY.word("w1")]
    (empty,) = tagged_evaluation(number_sentences([Sentence((), (), (), 1)], VOCABULARY))
    assert empty.context["words"].shape == (1, 0)
    assert empty.context["characters"].shape == (1, 0, 1)


def test_long_words_keep_their_beginning_and_their_end():
    spelled = VOCABULARY.spell(["u" * 20 + "r" * 50 + "s" * 20])
    u, s = (VOCABULARY.characters.index(letter) + 2 for letter in "us")
    assert spelled.tolist() == [[u] * 16 + [s] * 16]
    assert VOCABULARY.spell(["Q", "ws"]).tolist() == [[1, 0], [VOCABULARY.characters.index("w") + 2, s]]


def test_a_vocabulary_comes_back_from_its_file_and_a_damaged_one_does_not(tmp_path):
    path = tmp_path / "vocabulary.json"
    VOCABULARY.save(path)
    assert TaggedVocabulary.load(path) == VOCABULARY
    whole = path.read_text()
    for old, new in (
        ('"D"', '"N"'),
        ('"format": 1', '"format": 2'),
        ('"scheme": null', '"scheme": "x"'),
        ("30,", "-1,"),
    ):
        assert old in whole
        path.write_text(whole.replace(old, new, 1))
        with pytest.raises(ValueError, match=r"vocabulary\.json: .*the file is damaged"):
            TaggedVocabulary.load(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2, "word_dropout": -1.0}, "word_dropout: expected a number >= 0"),
        ({"batch_size": 2, "seed": -1}, "seed"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        tagged_batches(NUMBERS, VOCABULARY.counts, **options)
