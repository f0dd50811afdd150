"""Preparing tagged sentences: what is held out, what is refused, and that it comes back from the disk."""

import json

import numpy as np
import pytest

from chainrule.data._tagged import open_tagged, prepare_tagged, tagged_evaluation


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
    with pytest.raises(ValueError, match=r"a\.conll line 18: I-X after O is impossible in BIO tags: .*--repair"):
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
        (["a/X"] * 5, ["a/X b/NEW"], {}, r"dev\.conll line 2: the tag 'NEW' was never seen in training .there were: X"),
        (["a/X"], None, {}, r"train\.conll: expected sentences enough to hold some out, got 1"),
        (["a/X"] * 5, None, {"validation_fraction": 0.0}, "validation_fraction: expected above 0"),
        (["a/X"] * 5, None, {"max_length": 0}, "max_length: expected an integer >= 1"),
        (["a/X b/X c/X"] * 5, None, {"max_length": 2}, r"train\.conll line 1: a sentence of more than 2 words"),
        (
            ["a/O"] * 9,
            None,
            {},
            r"train\.conll: column: expected at least two different tags, got only 'O' in column 2",
        ),
        (["a/(X*", "a/*)"] * 5, None, {}, r"train\.conll: the tag '\(X\*' marks a span by brackets"),
        (["1/O 2/X", "1/X 2/O"] * 5, None, {}, r"line 1: expected words, got the numbers of words: .* --word-column 2"),
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
