"""Several files are read in turn, without a copy of them, and an error names the file and the line that it is in."""

import gzip
import io
import json
import sys
import tempfile

import numpy as np
import polars
import pytest

import chainrule
from chainrule_app.readers import files_in_turn
from chainrule_app.readers.files_in_turn import Spool
from chainrule_app.readers.gather import gathered
from chainrule_app.readers.labelled.labelled_file import LabelledFile
from chainrule_app.readers.origin import Origin
from chainrule_app.readers.pairs import read_pairs
from chainrule_app.readers.tables.prepare import prepare_table
from chainrule_app.readers.tables.table_file import TableFile
from chainrule_app.readers.tagged.conll_file import read_conll

ROWS = [[f"{'ab'[number % 2]}", f"{number % 7}"] for number in range(40)]


def table(path, rows):
    path.write_text("".join(",".join(row) + "\n" for row in [["kind", "n"], *rows]))
    return path


def records(path, rows):
    path.write_text("".join(json.dumps({"kind": kind, "n": int(n)}) + "\n" for kind, n in rows))
    return path


def parquet(path, rows):
    polars.DataFrame({"kind": [kind for kind, _ in rows], "n": [int(n) for _, n in rows]}).write_parquet(path)
    return path


def source_of(*paths):
    return " ".join(map(str, paths))


@pytest.mark.parametrize(
    ("write", "ending", "line"), [(table, "csv", 5), (records, "jsonl", 4), (parquet, "parquet", 4)]
)
def test_a_cell_of_the_second_table_is_named_by_its_own_line(tmp_path, write, ending, line):
    first, second = write(tmp_path / f"a.{ending}", ROWS[:30]), write(tmp_path / f"b.{ending}", ROWS[30:])
    whole = table(tmp_path / "whole.csv", ROWS)
    prepared = [
        prepare_table(source, tmp_path / f"table{index}")
        for index, source in enumerate([str(whole), gathered(source_of(first, second), "rows")])
    ]
    assert prepared[0].schema == prepared[1].schema
    assert np.array_equal(prepared[0].train, prepared[1].train)
    bad = write(tmp_path / f"c.{ending}", [*ROWS[:3], ["a", "-5"], *ROWS[4:9]])
    with pytest.raises(ValueError, match=rf"c\.{ending} line {line}, column 'n': expected an integer >= 0"):
        list(prepared[0].schema.encoded(gathered(source_of(first, bad), "rows")))


def test_a_row_of_the_second_table_is_named_by_its_own_line(tmp_path):
    first = table(tmp_path / "a.csv", ROWS)
    second = table(tmp_path / "b.csv", [["a", "1"], ["a", "1", "2"]])
    with pytest.raises(ValueError, match=r"b\.csv line 3: expected 2 cells, got 3"):
        list(TableFile(gathered(source_of(first, second), "rows")).rows())
    with pytest.raises(ValueError, match=r"b\.csv line 3: expected 2 columns as in the first row, got 3"):
        list(LabelledFile(gathered(source_of(first, second), "labelled"), text_column="kind", label_column="n"))
    (tmp_path / "c.csv").write_text("kind,m\na,1\n")
    with pytest.raises(ValueError, match=r"c\.csv: expected the header of .*a\.csv"):
        TableFile(gathered(source_of(first, tmp_path / "c.csv"), "rows"))


def test_lines_of_the_second_file_are_named(tmp_path):
    (tmp_path / "a.tsv").write_text("one\teins\ntwo\tzwei")
    (tmp_path / "b.tsv").write_text("three\tdrei\nfour\n")
    source = source_of(tmp_path / "a.tsv", tmp_path / "b.tsv")
    with pytest.raises(ValueError, match=r"b\.tsv line 2: expected a source, a tab and a target"):
        list(read_pairs(gathered(source, "pairs")))
    (tmp_path / "b.tsv").write_text("three\tX\nfour\n")
    with pytest.raises(ValueError, match=r"b\.tsv line 2: expected 2 columns"):
        read_conll(gathered(source, "tags"))
    (tmp_path / "b.tsv").write_bytes(b"three\tX\n\xff\tX\n")
    with pytest.raises(ValueError, match=r"b\.tsv line 2: expected UTF-8"):
        read_conll(gathered(source, "tags"))


