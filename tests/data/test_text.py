import io
import os
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule_app.readers.corpus import split_position
from chainrule_app.readers.delimited import DelimitedFile
from chainrule_app.readers.members import Members
from chainrule_app.readers.sources import Pass, check_file, decode_chunks, open_source
from chainrule_app.readers.text import read_lines, read_text


def chunked(raw: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]
    return [raw[a:b] for a, b in pairwise(edges)]


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0")) | st.text(alphabet="é科𝄞\r\n\u2028\x85")


@given(texts, st.lists(st.integers(0)))
def test_text_is_exact_wherever_chunks_are_cut(text, cuts):
    assert "".join(decode_chunks(chunked(text.encode(), cuts), name="x")) == text.removeprefix("\ufeff")


@given(st.binary(), st.lists(st.integers(0)))
def test_any_bytes_pass_where_not_strict_wherever_chunks_are_cut(raw, cuts):
    text = "".join(decode_chunks(chunked(raw, cuts), name="x", strict=False))
    assert text.encode("utf-8", "surrogateescape") == raw


@given(st.binary(min_size=1).filter(lambda raw: b"\0" not in raw), st.lists(st.integers(0)))
def test_an_error_tells_byte_and_line_wherever_chunks_are_cut(raw, cuts):
    raw = b"a\n" + raw
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        with pytest.raises(ValueError, match=rf"^x: invalid UTF-8 at byte {error.start} \(line {line}\).*level=.byte."):
            list(decode_chunks(chunked(raw, cuts), name="x"))


def test_a_nul_byte_means_binary_and_is_located(tmp_path):
    path = tmp_path / "program"
    path.write_bytes(b"ab\ncd\0ef")
    with pytest.raises(ValueError, match=r"program: binary, not text: NUL byte at byte 5 \(line 2\).*level=.byte."):
        list(read_text(path))
    with pytest.raises(ValueError, match=r"NUL byte at byte 5 \(line 2\)"):
        list(read_lines(path))
    assert list(read_lines(path, strict=False)) == [(1, "ab"), (2, "cd\0ef")]


def test_utf16_is_recognised(tmp_path):
    (tmp_path / "wide").write_bytes("text".encode("utf-16"))
    with pytest.raises(ValueError, match="UTF-16"):
        list(read_text(tmp_path / "wide"))


def test_lines_end_at_newlines_only_and_are_numbered(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes("a\r\n\nb\u2028c\x0cd\r\nend".encode())
    assert list(read_lines(path)) == [(1, "a\r"), (2, ""), (3, "b\u2028c\x0cd\r"), (4, "end")]


@pytest.mark.parametrize("raw", ["é\nb\n", "é\rb\r", "\ufeffé\nb\n", "\ufeffé\rb\r"])
def test_lines_may_end_in_carriage_returns_and_begin_with_a_byte_order_mark(tmp_path, raw):
    path = tmp_path / "a.txt"
    path.write_bytes(raw.encode())
    assert "".join(read_text(path)) == "é\nb\n"
    assert list(DelimitedFile(path).lines()) == list(read_lines(path)) == [(1, "é"), (2, "b")]
    source = open_source(path)
    with source.open() as file:
        cut, reading = split_position(source, file, 0.5, at_line_end=True), Pass(source, file)
        assert ["".join(reading.text(stop)) for stop in (cut, source.size)] == ["é\n", "b\n"]
    assert "".join(read_text(path, strict=False)) == raw  # bytes are bytes


def test_an_invalid_line_is_located_in_the_whole_file(tmp_path):
    (tmp_path / "lines").write_bytes(b"fine\nab\xffcd\n")
    lines = read_lines(tmp_path / "lines")
    assert next(lines) == (1, "fine")
    with pytest.raises(ValueError, match=r"byte 7 \(line 2\)"):
        next(lines)


def test_lines_of_standard_input_come_as_soon_as_they_are_there():
    code = "from chainrule_app import read_lines\nfor n, line in read_lines('-'): print(n, line, flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        for number in (1, 2):  # the answer to each line comes before the next is written
            child.stdin.write(b"line\n")
            child.stdin.flush()
            assert child.stdout.readline() == f"{number} line{os.linesep}".encode()


def test_standard_input_is_named_in_errors(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    with pytest.raises(ValueError, match=r"^standard input: invalid UTF-8 at byte 0"):
        list(read_text("-"))


def test_missing_files_and_directories_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere: no such file"):
        list(read_text(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="got a directory"):
        list(read_lines(tmp_path))


def test_standard_input_is_no_missing_file_where_only_files_are_read(tmp_path, monkeypatch):
    """A dash was called a file that is not there."""
    monkeypatch.chdir(tmp_path)
    for read in (check_file, lambda path: Members(path, (".wav",), "sound")):
        with pytest.raises(ValueError, match=r"^-: expected a file, got standard input, .*write it to a file"):
            read("-")
    (tmp_path / "-").write_text("a file of that name")
    assert check_file("-").samefile(tmp_path / "-")
