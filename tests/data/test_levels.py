import json

import pytest

from chainrule.data import BPEVocabulary, ByteVocabulary, CharVocabulary, Vocabulary, WordVocabulary

VOCABULARIES = [
    CharVocabulary("ab\n é"),
    CharVocabulary("abé", eos=True),
    ByteVocabulary(),
    ByteVocabulary(eos=True),
    WordVocabulary(["the", "cat", "<eos>"]),
    BPEVocabulary([("t", "h"), ("th", "e")]),
    BPEVocabulary([("t", "h"), ("th", "e")], eos=True),
]


@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=lambda v: f"{v.level}-{v.eos}")
def test_a_saved_vocabulary_comes_back_equal(vocabulary, tmp_path):
    vocabulary.save(tmp_path / "vocabulary.json")
    again = Vocabulary.load(tmp_path / "vocabulary.json")
    text = "the cat é\n<eos> 科\r\n"
    assert type(again) is type(vocabulary)
    assert (len(again), again.eos, again.unknown) == (len(vocabulary), vocabulary.eos, vocabulary.unknown)
    assert again.encode(text).tolist() == vocabulary.encode(text).tolist()
    assert [again.token(i) for i in range(len(again))] == [vocabulary.token(i) for i in range(len(vocabulary))]
    assert [path.name for path in tmp_path.iterdir()] == ["vocabulary.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "newer"),
        ({"format": "1"}, "expected 1"),
        ({"level": "morpheme"}, "expected one of char, byte, word, bpe, got 'morpheme'"),
        ({"level": ["char"]}, "expected one of"),
        ({"characters": 5}, "characters: expected text, got 5"),
        ({"characters": "ba"}, "in order"),
        ({"characters": "aa"}, "once"),
        ({"eos": 1}, "eos: expected true or false"),
        ({"eos": True}, "in order"),
        ({"more": 1}, "'more'"),
        ({"characters": None}, "expected text"),
    ],
)
def test_a_changed_character_vocabulary_is_refused(change, message):
    content = {"format": 1, "level": "char", "characters": "ab", "eos": False}
    with pytest.raises(ValueError, match=message):
        Vocabulary.from_json(content | change)


WORDS = [["a", "a"], ["a b"], [""], ["<unk>"], [3], "ab", [["a"]]]
MERGES = [["ab"], ["a  b"], ["a b c"], [" "], [3], ["ab c"], "ab", ["a \n"]]


@pytest.mark.parametrize(
    ("level", "content", "message"),
    [
        *(
            ("word", {"words": words, "split_punctuation": False}, "words: expected .*the file is damaged")
            for words in WORDS
        ),
        *(("bpe", {"merges": merges, "eos": False}, "merges") for merges in MERGES),
        ("word", {"words": ["a"], "split_punctuation": 1}, "split_punctuation: expected true or false"),
        ("word", {"split_punctuation": True}, "'words'"),
    ],
)
def test_a_changed_vocabulary_of_words_or_subwords_is_refused(level, content, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary.from_json({"format": 1, "level": level} | content)


@pytest.mark.parametrize("content", ["", "[1]", '{"format": 1', "[" * 100_000, "\xff"])
def test_a_damaged_file_is_named(content, tmp_path):
    path = tmp_path / "vocabulary.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=r"vocabulary\.json") as caught:
        Vocabulary.load(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.json"):
        Vocabulary.load(tmp_path / "nowhere.json")


def test_a_vocabulary_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "vocabulary.json"
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")  # the draft stands beside the file: a rename crosses no disks
    CharVocabulary("ab").save(path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        CharVocabulary("abc").save(path)
    assert json.loads(path.read_text())["characters"] == "ab"
    assert [left.name for left in tmp_path.iterdir()] == ["vocabulary.json"]


@pytest.mark.parametrize("text", ["", "\n", "a", "a\n", "\n\nä\U0001f600b\n\nc", "no line end, \r\n\x0b\u2028"])
@pytest.mark.parametrize("eos", [False, True])
def test_lines_of_characters_are_counted_as_line_by_line(text, eos):
    vocabulary = CharVocabulary("abä" if eos else "abä\n", eos=eos)
    found, expected = vocabulary.encode_with_lines(text), Vocabulary.encode_with_lines(vocabulary, text)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]
