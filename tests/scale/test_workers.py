"""Several processes answer as one does, bit for bit, and say what ended one of them."""

import os
import signal

import polars
import pytest
from scale_data import TINY, lines, table

import chainrule
from chainrule_app.batchwise import block_seed
from chainrule_app.cli.main import main
from chainrule_app.scale import workers


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    table(9000, seed=1).write_csv(folder / "rows.csv")  # three batches
    gaps = table(2100, seed=2).with_columns(polars.when(polars.int_range(2100) % 200 == 3).then("count").alias("count"))
    gaps.with_columns(count=polars.lit(None, polars.Int64)).head(40).write_csv(folder / "gaps.csv")
    (folder / "lines.txt").write_text("\n".join(lines(150, seed=1)) + "\n")
    (folder / "words.txt").write_text("\n\n".join("\n".join(line.split()) for line in lines(150, seed=1)) + "\n")
    return folder


VERBS = {
    "rows": ("table", "score", "rows.csv", "x.csv", []),
    "records": ("table", "score", "rows.csv", "x.jsonl", []),
    "cells": ("table", "score", "rows.csv", "x.csv", ["--per", "cell"]),
    "frames": ("table", "score", "rows.csv", "x.parquet", []),
    "compressed": ("table", "score", "rows.csv", "x.tsv.gz", []),
    "predict": ("table", "predict", "gaps.csv", "x.csv", []),
    "sample": ("table", "sample", None, "x.csv", ["-n", "2500", "--seed", "3"]),
    "lines": ("text", "score", "lines.txt", "x.csv", []),
    "embed lines": ("text", "embed", "lines.txt", "x.csv", []),
    "tag": ("tag", "tag", "words.txt", "x.txt", []),
    "classify": ("classify", "classify", "lines.txt", "x.jsonl", []),
    "embed texts": ("classify", "embed", "lines.txt", "x.csv", []),
    "translate": ("translate", "translate", "lines.txt", "x.txt", ["--max-length", "9"]),
}


DAILY = ("rows", "frames", "sample", "lines")  # a text, and a table's rows as text, in Arrow's format and drawn


@pytest.mark.parametrize(
    "name", [name if name in DAILY else pytest.param(name, marks=pytest.mark.slow) for name in VERBS]
)
def test_several_processes_write_what_one_writes(name, run_of, files, tmp_path, monkeypatch, capsys):
    task, verb, data, out, options = VERBS[name]
    written, said, run = [], [], str(run_of(task))
    capsys.readouterr()
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        call = [verb, run, *([] if data is None else [str(files / data)]), "--out", out, *options]
        seeded = [*call, "--seed", "5"] if verb == "predict" else call
        assert main([*seeded, "--workers", str(number)]) == 0
        said.append(capsys.readouterr().err)
        path = tmp_path / str(number) / out
        written.append(polars.read_parquet(path).rows() if out.endswith("parquet") else path.read_bytes())
    assert written[0] == written[1]
    assert said[0] == said[1]


def test_a_killed_process_is_named(run_of, files, tmp_path, monkeypatch, capsys):
    start = workers.Workers._start

    def killing(self):
        start(self)
        os.kill(self._processes[1].pid, signal.SIGKILL)

    monkeypatch.setattr(workers.Workers, "_start", killing)
    out, run = tmp_path / "x.csv", str(run_of("table"))
    capsys.readouterr()
    assert main(["score", run, str(files / "rows.csv"), "--out", str(out), "--workers", "2"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("chainrule: process 2 of 2 was killed (SIGKILL): nothing was written")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_errors_are_those_of_one_process(run_of, files, tmp_path, capsys):
    bad = tmp_path / "bad.csv"
    text = (files / "rows.csv").read_text().splitlines()
    text[5500], text[1500] = "2,d,3.5", "2,a,nothing"
    bad.write_text("\n".join(text))
    said = []
    for number in ("1", "2"):
        assert (
            main(["score", str(run_of("table")), str(bad), "--out", str(tmp_path / "x.csv"), "--workers", number]) == 2
        )
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    assert "line 1501" in said[0]
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "--workers: requires --out, and rows that are not sorted"),
        (["--out", "x.csv", "--sort"], "--workers: requires --out, and rows that are not sorted"),
        (["--out", "x.txt"], "--workers: x.txt needs all rows at once: write .csv, .tsv, .jsonl or .parquet"),
    ],
)
def test_answers_that_need_all_rows_are_refused(options, text, run_of, files, capsys):
    assert main(["score", str(run_of("table")), str(files / "rows.csv"), "--workers", "2", *options]) == 2
    assert capsys.readouterr().err == f"chainrule: {text}\n"


def test_a_stream_is_scored_in_one_process(run_of, files, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("one fish two fish " * 50)
    chainrule.fit(tmp_path / "text.txt", reading="stream", out=tmp_path / "stream", hidden_size=8, **TINY)
    capsys.readouterr()
    call = ["score", str(tmp_path / "stream"), str(files / "lines.txt"), "--out", str(tmp_path / "x.csv")]
    assert main([*call, "--workers", "2"]) == 2
    assert capsys.readouterr().err == "chainrule: --workers: one process computes this answer: leave it out\n"


def test_long_answers_are_divided_without_being_asked(run_of, files, tmp_path, monkeypatch):
    """The first process begins, and others take over in the middle."""
    from chainrule_app.cli import divided

    monkeypatch.setattr(divided, "_PATIENCE", 1e-9)
    monkeypatch.setattr(divided, "_cores", lambda: 2)
    table(20000, seed=4).write_csv(tmp_path / "rows.csv")
    seen = []
    answered = workers.Workers.answered

    def noted(self, *arguments):
        yield from answered(self, *arguments)
        seen.append(len(self._waiting))

    monkeypatch.setattr(workers.Workers, "answered", noted)
    for name, options in (("one.csv", ["--workers", "1"]), ("some.csv", [])):
        call = ["score", str(run_of("table")), str(tmp_path / "rows.csv"), "--out", str(tmp_path / name), *options]
        assert main(call) == 0
    assert seen in ([0], [1], [2])  # by how fast they start
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "some.csv").read_bytes()


def test_block_seeds_differ():
    seeds = {block_seed(seed, number) for seed in range(50) for number in range(50)}
    assert len(seeds) == 2500
