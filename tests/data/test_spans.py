import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data import BPEVocabulary, ByteVocabulary, CharVocabulary, WordVocabulary
from chainrule.data._vocabulary import symbol_spans


def pieces(vocabulary, ids) -> list[str]:
    text, spans = symbol_spans(vocabulary, ids)
    return [text[start:stop] for start, stop in spans]


def test_characters_and_words_stand_where_they_are():
    vocabulary = CharVocabulary("ab\n", eos=True)
    assert pieces(vocabulary, vocabulary.encode("ab?\n")) == ["a", "b", "\N{REPLACEMENT CHARACTER}", "\n"]
    words = WordVocabulary(["the", "cat"])
    assert pieces(words, words.encode("the cat sat\n\nthe")) == ["the", "cat", "<unk>", "\n", "\n", "the"]


def test_bytes_of_one_character_share_it():
    vocabulary = ByteVocabulary()
    assert pieces(vocabulary, vocabulary.encode("aé😀b")) == ["a", "é", "é", "😀", "😀", "😀", "😀", "b"]


def test_pieces_of_words_keep_their_space():
    pytest.importorskip("tokenizers")
    vocabulary = BPEVocabulary([("t", "h"), ("th", "e")])
    assert pieces(vocabulary, vocabulary.encode("the the")) == ["the", " ", "the"]


@given(st.binary(max_size=40))
def test_any_bytes_have_a_place(raw):
    text, spans = symbol_spans(ByteVocabulary(), list(raw))
    assert text == raw.decode("utf-8", "replace")
    assert all(0 <= start < stop <= len(text) for start, stop in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_text_as_bytes_puts_each_byte_at_its_character(text):
    _, spans = symbol_spans(ByteVocabulary(), list(text.encode()))
    assert spans == [(place, place + 1) for place, character in enumerate(text) for _ in character.encode()]
