"""Every verb reads what `train` reads: compressed files, several files, records and standard input."""

import csv
import gzip
import io
import json
import random
import sys

import pytest
from small_data import WRITERS, written

import chainrule

VERBS = {
    "text": ("score",),
    "table": ("score",),
    "tag": ("tag", "evaluate"),
    "classify": ("classify", "evaluate"),
    "translate": ("translate", "evaluate"),
    "forecast": ("forecast", "evaluate"),
}
FLAGS = {"forecast": ("--seed", 1, "--paths", 4), "text": ("--sort", "--json")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small run of each task, and its data."""
    made = {}

    def get(task):
        if task not in made:
            folder = tmp_path_factory.mktemp(task)
            source, *flags = WRITERS[task](folder)
            made[task] = (source, train(folder, source, flags))
        return made[task]

    return get


def train(folder, source, flags):
    from chainrule_app.cli.main import main

    words = ["train", source, *flags, "--steps", 1, "--out", folder / "run"]
    assert main([str(word) for word in words]) == 0
    return folder / "run"


def records(task, source):
    """The same data as JSON records."""
    lines = source.read_text().splitlines()
    if task == "text":
        return [{"text": line} for line in lines]
    if task in ("table", "forecast"):
        return list(csv.DictReader(lines))
    if task == "classify":
        return [dict(zip(("label", "text"), line.split("\t"), strict=True)) for line in lines]
    if task == "translate":
        return [{"translation": dict(zip(("en", "de"), line.split("\t"), strict=True))} for line in lines]
    sentences = [part.split("\n") for part in "\n".join(lines).strip().split("\n\n")]
    return [dict(zip(("tokens", "tags"), zip(*map(str.split, rows), strict=True), strict=True)) for rows in sentences]


@pytest.mark.parametrize(("task", "verb"), [(task, verb) for task, verbs in VERBS.items() for verb in verbs])
def test_verbs_read_compressed_files_records_and_standard_input(ok, trained, tmp_path, monkeypatch, task, verb):
    zstandard = pytest.importorskip("zstandard")
    source, run = trained(task)
    raw, name = source.read_bytes(), source.name
    count = {"text": -1, "table": -1, "translate": 6}.get(task)  # of lines: not the very file of the training
    if count is not None:
        raw = b"".join(raw.splitlines(keepends=True)[:count])
    if verb in ("translate", "classify"):  # texts alone
        raw = b"".join(line.split(b"\t")[verb == "classify"] + b"\n" for line in raw.splitlines())
    plain = tmp_path / name
    plain.write_bytes(raw)
    flags = FLAGS.get(task, ()) if verb != "classify" else ()

    def answer(*paths):
        outcome = ok(verb, run, *paths, *flags)
        return outcome.out

    expected = answer(plain)
    assert expected
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(raw))
    assert answer(tmp_path / f"{name}.gz") == expected
    (tmp_path / f"{name}.zst").write_bytes(zstandard.compress(raw))
    assert answer(tmp_path / f"{name}.zst") == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    assert answer("-") == expected
    if verb not in ("tag", "translate", "classify"):
        lines = "".join(json.dumps(record) + "\n" for record in records(task, source)[:count])
        lines = "\n" + lines if task == "table" else lines  # so that rows have the line numbers of those under a header
        (tmp_path / "records.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
        assert answer(tmp_path / "records.jsonl.gz") == expected


@pytest.mark.parametrize("task", ["text", "table", "tag"])
def test_verbs_read_several_files_as_one(command, trained, tmp_path, task):
    source, run = trained(task)
    lines = [*source.read_text().split("\n")[:-2], ""]  # one less: not the very file of the training
    header, half = lines[: task == "table"], 2 * 3 * 7
    (tmp_path / "a b").mkdir()
    (tmp_path / source.name).write_text("\n".join(lines))
    parts = [tmp_path / "a b" / f"{number}{source.suffix}" for number in (1, 2)]
    parts[0].write_text("\n".join(lines[:half]).rstrip("\n"))
    parts[1].write_text("\n".join([*header, *lines[half:]]))
    verb = "tag" if task == "tag" else "score"
    outcomes = [command(verb, run, *paths) for paths in ((tmp_path / source.name,), parts, (tmp_path / "a b" / "*",))]
    assert [outcome.status for outcome in outcomes] == [0, 0, 0], outcomes[1].err
    first, *others = [[line for line in outcome.out.split("\n") if line] for outcome in outcomes]
    assert first == others[0] == others[1]


def test_methods_read_them_too(trained, tmp_path):
    source, run = trained("text")
    (tmp_path / "log.txt.gz").write_bytes(gzip.compress(source.read_bytes()))
    scores = [chainrule.load(run).score(path).summary for path in (source, tmp_path / "log.txt.gz")]
    assert scores[0] == scores[1]
    source, run = trained("table")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records("table", source)))
    scores = [list(chainrule.load(run).score(path)) for path in (source, tmp_path / "rows.jsonl")]
    # The header of the CSV file is its line 1.
    assert scores[0] == [row | {"line": row["line"] + 1} for row in scores[1]]


def test_compare_reads_them(command, trained, tmp_path):
    zstandard = pytest.importorskip("zstandard")
    source, run = trained("table")
    (tmp_path / "rows.csv.zst").write_bytes(zstandard.compress(source.read_bytes()))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records("table", source)))
    expected = command("compare", source, source, "--json")
    assert command("compare", tmp_path / "rows.csv.zst", tmp_path / "rows.jsonl", "--json").out == expected.out
    data = [command("compare", run, run, "--data", path, "--json") for path in (source, tmp_path / "rows.csv.zst")]
    assert [outcome.status for outcome in data] == [0, 0], data[1].err
    assert data[0].out.split('"rank"')[1].split('"data"')[0] == data[1].out.split('"rank"')[1].split('"data"')[0]


def test_errors_name_the_source_and_not_the_file_it_was_written_to(refused, trained, tmp_path):
    _, run = trained("table")
    (tmp_path / "rows.jsonl").write_text('{"first": "a", "second": "x", "third": "many"}\n')
    line = refused("score", run, tmp_path / "rows.jsonl")
    assert str(tmp_path / "rows.jsonl") in line
    assert "chainrule-" not in line
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"first": "a"}\n' * 99)[:-12])
    assert "cut.jsonl.gz: cannot be read" in refused("score", run, tmp_path / "cut.jsonl.gz")
    assert "no file matches this pattern" in refused("score", run, tmp_path / "*.parquet")
    _, run = trained("tag")
    written(tmp_path / "words.jsonl", [json.dumps({"tokens": ["a", "b"], "tags": ["X"]})])
    assert "expected the lists tokens and tags, equally long" in refused("tag", run, tmp_path / "words.jsonl")


def test_a_zst_file_that_is_cut_off_is_refused(refused, trained, tmp_path):
    zstandard = pytest.importorskip("zstandard")
    _, run = trained("text")
    packed = zstandard.compress(random.Random(0).randbytes(1 << 12).hex().encode())
    (tmp_path / "cut.txt.zst").write_bytes(packed[:-3])
    assert "cut.txt.zst: cannot be read (it ends early)" in refused("score", run, tmp_path / "cut.txt.zst")
