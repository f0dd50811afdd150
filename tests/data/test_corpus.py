import gzip
import hashlib
import json
import re

import numpy as np
import pytest

from chainrule.data import ByteVocabulary, CharVocabulary
from chainrule_app.readers import corpus as corpus_module
from chainrule_app.readers.corpus import open_corpus, prepare_corpus
from chainrule_app.readers.help_topics import builtin_text
from chainrule_app.readers.sources import fingerprint

# 3 MB whose characters of 1 to 4 bytes and whose \r\n fall on every possible side of the ends of chunks
MIXED = "a\r\né 科\t𝄞b \n\nlonger words, punctuated!\r\n" * 60_000 + "unseen longer"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    path = tmp_path_factory.mktemp("mixed") / "mixed.txt"
    path.write_bytes(MIXED.encode())
    return path


def text_of(corpus) -> str:
    parts = (corpus.train, corpus.valid)
    return "".join(corpus.vocabulary.decode(part.slice(0, len(part))) for part in parts)


@pytest.mark.parametrize("reading", ["stream", "lines"])
@pytest.mark.parametrize("level", ["char", "byte", "bpe"])
def test_the_symbols_on_disk_are_the_text_exactly(mixed, tmp_path, level, reading):
    if level == "bpe":
        pytest.importorskip("tokenizers")
    corpus = prepare_corpus(mixed, tmp_path, level=level, reading=reading)
    assert text_of(corpus) == MIXED + ("\n" if reading == "lines" else "")  # the last line is a line too
    assert (corpus.level, corpus.reading) == (level, reading)
    assert corpus.train.slice(0, 5).dtype == np.int64


def test_words_on_disk_are_the_words_of_the_text(mixed, tmp_path):
    corpus = prepare_corpus(mixed, tmp_path, level="word")
    assert text_of(corpus).split() == MIXED.replace("unseen", "<unk>").split()
    assert corpus.summary()["valid"]["unknown"] == 1


