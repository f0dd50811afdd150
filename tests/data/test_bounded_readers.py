"""Files are closed, and large ones take little memory."""

import gc
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import polars
import pytest

from chainrule import files as atomic
from chainrule.data import CharVocabulary
from chainrule.files import parse_json, read_json, write_json
from chainrule_app.blocks import in_blocks
from chainrule_app.readers import csv_records, delimited, records
from chainrule_app.readers import gather as gather
from chainrule_app.readers import text as text
from chainrule_app.readers.captions import read_captions
from chainrule_app.readers.corpus import prepare_corpus
from chainrule_app.readers.delimited import DelimitedFile
from chainrule_app.readers.series import cells
from chainrule_app.readers.series.series_file import read_series
from chainrule_app.readers.tables.prepare import prepare_table
from chainrule_app.readers.tables.table_file import TableFile
from chainrule_app.readers.tagged import conll_file
from chainrule_app.readers.tagged.conll_file import read_conll
from chainrule_app.readers.text import read_lines


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "LONGEST_LINE", 1000)
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\n" + b"x" * 1001)
    for read in (lambda: list(DelimitedFile(path).lines()), lambda: list(read_lines(path))):
        with pytest.raises(ValueError, match="line 2: longer than"):
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


def test_rows_of_long_cells_are_read_in_small_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_records, "STRETCH", 1000)
    monkeypatch.setattr(delimited, "_BEGINNING", 1000)
    path = tmp_path / "rows.csv"
    path.write_text("text\n" + f"{'x' * 400}\n" * 10)
    assert [len(block) for block in TableFile(path, header=True).blocks()] == [4, 3, 3]


def test_parquet_that_announces_more_than_it_can_hold_is_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    polars.DataFrame({"a": polars.repeat(1, 1 << 25, eager=True)}).write_parquet(path)
    with pytest.raises(ValueError, match="claims 33,554,432 rows in"):
        next(TableFile(path).rows())


def test_parquet_at_which_polars_panics_is_refused_in_one_line(tmp_path, monkeypatch):
    def collect(frame):
        raise polars.exceptions.PanicException("range end index 9 out of range")

    path = tmp_path / "rows.parquet"
    polars.DataFrame({"a": [1, 2]}).write_parquet(path)
    monkeypatch.setattr(polars.LazyFrame, "collect", collect)
    with pytest.raises(ValueError, match=r"rows\.parquet: expected a Parquet file \(range end"):
        next(TableFile(path).rows())


def test_rows_of_long_cells_of_parquet_are_read_a_few_at_a_time(tmp_path, monkeypatch):
    """5,000 cells of a megabyte, packed into 10 kB, took 10 GB."""
    path = tmp_path / "rows.parquet"
    texts = [f"{row} " + "x" * 10_000 * (row > 300) for row in range(2000)]
    polars.DataFrame({"a": texts, "b": range(2000)}).write_parquet(path)
    monkeypatch.setattr(records, "_FRAME_BYTES", 100_000)
    collect, sizes = polars.LazyFrame.collect, []
    monkeypatch.setattr(polars.LazyFrame, "collect", lambda frame: sizes.append(collect(frame)) or sizes[-1])
    assert [cells for _, cells in TableFile(path).rows()] == [[text, str(row)] for row, text in enumerate(texts)]
    assert max(len(frame) for frame in sizes) <= 256
    assert max(len(frame) for frame in sizes[-100:]) <= 10


def test_files_held_in_memory_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(conll_file, "_MOST_LINES", 10)
    monkeypatch.setattr(cells, "MOST_CELLS", 20)
    path = tmp_path / "rows.tsv"
    path.write_text("a\tX\n" * 11)
    with pytest.raises(ValueError, match="at most 10 lines"):
        read_conll(path)
    path.write_text("a\tb\n" + "1\t2\n" * 11)
    with pytest.raises(ValueError, match="at most 20 cells"):
        read_series(path, "a")


pytest.importorskip("resource")

MEASURE = """
import resource, sys
from chainrule.data import LineBatches, StreamBatches
from chainrule_app.readers.corpus import prepare_corpus

def peak():  # MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)

source, directory, level, reading = sys.argv[1:]
before = peak()
corpus = prepare_corpus(source, directory, level=level, reading=reading)
batches = StreamBatches(corpus.train, 64, 64) if reading == "stream" else LineBatches(corpus.train, 64, 200)
for step in range(0, batches.steps_per_epoch, batches.steps_per_epoch // 50):
    batches.at(step)
print(peak() - before)
"""


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A text of 120 MB in lines of unequal length."""
    path = tmp_path_factory.mktemp("big") / "text"
    block = "".join(f"line {i} " + "of words " * (i % 17) + "é\n" for i in range(12_000)).encode()
    with open(path, "wb") as file:
        file.writelines([block] * (120_000_000 // len(block)))
    yield path
    path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize(("level", "reading"), [("char", "stream"), ("byte", "lines")])
def test_memory_does_not_grow_with_the_text(big, tmp_path, level, reading):
    command = [sys.executable, "-c", MEASURE, str(big), str(tmp_path / "corpus"), level, reading]
    growth = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    (tmp_path / "corpus" / "train.tokens").unlink()
    # measured 40 to 70 MB for texts of 120 and 300 MB alike: working arrays of one chunk of 1 MB, and mapped pages
    assert growth < 100


ROWS = "a,b\n" + "1,2\n3,4\n" * 200


def open_files(path: Path) -> list[io.FileIO]:
    return [
        file for file in gc.get_objects() if type(file) is io.FileIO and not file.closed and str(file.name) == str(path)
    ]


def test_a_table_with_a_bad_row(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(f"{ROWS}1,2,3\n{ROWS}")
    with pytest.raises(ValueError, match="line 402: expected 2 cells, got 3") as caught:
        prepare_table(path, tmp_path / "table")
    assert caught.tb
    assert not open_files(path)


def test_captions_with_a_bad_line(tmp_path):
    path = tmp_path / "captions.txt"
    path.write_text("a.jpg\ta dog\nb.jpg\n" + "c.jpg\ta cat\n" * 9)
    with pytest.raises(ValueError, match="line 2: expected a name, a tab") as caught:
        list(read_captions(path))
    assert caught.tb
    assert not open_files(path)


@pytest.mark.parametrize("failing", ["fit", "encode"])
def test_a_text_whose_symbols_cannot_be_made(tmp_path, monkeypatch, failing):
    def fail(first, *args, **options):
        if failing == "fit":
            next(first)
        raise ValueError("no symbols")

    path = tmp_path / "text.txt"
    path.write_text("one line\n" * 300_000)
    monkeypatch.setattr(CharVocabulary, failing, fail)
    with pytest.raises(ValueError, match="no symbols") as caught:
        prepare_corpus(path, tmp_path / "corpus", level="char")
    assert caught.tb
    assert not open_files(path)


def test_rows_in_blocks_are_closed_with_their_reader(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)

    def read(rows):
        for block in in_blocks(rows, 3):
            raise ValueError(block[0][1])

    with pytest.raises(ValueError, match="a,b") as caught:
        read(DelimitedFile(path).lines())
    assert caught.tb
    assert not open_files(path)
