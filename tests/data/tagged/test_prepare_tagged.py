"""Preparing tagged sentences: what is held out, what is refused, and that it comes back from the disk."""

import json
from collections import Counter

import numpy as np
import pytest

from chainrule_app.readers.tagged.conll_file import Sentence
from chainrule_app.readers.tagged.prepare import (
    number_sentences,
    open_tagged,
    prepare_tagged,
    tagged_batches,
    tagged_evaluation,
)
from chainrule_app.readers.tagged.vocabulary import TaggedVocabulary


def write(path, sentences):
    path.write_text("\n\n".join("\n".join(row.replace("/", "\t") for row in text.split()) for text in sentences) + "\n")
    return path


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "train.conll", [f"the/O w{n}/B-X x/I-X" for n in range(20)])


def test_a_corpus_comes_back_as_it_was_prepared(source, tmp_path):
    made = prepare_tagged(source, tmp_path / "data", seed=1)
    again = open_tagged(tmp_path / "data")
    assert (len(made.train), len(made.valid)) == (18, 2)
    assert again.manifest == made.manifest
    assert again.manifest["scheme"] == "bio"
    assert again.manifest["words"] == {"train": 54, "valid": 6}
    (batch,) = tagged_evaluation(again.valid)
    for words, row in zip(again.valid_words, batch.context["words"].tolist(), strict=True):
        assert words[0] == "the"
        assert row[1] == 0  # the word in the middle is seen in no other sentence: the vocabulary is of training alone


def test_a_tag_that_is_seen_once_is_trained_on(tmp_path):
    source = write(tmp_path / "a.conll", ["a/X"] * 9 + ["a/Y"])
    for seed in range(8):
        corpus = prepare_tagged(source, tmp_path / f"data{seed}", validation_fraction=0.3, seed=seed)
        assert corpus.vocabulary.tags == ("X", "Y")


def test_a_dev_file_is_held_out_whole(source, tmp_path):
    dev = write(tmp_path / "dev.conll", ["the/O", "new/B-X"])
    corpus = prepare_tagged(source, tmp_path / "data", validation=dev)
    assert corpus.valid_words == [["the"], ["new"]]
    assert len(corpus.train) == 20
    assert corpus.manifest["validation"]["name"] == "dev.conll"


def test_impossible_tags_are_refused_or_repaired(tmp_path):
    source = write(tmp_path / "a.conll", ["a/B-X"] * 8 + ["a/O b/I-X"] * 2)
    with pytest.raises(ValueError, match=r"a\.conll line 18: I-X after O is impossible in BIO tags: .*pass repair"):
        prepare_tagged(source, tmp_path / "data")
    assert not (tmp_path / "data" / "corpus.json").exists()
    corpus = prepare_tagged(source, tmp_path / "data", repair=True)
    assert corpus.vocabulary.tags == ("O", "B-X")
    assert corpus.manifest["repaired"] == 2


def test_the_column_of_the_words_can_be_named(tmp_path):
    source = write(tmp_path / "a.tsv", ["1/Bob/B-PER/O 2/meets/O/O 3/Oslo/B-LOC/O"] * 10)
    corpus = prepare_tagged(source, tmp_path / "data", word_column=2, column="3")
    assert corpus.valid_words == [["Bob", "meets", "Oslo"]]
    assert corpus.vocabulary.tags == ("O", "B-LOC", "B-PER")


def test_repaired_spans_keep_the_spelling_of_the_file(tmp_path):
    source = write(tmp_path / "a.conll", ["a/O b/M_X c/E_X", "a/S_X"] * 8)
    corpus = prepare_tagged(source, tmp_path / "data", repair=True)
    assert corpus.manifest["scheme"] == "bioes"
    assert corpus.vocabulary.tags == ("O", "B_X", "E_X", "S_X")
    assert corpus.vocabulary.standard(["B_X", "E_X", "S_X", "O"]) == ["B-X", "E-X", "S-X", "O"]


@pytest.mark.parametrize(
    ("sentences", "dev", "options", "message"),
    [
        (["a/X"] * 5, ["a/X b/NEW"], {}, r"dev\.conll line 2: the tag 'NEW' was not seen in training .tags: X"),
        (["a/X"], None, {}, r"train\.conll: expected enough sentences to hold some out, got 1"),
        (["a/X b/X c/X"] * 5, None, {"max_length": 2}, r"train\.conll line 1: a sentence of more than 2 words"),
        (
            ["a/O"] * 9,
            None,
            {},
            r"train\.conll: column: expected at least two different tags, got only 'O' in column 2",
        ),
        (["a/(X*", "a/*)"] * 5, None, {}, r"train\.conll: the tag '\(X\*' marks a span by brackets"),
        (["1/O 2/X", "1/X 2/O"] * 5, None, {}, r"line 1: expected words, got the numbers of words: .* word_column=2"),
        (["s1/O s1/X", "s2/X s2/O"] * 5, None, {}, r"expected words, got the same for all words of a sentence: name"),
    ],
)
def test_what_cannot_be_trained_on_is_named(tmp_path, sentences, dev, options, message):
    source = write(tmp_path / "train.conll", sentences)
    held_out = None if dev is None else write(tmp_path / "dev.conll", dev)
    with pytest.raises(ValueError, match=message):
        prepare_tagged(source, tmp_path / "data", validation=held_out, **options)
    assert not (tmp_path / "data" / "corpus.json").exists()


@pytest.mark.parametrize("name", ["train.words", "valid.json", "corpus.json"])
def test_damaged_files_are_refused(source, tmp_path, name):
    prepare_tagged(source, tmp_path / "data")
    path = tmp_path / "data" / name
    if name == "train.words":
        (np.fromfile(path, "<i4") + 1000).tofile(path)
    elif name == "valid.json":
        path.write_text(json.dumps({"words": [["a"]]}))
    else:
        path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(ValueError, match="damaged"):
        open_tagged(tmp_path / "data")


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
        ({"batch_size": 2, "seed": -1}, "seed"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        tagged_batches(NUMBERS, VOCABULARY.counts, **options)


def test_iob1_becomes_bio(tmp_path):
    """It was refused: the files of CoNLL-2003 have it."""
    source = tmp_path / "a.conll"
    source.write_text("Ada I-PER\nBo B-PER\nsaw O\n\nRome I-LOC\nsaw O\n\n" * 10)
    corpus = prepare_tagged(source, tmp_path / "data")
    assert corpus.vocabulary.tags == ("O", "B-LOC", "B-PER")
    assert (corpus.manifest["converted"], corpus.manifest["repaired"]) == (True, 0)
    source.write_text("Ada B-PER\nsaw O\n\nRome I-LOC\nsaw O\n\n" * 10)
    with pytest.raises(ValueError, match="I-LOC first in its sentence is impossible in BIO tags"):
        prepare_tagged(source, tmp_path / "other")
