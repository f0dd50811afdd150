"""A file is closed as soon as reading it fails, not when the exception, whose traceback knows the readers, is gone."""

import gc
import io
from contextlib import suppress
from pathlib import Path

import pytest

from chainrule._blocks import in_blocks
from chainrule.data import CharVocabulary, prepare_corpus, prepare_table
from chainrule.data._captions import read_captions
from chainrule.data._delimited import DelimitedFile
from chainrule.data._tables import table_file

ROWS = "a,b\n" + "1,2\n3,4\n" * 200


def open_files(path: Path) -> list[io.FileIO]:
    return [
        file for file in gc.get_objects() if type(file) is io.FileIO and not file.closed and str(file.name) == str(path)
    ]


def test_a_table_with_a_bad_row(tmp_path, monkeypatch):
    monkeypatch.setattr(table_file, "reads_quickly", lambda: False)
    path = tmp_path / "rows.csv"
    path.write_text(f"{ROWS}1,2,3\n{ROWS}")
    with pytest.raises(ValueError, match="line 402: expected 2 cells, got 3") as caught:
        prepare_table(path, tmp_path / "table")
    assert caught.tb
    assert not open_files(path)


def test_a_refused_table_leaves_nothing_to_the_garbage_collector(tmp_path, monkeypatch):
    """The exception of reading ahead and the frame that waited for it kept each other, and all readers, alive."""
    monkeypatch.setattr(table_file, "reads_quickly", lambda: False)
    path = tmp_path / "rows.csv"
    path.write_text(f"{ROWS}1,2,3\n")
    gc.disable()
    try:
        with suppress(ValueError):
            prepare_table(path, tmp_path / "table")
        left = [found for found in gc.get_objects() if type(found) is ValueError and str(path) in str(found)]
    finally:
        gc.enable()
    assert not left


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
