"""A tokenizer.json of another program as the symbols of a text."""

import json

import pytest

import chainrule
from chainrule.data._subwords import read_tokenizer

TEXT = "the cat sat on the mat, the rat that sat with the cat é\n" * 40


@pytest.fixture
def tokenizer(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=280, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([TEXT], trainer)
    made.save(str(tmp_path / "tokenizer.json"))
    return made


def test_symbols_are_those_of_the_tokenizer(tokenizer, tmp_path):
    read = read_tokenizer(tmp_path / "tokenizer.json")
    ids = read.vocabulary.encode(TEXT)
    assert [read.numbers[symbol] for symbol in ids] == tokenizer.encode(TEXT).ids
    assert read.vocabulary.decode(ids) == TEXT
    assert read.special == {"<|endoftext|>": 0}


@pytest.mark.parametrize("reading", ["stream", "lines"])
def test_a_text_is_trained_with_them(tokenizer, tmp_path, command, reading):
    (tmp_path / "text.txt").write_text(TEXT)
    status, _, error = command(
        "train", tmp_path / "text.txt", "--tokenizer", tmp_path / "tokenizer.json", "--out", tmp_path / "run",
        "--reading", reading, "--steps", 1, "--hidden-size", 4, "--kneser-ney-order", 0,
    )  # fmt: skip
    assert status == 0, error
    run = chainrule.load(tmp_path / "run")
    assert run.config["data"]["level"] == "bpe"
    assert run.task.vocabulary.pieces == read_tokenizer(tmp_path / "tokenizer.json").vocabulary.pieces
    assert run.config["facts"]["tokenizer"]["name"] == "tokenizer.json"
    assert "tokenizer.json" in command("info", tmp_path / "run")[1]
    again = ["train", "--resume", "--out", tmp_path / "run", "--steps", 2]
    assert command(*again)[0] == 0
    (tmp_path / "other.json").write_text((tmp_path / "tokenizer.json").read_text() + " ")
    status, _, error = command(*again, "--tokenizer", tmp_path / "other.json")
    assert status == 2
    assert "--tokenizer changed" in error


def test_levels_and_tokenizers_exclude_each_other(tokenizer, tmp_path, command):
    (tmp_path / "text.txt").write_text(TEXT)
    flags = ["train", tmp_path / "text.txt", "--tokenizer", tmp_path / "tokenizer.json", "--out", tmp_path / "run"]
    for extra in (["--level", "word"], ["--vocabulary-size", 300], ["--min-count", 2]):
        status, _, error = command(*flags, *extra)
        assert status == 2
        assert extra[0] in error


@pytest.mark.parametrize(
    "damage",
    [
        {"normalizer": {"type": "NFC"}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}},
        {"model": {"type": "WordPiece", "vocab": {}}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": "b"}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {}, "merges": [["a"]]}},
        {"model": {"type": "BPE", "vocab": {}, "merges": ["aa b"]}},
        {"model": []},
    ],
)
def test_other_tokenizers_end_in_one_line(tokenizer, tmp_path, damage):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    with pytest.raises(ValueError, match=r"tokenizer\.json: ") as caught:
        read_tokenizer(path)
    assert "\n" not in str(caught.value)
    path.write_text("{")
    with pytest.raises(ValueError, match="expected JSON"):
        read_tokenizer(path)
