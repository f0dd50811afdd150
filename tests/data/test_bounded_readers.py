"""Small files that unpack or parse to gigabytes end in one line, not in the memory that they would take."""

import gzip
import json
import os

import pytest

from chainrule.data import _atomic as atomic
from chainrule.data import _delimited as delimited
from chainrule.data import _text as text
from chainrule.data import read_lines
from chainrule.data._atomic import parse_json, read_json, write_json
from chainrule.data._delimited import DelimitedFile
from chainrule.data._series import series_file
from chainrule.data._series.series_file import read_series
from chainrule.data._tables import table_file
from chainrule.data._tables.table_file import TableFile
from chainrule.data._tagged import conll_file
from chainrule.data._tagged.conll_file import read_conll


def test_empty_lines_without_end_are_refused(tmp_path, monkeypatch):
    """A gzip of newlines was read for minutes before anything was said."""
    monkeypatch.setattr(delimited, "MOST_EMPTY", 100)
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"\n" * 100_000))
    with pytest.raises(ValueError, match="line 101: 100 empty lines in a row"):
        TableFile(path)
    path.write_bytes(gzip.compress(b"".join(b"\n" * 100 + row for row in (b"a,b\n", b"1,2\n", b"3,4\n"))))
    assert TableFile(path).names == ["a", "b"]


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
    with pytest.raises(ValueError, match="line 1: expected at most 4,096 columns, got 20,000"):
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


def test_empty_rows_without_end_are_refused(tmp_path, monkeypatch):
    """They were held in memory, to be given back before a row that might follow."""
    monkeypatch.setattr(table_file, "MOST_EMPTY", 100)
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n" + b",\n" * 101))
    file = TableFile(path)
    for read in (file.rows, file.blocks):
        with pytest.raises(ValueError, match="100 rows of empty cells"):
            list(read())
    path.write_bytes(gzip.compress(b"a,b\n" + (b"1,2\n" + b",\n" * 100) * 3))
    assert sum(map(len, TableFile(path).blocks())) == len(list(TableFile(path).rows())) == 203


def test_rows_of_long_cells_are_read_in_small_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(table_file, "_CHARACTERS", 1000)
    path = tmp_path / "rows.csv"
    path.write_text("text\n" + f"{'x' * 400}\n" * 10)
    assert [len(block) for block in TableFile(path, header=True).blocks()] == [3, 3, 3, 1]


def test_parquet_that_announces_more_than_it_can_hold_is_refused(tmp_path):
    polars = pytest.importorskip("polars")
    path = tmp_path / "rows.parquet"
    polars.DataFrame({"a": polars.repeat(1, 1 << 25, eager=True)}).write_parquet(path)
    with pytest.raises(ValueError, match="announces 33,554,432 rows in"):
        TableFile(path)
    polars.DataFrame({"a": ["x" * (1 << 22), "x" * ((1 << 22) + 1)]}).write_parquet(path)
    rows = TableFile(path).rows()
    next(rows)
    with pytest.raises(ValueError, match="row 2: expected at most 4,194,304 characters in a cell"):
        next(rows)


def test_rows_of_long_cells_of_parquet_are_read_a_few_at_a_time(tmp_path, monkeypatch):
    """5,000 cells of a megabyte, packed into 10 kB, took 10 GB."""
    polars = pytest.importorskip("polars")
    path = tmp_path / "rows.parquet"
    texts = [f"{row} " + "x" * 10_000 * (row > 300) for row in range(2000)]
    polars.DataFrame({"a": texts, "b": range(2000)}).write_parquet(path)
    monkeypatch.setattr(table_file, "_PARQUET_BYTES", 100_000)
    collect, sizes = TableFile._unpacked, []
    monkeypatch.setattr(TableFile, "_unpacked", lambda file, frame: sizes.append(collect(file, frame)) or sizes[-1])
    assert [cells for _, cells in TableFile(path).rows()] == [
        [text.strip(), str(row)] for row, text in enumerate(texts)
    ]
    assert max(len(frame) for frame in sizes[1:]) <= 256
    assert max(len(frame) for frame in sizes[-100:]) <= 10
    monkeypatch.setattr(table_file, "_MOST_EQUAL_CHARACTERS", 1_000_000)
    with pytest.raises(ValueError, match=r"characters in [0-9,]+ bytes, so that nearly all are repeated"):
        list(TableFile(path).rows())


def test_files_held_in_memory_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(conll_file, "_MOST_LINES", 10)
    monkeypatch.setattr(series_file, "MOST_CELLS", 20)
    path = tmp_path / "rows.tsv"
    path.write_text("a\tX\n" * 11)
    with pytest.raises(ValueError, match="at most 10 lines"):
        read_conll(path)
    path.write_text("a\tb\n" + "1\t2\n" * 11)
    with pytest.raises(ValueError, match="at most 20 cells"):
        read_series(path, "a")