@pytest.mark.parametrize("level", ["char", "byte", "word"])
def test_every_line_ends_in_eos_and_is_found_by_its_number(mixed, tmp_path, level):
    corpus = prepare_corpus(mixed, tmp_path, level=level, reading="lines")
    lines = MIXED.split("\n")
    assert corpus.train.line_count + corpus.valid.line_count == len(lines)
    for part, first in ((corpus.train, 0), (corpus.valid, corpus.train.line_count)):
        for line in (0, 1, part.line_count // 2, part.line_count - 1):
            (start,), (stop,) = part.line_bounds(np.array([line]))
            ids = part.slice(start, stop)
            assert np.array_equal(ids, corpus.vocabulary.encode(lines[first + line] + "\n"))
            assert (ids == corpus.vocabulary.eos).tolist() == [False] * (len(ids) - 1) + [True]


def test_the_last_part_is_held_out_and_the_vocabulary_is_fitted_on_the_first_alone(tmp_path):
    (tmp_path / "text").write_text("abc\n" * 90 + "xyz\n" * 10)
    corpus = prepare_corpus(tmp_path / "text", tmp_path / "corpus", validation_fraction=0.1)
    assert corpus.vocabulary.decode(corpus.train.slice(0, len(corpus.train))) == "abc\n" * 90
    assert corpus.vocabulary.characters == "\nabc"
    assert (corpus.valid.slice(0, 4) == [0, 0, 0, 1]).all()
    summary = corpus.summary()
    assert summary["train"] == {"elements": 360, "lines": 0, "unknown": 0, "characters": 360, "bytes": 360}
    assert summary["valid"] == {"elements": 40, "lines": 0, "unknown": 30, "characters": 40, "bytes": 40}


def test_a_file_of_its_own_can_be_held_out(tmp_path):
    (tmp_path / "train").write_text("aab\n")
    (tmp_path / "valid").write_text("abc\n")
    corpus = prepare_corpus(tmp_path / "train", tmp_path / "corpus", validation=tmp_path / "valid")
    assert corpus.vocabulary.characters == "\nab"
    assert len(corpus.train) == len(corpus.valid) == 4
    assert corpus.summary()["validation"] == fingerprint(tmp_path / "valid")


@pytest.mark.parametrize(("size", "dtype"), [(255, "uint8"), (256, "uint16"), (65_535, "uint16"), (65_536, "uint32")])
def test_symbols_take_the_least_room(tmp_path, size, dtype):
    characters = [chr(0x10000 + i) for i in range(size - 1)]
    text = "".join(characters)
    (tmp_path / "text").write_text(text + "\n" + "\n" * 10, encoding="utf-8")
    corpus = prepare_corpus(tmp_path / "text", tmp_path / "corpus", validation_fraction=1e-5)
    assert len(corpus.vocabulary) == size + 1
    written = (corpus.directory / "train.tokens").stat().st_size
    assert written == len(corpus.train) * np.dtype(dtype).itemsize
    assert corpus.vocabulary.decode(corpus.train.slice(0, size - 1)) == text


def test_without_a_file_it_is_the_text_built_into_python(tmp_path):
    corpus = prepare_corpus(None, tmp_path)
    assert text_of(corpus) == builtin_text()
    assert corpus.summary()["source"]["sha256"] == hashlib.sha256(builtin_text().encode()).hexdigest()
    assert "pydoc_data.topics" in corpus.summary()["source"]["name"]


def test_the_built_in_text_has_every_paragraph_of_the_help_topics_once_in_alphabetical_order():
    topics = pytest.importorskip("pydoc_data.topics").topics
    text = builtin_text()
    assert text.startswith(topics[min(topics)])
    whole = "\n\n".join(topics[name] for name in sorted(topics))
    assert paragraphs(text) == list(dict.fromkeys(paragraphs(whole)))


def paragraphs(text):
    """The paragraphs of a text, blanks apart."""
    return [" ".join(part.split()) for part in re.split(r"\n\n+", text) if part.strip()]


def test_a_fingerprint_tells_content_and_name_but_no_folder(tmp_path):
    (tmp_path / "text").write_bytes(b"content")
    assert fingerprint(tmp_path / "text") == {
        "name": "text",
        "bytes": 7,
        "sha256": hashlib.sha256(b"content").hexdigest(),
    }


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_text("some lines\n" * 100)
    return path


def test_a_corpus_in_the_folder_is_replaced(text, tmp_path):
    for content in ("some lines\n" * 100, "other lines\n" * 50):
        text.write_text(content)
        corpus = prepare_corpus(text, tmp_path / "corpus", validation_fraction=0.5)
        assert corpus.manifest["source"] == fingerprint(text)
        assert len(corpus.train) + len(corpus.valid) == len(content)


def test_a_text_that_changes_while_it_is_read_is_refused(text, tmp_path, monkeypatch):
    original = CharVocabulary.fit

    def fit(chunks, **options):
        vocabulary = original(chunks, **options)
        text.write_text("other lines\n" + "some lines\n" * 98 + "some line\n")
        return vocabulary

    monkeypatch.setattr(CharVocabulary, "fit", fit)
    with pytest.raises(ValueError, match="text: changed while it was read: try again"):
        prepare_corpus(text, tmp_path / "corpus")
    assert list((tmp_path / "corpus").iterdir()) == []


def test_a_corpus_cut_off_while_written_is_no_corpus(text, tmp_path, monkeypatch):
    prepare_corpus(text, tmp_path / "corpus")

    original = corpus_module._write_tokens

    def full_at_the_second(*arguments, **options):
        if arguments[2] == "valid":
            raise OSError(28, "No space left on device")
        return original(*arguments, **options)

    monkeypatch.setattr(corpus_module, "_write_tokens", full_at_the_second)
    with pytest.raises(OSError, match="No space"):
        prepare_corpus(text, tmp_path / "corpus", level="byte")
    assert list((tmp_path / "corpus").iterdir()) == []  # a full disk does not stay full
    with pytest.raises(FileNotFoundError, match="no prepared corpus"):
        open_corpus(tmp_path / "corpus")


def test_a_text_that_cannot_be_read_leaves_an_older_corpus_alone(text, tmp_path):
    prepare_corpus(text, tmp_path / "corpus")
    text.write_bytes(b"fine\n" * 10 + b"\xff\n" + b"fine\n" * 10)
    with pytest.raises(ValueError, match=r"text: invalid UTF-8 at byte 50 \(line 11\)"):
        prepare_corpus(text, tmp_path / "corpus")
    assert len(open_corpus(tmp_path / "corpus").train)


TEXT = {"characters": 7, "bytes": 7}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 5}, "newer"),
        ({"format": 0}, "damaged"),
        ({"arrays": {"train.tokens": {"dtype": "<f8", "shape": [7]}}}, r"train\.tokens: damaged"),
        ({"arrays": {"train.tokens": {"dtype": "|O", "shape": [7]}}}, r"train\.tokens: damaged"),
        ({"arrays": {"train.tokens": {"dtype": "|u1", "shape": [-7]}}}, "damaged"),
        ({"arrays": []}, "damaged"),
        ({"train": {"elements": -1, "lines": 0, "unknown": 0, **TEXT}}, "damaged"),
        ({"train": {"elements": "7", "lines": 0, "unknown": 0, **TEXT}}, "damaged"),
        ({"train": None}, "damaged"),
        (
            {"train": {"elements": 7, "lines": 0, "unknown": 0, **TEXT}},
            r"train\.tokens: damaged \(expected \(7,\)",
        ),
        ({"options": {"reading": "lines", "level": "char"}}, "train.lines"),
        ({"options": {"reading": "stream", "level": "word"}}, "damaged"),
        ({"options": []}, "damaged"),
    ],
)
def test_a_changed_manifest_is_refused(text, tmp_path, change, message):
    prepare_corpus(text, tmp_path / "corpus")
    path = tmp_path / "corpus" / "corpus.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        open_corpus(tmp_path / "corpus")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "byte", "vocabulary_size": 99}, "level byte always has its 256 symbols"),
        ({"tokenizer": "tokenizer.json"}, "tokenizer requires level='bpe', got level='char'"),
        ({"vocabulary": ByteVocabulary()}, "vocabulary: expected one of level char, .* got level byte without <eos>"),
        ({"vocabulary": CharVocabulary("ab"), "reading": "lines"}, "reading 'lines', got level char without <eos>"),
    ],
)
def test_options_out_of_range_are_refused(text, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        prepare_corpus(text, tmp_path / "corpus", **options)
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "got an empty file"),
        (gzip.compress(b"words\n" * 20, mtime=0), "compressed by gzip: unpack it"),
        (b"\x7fELF\0\0" * 20, r"binary, not text: NUL byte at byte 4 \(line 1\).*level=.byte."),
        (b"one line", "at least two lines"),
        (b"ab\ncd\xe9\nef\n", r"invalid UTF-8 at byte 5 \(line 2\).*level=.byte."),
    ],
)
def test_a_file_that_is_no_corpus_is_refused_in_one_line(tmp_path, content, message):
    (tmp_path / "data").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        prepare_corpus(tmp_path / "data", tmp_path / "corpus", reading="lines", validation_fraction=0.1)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "corpus").exists()


