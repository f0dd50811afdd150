"""Small files that unpack or parse to gigabytes end in one line, not in the memory that they would take."""

import gzip
import json
import os

import pytest

from chainrule.data import atomic, delimited, text
from chainrule.data.atomic import parse_json, read_json, write_json
from chainrule.data.delimited import DelimitedFile
from chainrule.data.tables.table_file import TableFile
from chainrule.data.text import read_lines


def test_empty_lines_without_end_are_refused(tmp_path, monkeypatch):
    """A gzip of newlines was read for minutes before anything was said."""
    monkeypatch.setattr(delimited, "_MOST_EMPTY", 100)
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"\n" * 100_000))
    with pytest.raises(ValueError, match="line 101: 100 empty lines in a row"):
        TableFile(path)
    path.write_bytes(gzip.compress((b"\n" * 100 + b"a,b\n") * 3))
    assert len(TableFile(path).names) == 2


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "LONGEST_LINE", 1000)
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\n" + b"x" * 1001)
    for read in (lambda: list(DelimitedFile(path).lines()), lambda: list(read_lines(path))):
        with pytest.raises(ValueError, match="line 2: expected at most"):
            read()


def test_too_many_columns_are_refused_at_once(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text((",".join(map(str, range(20_000))) + "\n") * 3)
    with pytest.raises(ValueError, match="line 1: expected at most 16,384 columns, got 20,000"):
        TableFile(path)


def test_json_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_LONGEST_JSON", 100)
    monkeypatch.setattr(atomic, "_MOST_BRACKETS", 10)
    for content in (b"[" * 11, b'"' + b"a" * 100 + b'"', b"[" * 9):
        with pytest.raises(ValueError):
            parse_json(content)
    with pytest.raises(ValueError, match=r"words\.json: expected at most"):
        write_json(tmp_path / "words.json", {"words": ["a" * 100]})
    assert parse_json(json.dumps({"a": [1]}).encode()) == {"a": [1]}


def test_a_pipe_is_no_json(tmp_path):
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(ValueError, match="device or pipe"):
        read_json(tmp_path / "a.json")
