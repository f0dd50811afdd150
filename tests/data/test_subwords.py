import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data import BPEVocabulary
from chainrule.data import _subwords as subwords
from chainrule_app.readers.help_topics import builtin_text

tokenizers = pytest.importorskip("tokenizers")

TEXT = builtin_text()[:60_000]
STREAM = BPEVocabulary.fit([TEXT], vocabulary_size=500)
LINES = BPEVocabulary.fit([TEXT], vocabulary_size=500, eos=True)

anything = st.text() | st.text(alphabet="the 's,\n\r\t\u3000\x1c\x85é") | st.sampled_from(TEXT.split("\n\n"))


def chunked(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@given(anything, st.sampled_from([STREAM, LINES]))
def test_any_text_comes_back_exactly(text, vocabulary):
    assert vocabulary.decode(vocabulary.encode(text)) == text


@given(anything)
def test_encoding_unit_by_unit_gives_what_the_library_gives_for_the_whole(text):
    pieces = {character: byte for byte, character in enumerate(subwords._byte_characters())}
    for left, right in STREAM.merges:
        pieces.setdefault(left + right, len(pieces))
    whole = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=pieces, merges=STREAM.merges))
    whole.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert STREAM.encode(text).tolist() == whole.encode(text).ids


@given(st.text(alphabet="the 's,\n\té"), st.lists(st.integers(0)), st.sampled_from([STREAM, LINES]))
def test_encoding_does_not_depend_on_where_chunks_are_cut(text, cuts, vocabulary):
    ids = list(vocabulary.encode_chunks(chunked(text, cuts)))
    assert np.array_equal(np.concatenate([*ids, []]), vocabulary.encode(text))


@given(anything)
def test_eos_stands_for_each_newline_and_nothing_else(text):
    assert (LINES.encode(text) == LINES.eos).sum() == text.count("\n")
    assert LINES.token(LINES.eos) == "<eos>"
    assert STREAM.eos is None


def test_a_literal_eos_in_the_text_is_no_eos():
    vocabulary = BPEVocabulary.fit(["<eos> " * 50], eos=True)
    assert vocabulary.eos not in vocabulary.encode("<eos>")
    assert vocabulary.decode(vocabulary.encode("<eos>\n")) == "<eos>\n"


def test_size_is_what_was_asked_or_less_and_compresses():
    assert (len(STREAM), len(LINES)) == (500, 500)
    assert len(STREAM.encode(TEXT)) < 0.6 * len(TEXT)
    assert len(BPEVocabulary.fit(["ab"])) == 256


def test_the_same_text_gives_the_same_merges():
    assert BPEVocabulary.fit([TEXT], vocabulary_size=500).merges == STREAM.merges


def test_what_was_met_before_is_forgotten_when_it_is_too_much(monkeypatch):
    monkeypatch.setattr(subwords, "_MOST_KNOWN", 10)
    vocabulary = BPEVocabulary(LINES.merges, eos=True)
    assert np.array_equal(vocabulary.encode(TEXT), LINES.encode(TEXT))
    assert len(vocabulary._known) <= 10


@pytest.mark.parametrize(("limit", "value"), [("_FIT_CHARACTERS", 99), ("_FIT_WORDS", 1)])
def test_merges_are_fitted_on_a_bounded_beginning(monkeypatch, limit, value):
    monkeypatch.setattr(subwords, limit, value)
    read = []
    chunks = (read.append(number) or text for number, text in enumerate(["ab " * 30, "cd " * 30, *["xyz "] * 1000]))
    assert {left + right for left, right in BPEVocabulary.fit(chunks).merges} <= {"ab", "cd", "Ġab", "Ġcd", "Ġa", "Ġc"}
    assert len(read) <= 4


def test_the_beginning_ends_within_a_chunk(monkeypatch):
    monkeypatch.setattr(subwords, "_FIT_CHARACTERS", 100)
    text = list(subwords._beginning(["a" * 60, "b" * 60, "c"]))
    assert "".join(text) == "a" * 60 + "b" * 40


def test_half_a_surrogate_pair_is_a_replacement_character():
    assert STREAM.decode(STREAM.encode("a\ud800b")) == "a\ufffdb"


def test_a_vocabulary_too_small_for_the_bytes_is_refused():
    with pytest.raises(ValueError, match="at least 256 at level bpe"):
        BPEVocabulary.fit(["text"], vocabulary_size=100)


def test_a_missing_library_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"pip install tokenizers"):
        BPEVocabulary([])


@pytest.mark.parametrize("text", ["!\x1c \n x", "a b!\x1c x"])
def test_a_text_is_cut_where_units_begin(text):
    """U+001C to U+001F are white space to Python alone: a merge across one was cut."""
    vocabulary = BPEVocabulary([("!", "Ĝ"), ("a", "Ġ")])
    assert np.concatenate(list(vocabulary.encode_chunks([text]))).tolist() == vocabulary.encode(text).tolist()


def test_halves_of_surrogate_pairs_are_fitted_as_they_are_encoded():
    fitted = BPEVocabulary.fit(["ab\ud800 ab\ud800"], vocabulary_size=260)
    assert fitted.decode(fitted.encode("ab\ud800")) == "ab\ufffd"
