"""Vocabularies of words, characters and bytes."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data import ByteVocabulary, CharVocabulary, WordVocabulary
from chainrule.data import _characters as characters
from chainrule.data._characters import JOINER
from chainrule.data._vocabulary import cut_before_space

spaced = st.text(alphabet="ab \n\t\r\u00a0\u3000\x1c")


def chunked(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@given(spaced)
def test_text_comes_back_up_to_the_amount_of_white_space(text):
    vocabulary = WordVocabulary.fit([text])
    back = vocabulary.decode(vocabulary.encode(text))
    split_words = WordVocabulary.split_words
    assert [split_words(line) for line in back.split("\n")] == [split_words(line) for line in text.split("\n")]


def test_only_ascii_white_space_separates_words():
    vocabulary = WordVocabulary.fit(["10\u00a0000 men\tand\r\n\u3000two\f"])
    assert sorted(vocabulary.words) == ["10\u00a0000", "and", "men", "\u3000two"]
    assert vocabulary.decode(vocabulary.encode("10\u00a0000  men")) == "10\u00a0000 men"
    assert WordVocabulary.from_json(vocabulary.to_json()).words == vocabulary.words


@given(spaced, st.lists(st.integers(0)))
def test_no_word_is_cut_by_a_chunk(text, cuts):
    vocabulary = WordVocabulary.fit(chunked(text, cuts))
    assert vocabulary.to_json() == WordVocabulary.fit([text]).to_json()
    ids = list(vocabulary.encode_chunks(chunked(text, cuts)))
    assert np.array_equal(np.concatenate([*ids, []]), vocabulary.encode(text))


def test_the_most_frequent_words_come_first_and_equals_in_order():
    text = "b a c b a b"
    assert WordVocabulary.fit([text]).words == ["b", "a", "c"]
    assert WordVocabulary.fit(["d c b a"]).words == ["a", "b", "c", "d"]
    assert WordVocabulary.fit([text], min_count=2).words == ["b", "a"]
    small = WordVocabulary.fit([text], vocabulary_size=3)
    assert (small.words, len(small)) == (["b"], 3)


def test_a_literal_unk_is_the_unknown_word_and_a_literal_eos_is_a_word():
    vocabulary = WordVocabulary.fit(["<unk> <unk> <eos> a"])
    assert vocabulary.words == ["<eos>", "a"]
    assert vocabulary.encode("<unk> never <eos>\n").tolist() == [0, 0, 2, 1]
    assert [vocabulary.token(symbol) for symbol in range(4)] == ["<unk>", "<eos>", "<eos>", "a"]


def test_counting_forgets_the_rarest_words_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(characters, "_MOST_COUNTED", 50)
    chunks = (f"often w{i} x{i} " for i in range(500))
    vocabulary = WordVocabulary.fit(chunks)
    assert "often" in vocabulary.words
    assert len(vocabulary.words) <= 50


def test_a_text_without_white_space_is_cut_rather_than_held():
    pieces = list(cut_before_space(["x" * 10] * 30, limit=100))
    assert all(0 < len(piece) <= 110 for piece in pieces)
    assert "".join(pieces) == "x" * 300


def test_a_word_longer_than_the_limit_is_cut_at_the_same_places_however_it_comes():
    text = "ab " + "x" * 250 + " cd"
    cuts = {
        "".join(f"{piece}|" for piece in cut_before_space(chunks, limit=100) if "x" in piece)
        for chunks in ([text], [text[:50], text[50:]], [text[i : i + 7] for i in range(0, len(text), 7)])
    }
    assert len(cuts) == 1


written = st.text(alphabet="aé1 \n.,'’\"(-\u00a0<>")


@given(written)
def test_split_punctuation_is_joined_again(text):
    vocabulary = WordVocabulary.fit([text], split_punctuation=True)
    back = vocabulary.decode(vocabulary.encode(text))
    assert back == "\n".join(" ".join(WordVocabulary.split_words(line)) for line in text.split("\n"))
    assert all(len(word) == 1 or word[0].isalnum() for word in (w.removeprefix(JOINER) for w in vocabulary.words))


def test_words_keep_apostrophes_and_numbers_their_points():
    vocabulary = WordVocabulary.fit(["Don't pay 10,000.50 (or 3%)."], split_punctuation=True)
    split = vocabulary.split("Don't pay 10,000.50 (or 3%).")
    assert " ".join(split) == "Don't pay 10,000.50 ( ￭or 3 ￭% ￭) ￭."
    assert vocabulary.encode("Don't").tolist() == [vocabulary.words.index("Don't") + 2]
    assert WordVocabulary.from_json(vocabulary.to_json()).split("a,b") == ["a", "￭,", "￭b"]


def test_a_joiner_in_the_text_is_no_word_and_records_hold_pieces_alone():
    vocabulary = WordVocabulary.fit(["a￭b <unk> c"], split_punctuation=True)
    assert vocabulary.words == ["c"]
    assert vocabulary.encode("a￭b ￭ c").tolist() == [0, 0, 2]
    for word in ("a,", "￭", "￭￭,", "<unk>"):
        with pytest.raises(ValueError, match="expected words"):
            WordVocabulary.from_json(vocabulary.to_json() | {"words": [word]})


def test_the_beginning_of_a_piece_is_completed_by_the_pieces_known():
    vocabulary = WordVocabulary.fit(['he said "well", she left'], split_punctuation=True)
    beginning = vocabulary.begin('he said "we')
    assert beginning.rest == "we"
    assert beginning.covers == [(vocabulary.words.index("￭well") + 2,)]
    assert vocabulary.decode(beginning.ids) == 'he said "'


@given(st.text())
def test_text_is_its_utf8_bytes_and_comes_back_exactly(text):
    vocabulary = ByteVocabulary()
    assert vocabulary.encode(text).tolist() == list(text.encode())
    assert vocabulary.decode(vocabulary.encode(text)) == text


@given(st.binary())
def test_bytes_that_are_no_text_pass_as_they_are(raw):
    escaped = raw.decode("utf-8", "surrogateescape")
    assert ByteVocabulary().encode(escaped).astype(np.uint8).tobytes() == raw


def test_invalid_sequences_are_shown_as_replacements():
    assert ByteVocabulary().decode([97, 255, 98]) == "a\ufffdb"


def test_half_a_surrogate_pair_is_encoded_rather_than_refused():
    assert len(ByteVocabulary().encode("\ud800")) == 3


def test_only_lines_have_an_eos_which_is_the_newline():
    assert ByteVocabulary().eos is None
    lines = ByteVocabulary(eos=True)
    assert lines.encode("a\n").tolist() == [97, lines.eos]
    assert [lines.token(symbol) for symbol in (10, 32, 65, 200)] == ["<eos>", "␣", "A", "\\xc8"]


def test_nothing_can_be_left_out():
    with pytest.raises(ValueError, match="256"):
        ByteVocabulary.fit([], vocabulary_size=100)
    with pytest.raises(ValueError, match="256"):
        ByteVocabulary.fit([], min_count=2)


def test_escapes_are_the_bytes_they_were_beside_half_a_surrogate_pair():
    vocabulary = ByteVocabulary()
    every = "".join(chr(0xDC00 + byte) for byte in range(128, 256))
    assert vocabulary.encode(every + "\ud800").tolist() == [*range(128, 256), 0xED, 0xA0, 0x80]
    text = "\udcff\n\ud800"
    assert vocabulary.encode_with_lines(text)[0].tolist() == vocabulary.encode(text).tolist()


@given(st.text(), st.booleans())
def test_text_of_seen_characters_comes_back_exactly(text, eos):
    vocabulary = CharVocabulary.fit([text], eos=eos)
    ids = vocabulary.encode(text)
    assert ids.dtype == np.int64
    assert vocabulary.decode(ids) == text
    assert vocabulary.unknown not in ids


@given(st.text(), st.lists(st.integers(0)))
def test_fit_and_encode_do_not_depend_on_where_chunks_are_cut(text, cuts):
    whole, parts = CharVocabulary.fit([text]), CharVocabulary.fit(chunked(text, cuts))
    assert whole.to_json() == parts.to_json()
    ids = [whole.encode_chunks([text]), whole.encode_chunks(chunked(text, cuts))]
    assert np.array_equal(*(np.concatenate([*each, []]) for each in ids))


@given(st.text(), st.text())
def test_unseen_characters_are_unknown_and_others_are_not(seen, text):
    vocabulary = CharVocabulary.fit([seen])
    unknown = [character not in seen for character in text]
    assert (vocabulary.encode(text) == vocabulary.unknown).tolist() == unknown


def test_rare_characters_are_left_out_by_count_and_by_size():
    text = "aaaabbbcc\N{GREEK SMALL LETTER OMEGA}"
    assert CharVocabulary.fit([text], min_count=2).characters == "abc"
    small = CharVocabulary.fit([text], vocabulary_size=3)
    assert (small.characters, len(small)) == ("ab", 3)


def test_the_newline_is_eos_where_lines_are_read_and_always_there():
    vocabulary = CharVocabulary.fit(["abc"], eos=True, vocabulary_size=4)
    assert vocabulary.encode("\n").tolist() == [vocabulary.eos]
    assert vocabulary.token(vocabulary.eos) == "<eos>"
    assert len(vocabulary) == 4
    assert CharVocabulary.fit(["a\n"]).eos is None


def test_tokens_are_printable_and_name_the_unknown():
    vocabulary = CharVocabulary(" \n\ta")
    assert [vocabulary.token(symbol) for symbol in range(5)] == ["<unk>", "\\t", "\\n", "␣", "a"]


@pytest.mark.parametrize("symbol", [-1, 4])
def test_symbols_out_of_range_are_refused(symbol):
    with pytest.raises(ValueError, match=f"from 0 to 3, got {symbol}"):
        CharVocabulary("abc").decode([1, symbol])