def test_any_file_is_a_corpus_of_bytes(tmp_path):
    raw = np.random.default_rng(0).integers(0, 256, 3_000_000, dtype=np.uint8).tobytes()
    (tmp_path / "data").write_bytes(raw)
    corpus = prepare_corpus(tmp_path / "data", tmp_path / "corpus", level="byte")
    ids = np.concatenate([part.slice(0, len(part)) for part in (corpus.train, corpus.valid)])
    assert ids.astype(np.uint8).tobytes() == raw


def test_missing_files_and_directories_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: no such file"):
        prepare_corpus(tmp_path / "nowhere", tmp_path / "corpus")
    with pytest.raises(ValueError, match="got a directory"):
        prepare_corpus(tmp_path, tmp_path / "corpus")
    with pytest.raises(ValueError, match="regular file"):
        prepare_corpus("/dev/null", tmp_path / "corpus")


def test_progress_is_told_in_bytes_of_each_stage(text, tmp_path):
    told = {}
    prepare_corpus(text, tmp_path / "corpus", progress=lambda *stage: told.update({stage[0]: stage[1:]}))
    assert list(told) == ["vocabulary", "fingerprint", "train symbols", "valid symbols"]
    assert all(done == total for done, total in told.values())


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 10**6)])
def test_a_slice_that_is_not_there_is_refused(text, tmp_path, start, stop):
    corpus = prepare_corpus(text, tmp_path / "corpus")
    with pytest.raises(ValueError, match="slice: expected 0 <= start <= stop"):
        corpus.train.slice(start, stop)


def test_lines_cannot_be_asked_of_a_stream(text, tmp_path):
    with pytest.raises(ValueError, match="reading='lines'"):
        prepare_corpus(text, tmp_path / "corpus").train.line_bounds(np.array([0]))