def test_records_of_the_second_file_are_named(tmp_path):
    for name, last in (("a", "zwei"), ("b", 7)):
        rows = [{"source": "one", "target": "eins"}, {"source": "two", "target": last}]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = source_of(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    with pytest.raises(ValueError, match=r"b\.jsonl record 2: expected a text under 'target', got 7"):
        list(read_pairs(gathered(source, "pairs", chainrule_keys("source", "target"))))


def chainrule_keys(source, target):
    from chainrule_app.readers.record_keys import Keys

    return Keys(source=source, target=target)


@pytest.mark.parametrize("held", [1 << 26, 10])
def test_a_spool_is_read_again_and_again(monkeypatch, held):
    monkeypatch.setattr(files_in_turn, "_HELD", held)
    chunks = [b"12345", b"67", b"89012", b"3"]
    spool = Spool(Origin("standard input"), iter(chunks), "standard-input")
    first, second = spool.open(), spool.open()
    assert first.read(3) + second.read() + first.read() == b"123" + b"".join(chunks) + b"".join(chunks)[3:]
    assert spool.fingerprint() == Spool(Origin("x"), [b"".join(chunks)], "standard-input").fingerprint()
    first.close()
    second.close()


def written(folder, kind):
    """Data that are no single plain file, and the task that reads them."""
    text = [f"line {number} of {number % 5}\n" for number in range(40)]
    pairs = [{"source": f"a {number % 5}", "target": f"b {number % 5}"} for number in range(40)]
    words = [{"tokens": ["a", "b"], "tags": ["X", "YZ"[number % 2]]} for number in range(40)]
    if kind == "two texts":
        (folder / "a.txt").write_text("".join(text[:20]))
        (folder / "b.txt").write_text("".join(text[20:]))
        return source_of(folder / "a.txt", folder / "b.txt"), "text"
    if kind == "a compressed text":
        (folder / "a.txt.gz").write_bytes(gzip.compress("".join(text).encode()))
        return str(folder / "a.txt.gz"), "text"
    if kind == "records of texts":
        (folder / "a.jsonl").write_text("".join(json.dumps({"text": line[:-1]}) + "\n" for line in text))
        return str(folder / "a.jsonl"), "text"
    if kind == "standard input":
        return "-", "table"
    if kind == "two tables":
        return source_of(table(folder / "a.csv", ROWS[:20]), table(folder / "b.csv", ROWS[20:])), "table"
    if kind == "an array":
        np.save(folder / "a.npy", np.random.default_rng(0).integers(0, 4, (40, 3)))
        return str(folder / "a.npy"), "table"
    rows, task = (pairs, "translate") if kind == "records of pairs" else (words, "tag")
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / "a.jsonl"), task


@pytest.mark.parametrize(
    "kind",
    ["two texts", "a compressed text", "records of texts", "standard input", "two tables", "an array",
     "records of pairs", "records of sentences"],
)  # fmt: skip
def test_no_source_is_copied_to_a_file(tmp_path, monkeypatch, kind):
    """Standard input, several files, records and arrays became one temporary file, and errors named it."""
    source, task = written(tmp_path, kind)
    content = table(tmp_path / "rows.csv", ROWS).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    def refuse(*arguments, **keywords):
        raise AssertionError("no temporary file is needed")

    for name in ("mkdtemp", "mkstemp", "TemporaryFile", "NamedTemporaryFile", "TemporaryDirectory"):
        monkeypatch.setattr(tempfile, name, refuse)
    monkeypatch.setattr(files_in_turn, "NamedTemporaryFile", refuse)
    size = {} if task == "translate" else {"hidden_size": 4}
    run = chainrule.fit(source, task=task, steps=1, threads=1, precision="float32", out=tmp_path / "run", **size)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    getattr(run, "evaluate" if task in ("translate", "tag") else "score")(source)
