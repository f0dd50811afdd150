import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data import ByteVocabulary


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
