"""A tokenizer.json of another program as the symbols of a text."""

import json
import random

import pytest

import chainrule
from chainrule.data import Vocabulary, read_tokenizer
from chainrule_app.exchange.exporting import tokenizer_of

pytest.importorskip("tokenizers")

from tokenizers import AddedToken

TEXT = "the cat sat on the mat, the rat that sat with the cat é\n" * 40
ADDED = {"id": 900, "content": "<b>"}


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
    assert read.numbers[read.vocabulary.pieces.index("<|endoftext|>")] == 0


# What one tokenizer or another takes for white space, a word, a letter or its parts.
CHARACTERS = "the cat<b>|x0.,'’é É\u0301 你好\u00a0\u3000\u2028\u0085\u200b\x1c\x0b\t\r\n\n😀\u180eİß ﬁ<<>>  "
TOKENS = ["<b>", "<b", "cat", " the", "  ", "\n\n", "你", "t<|endoftext|>", "<|endoftext|>", "ﬁ"]


@pytest.mark.parametrize(
    "added",
    [
        [],
        [AddedToken(text, special=True, normalized=False) for text in TOKENS],
        [AddedToken(text, normalized=number % 2 == 0) for number, text in enumerate(TOKENS)],
        [AddedToken(text, single_word=True, normalized=False) for text in ("<b>", "cat", "x0", "你")],
    ],
    ids=["none", "special", "plain", "words"],
)
def test_a_thousand_texts_have_the_symbols_of_the_library(tokenizer, tmp_path, added):
    """Added tokens were never used: `<b>` was three symbols for one."""
    tokenizer.add_tokens(added)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    read, draw = read_tokenizer(tmp_path / "tokenizer.json"), random.Random(0)
    parts = [*CHARACTERS, *CHARACTERS, *(token.content for token in added), *TEXT.split(" ")[:14], " the", " cat"]
    used = set()
    for _ in range(1000):
        text = "".join(draw.choices(parts, k=draw.randint(0, 30)))
        ids = read.vocabulary.encode(text)
        assert [read.numbers[symbol] for symbol in ids] == tokenizer.encode(text, add_special_tokens=False).ids, text
        assert read.vocabulary.decode(ids) == text
        cut = draw.randint(0, len(text))
        chunks = [*read.vocabulary.encode_chunks([text[:cut], text[cut:]])]
        assert [symbol for part in chunks for symbol in part.tolist()] == ids.tolist()
        used |= set(ids.tolist())
    assert len(used & {read.vocabulary.pieces.index(token.content) for token in added}) >= len(added) - 1
    exported = tokenizer_of(read.vocabulary)
    assert exported.encode(CHARACTERS).ids[1:] == read.vocabulary.encode(CHARACTERS).tolist()
    again = Vocabulary.from_json(json.loads(json.dumps(read.vocabulary.to_json())))
    assert (again.pieces, again.encode(CHARACTERS).tolist()) == (
        read.vocabulary.pieces,
        read.vocabulary.encode(CHARACTERS).tolist(),
    )


@pytest.mark.parametrize("prompt", ["a <", "the <b", "the ca", "a <b>"])
def test_a_prompt_may_end_inside_an_added_token(tokenizer, tmp_path, prompt):
    tokenizer.add_tokens([AddedToken("<b>"), AddedToken("<bold>")])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vocabulary = read_tokenizer(tmp_path / "tokenizer.json").vocabulary
    beginning, found = vocabulary.begin(prompt), set()
    begun = len(beginning.ids)
    for more in ("", "b>", "bold>", "b", ">", " x", "t", "b> the", "old>"):
        ids = vocabulary.encode(prompt + more).tolist()
        assert ids[:begun] == beginning.ids.tolist()
        found.add(next(cover for cover in beginning.covers if tuple(ids[begun : begun + len(cover)]) == tuple(cover)))
    assert len(found) > 1 or prompt == "a <b>"


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
        {"normalizer": {"type": "Lowercase"}},
        {"normalizer": {"type": "Prepend", "prepend": "▁"}},
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}},
        {"pre_tokenizer": None},
        {"model": {"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": 0, "byte_fallback": True}},
        {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}},
        {"model": {"type": "BPE", "vocab": {}, "merges": [], "byte_fallback": True}},
        {"model": {"type": "BPE", "vocab": {}, "merges": [], "dropout": 0.1}},
        {"added_tokens": [ADDED | {"lstrip": True}]},
        {"added_tokens": [ADDED | {"rstrip": True}]},
        {"added_tokens": [ADDED | {"content": "a b"}]},
        {"added_tokens": [ADDED | {"content": "a\n"}]},
        {"added_tokens": [ADDED | {"content": " a", "single_word": True}]},
        {"added_tokens": [ADDED | {"content": ""}]},
        {"added_tokens": [ADDED | {"content": "é"}]},
        {"added_tokens": [ADDED | {"content": "a"}]},
        {"added_tokens": [{"content": "a"}]},
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
