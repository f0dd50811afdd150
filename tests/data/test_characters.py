from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data import CharVocabulary


def chunked(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


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
