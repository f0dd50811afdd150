"""Word vectors are read from files of GloVe and word2vec, of any length, and hostile files end in one line."""

import gzip
import tracemalloc

import numpy as np
import pytest

from chainrule_app.readers.word_vectors import read_vectors, vector_size

LINES = ["the 0.1 0.2 0.3", "Dog 1 2 3", "dog 4 5 6", "CAT 7 8 9", ". . . -1 -2 -3", "naïve 1e-3 2 3"]


def write(path, lines):
    path.write_bytes(("\n".join(lines) + "\n").encode())
    return path


def test_exact_spelling_goes_before_another_case(tmp_path):
    words = ["dog", "cat", "bird", "naïve", ". . .", "the"]
    for lines in (LINES, LINES[::-1], ["6 3", *LINES]):
        found = read_vectors(write(tmp_path / "v.txt", lines), words)
        assert found.rows.tolist() == [1, 2, 4, 5, 6]
        expected = [[4, 5, 6], [7, 8, 9], [1e-3, 2, 3], [-1, -2, -3], [0.1, 0.2, 0.3]]
        np.testing.assert_array_equal(found.vectors, np.array(expected, np.float32))


def test_compressed_and_tabbed_files_are_read(tmp_path):
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
    assert vector_size(tmp_path / "v.txt.gz") == 3
    assert read_vectors(tmp_path / "v.txt.gz", ["dog"]).vectors.tolist() == [[4, 5, 6]]
    tabbed = write(tmp_path / "t.txt", ["dog\t4\t5\t6", "a cat\t1\t2\t3"])
    assert read_vectors(tabbed, ["a cat", "dog"]).vectors.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected words and their vectors, got an empty file|are the vectors for another"),
        (b"the\n", "line 1: expected a word and from 2 to 4,096 numbers, got 0"),
        (b"the 1 2 x\n", "line 1: expected a word and finite numbers"),
        (b"the 1 2 nan\n", "line 1: expected a word and finite numbers"),
        (b"the 1 2 3\ndog 1 2\n", "line 2: expected a word and 3 numbers, got 2"),
        (b"the 1 2 3\ndog 1 2 1e999\n", "line 2: expected a word and finite numbers"),
        (b"3000000 300\ndog " + bytes(range(128, 256)) * 10, "not in the binary format of word2vec"),
        (b"the " + b"1 " * 5000 + b"\n", "expected a word and from 2 to 4,096 numbers, got 5,000"),
        (b"cat 1 2\n", "are the vectors for another language"),
    ],
)
def test_hostile_files_end_in_one_line(tmp_path, content, message):
    (tmp_path / "v.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_vectors(tmp_path / "v.txt", ["the", "dog"])
    if not content:
        with pytest.raises(ValueError, match="got an empty file"):
            vector_size(tmp_path / "v.txt")


def test_memory_is_bounded_by_the_words_asked_for(tmp_path):
    vector = " ".join(["0.25"] * 50)
    write(tmp_path / "v.txt", [f"word{number} {vector}" for number in range(8_000)])
    tracemalloc.start()
    found = read_vectors(tmp_path / "v.txt", ["word7", "word7999"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.rows) == 2
    assert peak < 1 << 20
