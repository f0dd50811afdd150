"""Texts as words with their parts, as characters, as bytes."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data import TextSymbols
from chainrule.data._labelled import EncodedTexts

TEXTS = ["the cats sat", "the cat sat", "a cathedral", "the dog sat ."]


def test_words_are_split_from_punctuation_and_lowered() -> None:
    symbols = TextSymbols("word", ())
    assert symbols.tokens("It's GOOD, well-made (1.5)!") == [
        "it's", "good", ",", "well-made", "(", "1", ".", "5", ")", "!",
    ]  # fmt: skip
    assert TextSymbols("word", (), lower=False).tokens("So Good") == ["So", "Good"]


def test_a_word_is_itself_then_its_known_parts() -> None:
    symbols = TextSymbols.fit(TEXTS, "word", min_count=2)
    assert symbols.symbols == ("sat", "the")
    assert symbols.parts == ("<ca", "<cat", "cat")  # in cats, cat and cathedral
    assert symbols.encode("sat") == (1,)
    assert symbols.encode("cat") == (0, 3, 4, 5)
    assert symbols.encode("catty") == (0, 3, 4, 5)  # never seen, and read by its parts
    assert len(symbols) == 6


def test_without_ngrams_a_rare_word_is_unknown() -> None:
    symbols = TextSymbols.fit(TEXTS, "word", ngrams=False, min_count=2)
    assert [symbols.encode(word) for word in ("the", "cat")] == [(2,), (0,)]


def test_characters_and_bytes() -> None:
    symbols = TextSymbols.fit(["Aab"], "char", min_count=2)
    assert [symbols.encode(token) for token in symbols.tokens("aAb")] == [(1,), (1,), (0,)]
    symbols = TextSymbols.fit(["ignored"], "byte")
    assert len(symbols) == 256
    assert [symbols.encode(token)[0] for token in symbols.tokens("é\\\n~")] == list("é\\\n~".encode())


@pytest.mark.parametrize("level", ["word", "char", "byte"])
def test_what_is_written_is_read_again(level) -> None:
    symbols = TextSymbols.fit(TEXTS, level)
    again = TextSymbols.from_json(json.loads(json.dumps(symbols.to_json())))
    assert (again.symbols, again.parts, len(again)) == (symbols.symbols, symbols.parts, len(symbols))
    assert again.encode("c") == symbols.encode("c")


@pytest.mark.parametrize(
    "change",
    [
        {"level": "line"},
        {"symbols": ["a", "a"]},
        {"symbols": [1]},
        {"parts": "ab"},
        {"lower": 1},
        {"format": 2},
        {"x": 1},
    ],
)
def test_a_damaged_file_is_refused(change: dict) -> None:
    with pytest.raises(ValueError, match="the file is damaged"):
        TextSymbols.from_json({"format": 1, "level": "word", "lower": True, "symbols": ["a"], "parts": None} | change)


@given(
    st.lists(st.text(alphabet="abc d", max_size=12), min_size=1, max_size=8), st.sampled_from(["word", "char", "byte"])
)
def test_any_rows_hold_the_symbols_of_their_texts(texts: list[str], level) -> None:
    symbols = TextSymbols.fit(texts, level, min_count=1)
    encoded = EncodedTexts.of(texts, symbols)
    rows = np.arange(len(texts))[::-1].copy()
    context = encoded.context(rows, limit=5)
    for place, row in enumerate(rows.tolist()):
        bags = [symbols.encode(token) for token in symbols.tokens(texts[row])][:5]
        assert context["lengths"][place] == len(bags)
        for step, bag in enumerate(bags):
            held = context["inputs"][place, step].reshape(-1).tolist()
            assert tuple(symbol for symbol in held if symbol >= 0) == bag
        assert (context["inputs"][place, len(bags) :] == -1).all()
