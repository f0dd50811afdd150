"""Shards hold the rows of one process, bit for bit, whatever their order, and whatever ends a process."""

import gzip
import json
import sys
from contextlib import nullcontext
from itertools import islice
from random import Random

import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale_data import lines, table

from chainrule_app.batchwise import in_turn
from chainrule_app.cli import sharded
from chainrule_app.cli.main import main
from chainrule_app.scale.shards import Failure, Shard, ShardLog, Shards, ShardWorker


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    table(9000, seed=1).write_csv(folder / "rows.csv")  # three batches
    gaps = table(300, seed=2).with_columns(polars.when(polars.int_range(300) % 200 == 3).then("count").alias("count"))
    gaps.write_csv(folder / "gaps.csv")
    (folder / "lines.txt").write_text("\n".join(lines(150, seed=1)) + "\n")
    (folder / "words.txt").write_text("\n\n".join("\n".join(line.split()) for line in lines(150, seed=1)) + "\n")
    return folder


class HereAtRandom:
    """An executor that computes shards in this process, each by one of three workers, in an order drawn at random."""

    def __init__(self, job, target, batches, number):
        self.workers, self.random = [ShardWorker(job, target, batches) for _ in range(number)], Random(0)

    def __call__(self, numbers):
        while ahead := list(islice(numbers, 4)):
            self.random.shuffle(ahead)
            for number in ahead:
                yield number, self.random.choice(self.workers).compute(number)

    def close(self):
        pass


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(sharded, "RayWorkers", HereAtRandom)
    monkeypatch.setattr(sharded, "cluster", lambda address, processes: nullcontext(3))
    monkeypatch.setattr(sharded, "_BATCHES", 1)


VERBS = {
    "rows": ("table", "score", "rows.csv", "x.parquet", []),
    "records": ("table", "score", "rows.csv", "x.jsonl", []),
    "cells": ("table", "score", "rows.csv", "x.parquet", ["--per", "cell"]),
    "csv": ("table", "score", "rows.csv", "x.csv", []),
    "compressed": ("table", "score", "rows.csv", "x.tsv.gz", []),
    "predict": ("table", "predict", "gaps.csv", "x.jsonl", ["--columns", "kind", "--seed", "5"]),
    "sample": ("table", "sample", None, "x.parquet", ["-n", "2500", "--seed", "3"]),
    "lines": ("text", "score", "lines.txt", "x.jsonl", []),
    "embed lines": ("text", "embed", "lines.txt", "x.parquet", []),
    "tag": ("tag", "tag", "words.txt", "x.txt", []),
    "classify": ("classify", "classify", "lines.txt", "x.jsonl", []),
    "embed texts": ("classify", "embed", "lines.txt", "x.parquet", []),
    "translate": ("translate", "translate", "lines.txt", "x.jsonl", ["--max-length", "9"]),
}
DAILY = ("rows", "csv", "lines")


def content(path):
    """Return the rows of a file, or of the shards in a folder."""
    parts = sorted(path.glob("part-*")) if path.is_dir() else [path]
    if path.name.endswith("parquet"):
        return polars.concat(map(polars.read_parquet, parts), how="vertical").rows()
    contents = [part.read_bytes() for part in parts]
    texts = [(gzip.decompress(part) if path.name.endswith(".gz") else part).decode() for part in contents]
    header = "".join(texts[0].splitlines(keepends=True)[: int("sv" in path.name)])
    return header + "".join(text.removeprefix(header) for text in texts)


@pytest.mark.parametrize(
    "name", [name if name in DAILY else pytest.param(name, marks=pytest.mark.slow) for name in VERBS]
)
def test_shards_hold_what_one_process_writes(name, run_of, files, tmp_path, here, monkeypatch, capsys):
    task, verb, data, out, options = VERBS[name]
    call = [verb, str(run_of(task)), *([] if data is None else [str(files / data)]), "--out", out, *options]
    said = []
    for folder, engine in (("one", ["--workers", "1"]), ("shards", ["--engine", "ray"])):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        capsys.readouterr()
        assert main([*call, *engine]) == 0
        said.append(capsys.readouterr().err)
    assert content(tmp_path / "shards" / out) == content(tmp_path / "one" / out)
    assert said[0] == said[1]
    folder = tmp_path / "shards" / out
    manifest = json.loads((folder / "_manifest.json").read_text())
    assert sorted(path.name for path in folder.iterdir()) == [
        "_manifest.json",
        *(f["file"] for f in manifest["shards"]),
    ]
    assert manifest["rows"] == sum(shard["rows"] for shard in manifest["shards"])


EVALUATED = {
    "tag": ("words.txt", lambda line: "\n".join(f"{word}\t{word[0]}" for word in line.split()) + "\n"),
    "classify": ("labelled.tsv", lambda line: f"{line}\t{len(line) // 20}"),
    "translate": ("pairs.tsv", lambda line: f"{line}\t{line.upper()}"),
}


@pytest.mark.slow
@pytest.mark.parametrize("task", EVALUATED)
def test_evaluations_sum_to_those_of_one_process(task, run_of, tmp_path, here, capsys):
    name, written = EVALUATED[task]
    (tmp_path / name).write_text("\n".join(map(written, lines(150, seed=1))) + "\n")
    call = ["evaluate", str(run_of(task)), str(tmp_path / name), "--json"]
    said = []
    for engine in ([], ["--engine", "ray"], ["--engine", "ray", "--out", str(tmp_path / "kept")]):
        capsys.readouterr()
        assert main([*call, *engine]) == 0
        said.append(capsys.readouterr())
    assert said[0] == said[1] == said[2]
    figures = json.loads((tmp_path / "kept" / "_manifest.json").read_text())["figures"]
    assert figures == json.loads(said[0].out)


def test_a_killed_driver_goes_on_and_computes_no_shard_again(run_of, files, tmp_path, here, monkeypatch, capsys):
    """The seed of the first driver holds; of a shard that was cut, and of a line that was cut, nothing counts."""
    run, one, out = str(run_of("table")), tmp_path / "one.parquet", tmp_path / "x.parquet"
    computed = []
    compute = ShardWorker.compute

    def killed(self, number):
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append(number)
        return compute(self, number)

    call = ["sample", run, "-n", "6000", "--engine", "ray", "--out", str(out)]
    monkeypatch.setattr(ShardWorker, "compute", killed)
    assert main(call) == 130
    log = out / "_progress.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    part = min(out.glob("part-*"))
    part.write_bytes(part.read_bytes()[:-1])
    log.write_bytes(b"".join(lines) + b'0123abcd {"shard":')
    (out / ".part-00009.parquet.0000").write_bytes(b"left by a worker")
    before, computed[:] = set(computed), []
    monkeypatch.setattr(ShardWorker, "compute", lambda self, number: computed.append(number) or compute(self, number))
    capsys.readouterr()
    assert main([*call, "--resume"]) == 0
    again = int(part.name[5:10])
    assert set(computed) & before == {again}
    seed = json.loads((out / "_manifest.json").read_text())["plan"]["seed"]
    assert capsys.readouterr().err.startswith(f"{out}: 6,000 rows (seed {seed})\n")
    assert main(["sample", run, "-n", "6000", "--seed", str(seed), "--out", str(one), "--workers", "1"]) == 0
    assert content(out) == content(one)
    assert not list(out.glob(".part-*"))
    assert main([*call, "--resume"]) == 0
    assert capsys.readouterr().err.endswith(f"{out} is complete\n")


@pytest.mark.parametrize("left", [(), (".lock", "._progress.jsonl.0123abcd")])
def test_a_driver_that_was_killed_before_its_first_line_begins_again(left, run_of, files, tmp_path, here):
    out = tmp_path / "x.jsonl"
    out.mkdir()
    for name in left:
        (out / name).write_text("")
    call = ["score", str(run_of("table")), str(files / "rows.csv"), "--engine", "ray", "--out", str(out)]
    assert main(call) == 0
    (out / "_manifest.json").unlink()
    assert main(call) == 2  # rows are not written over


def test_a_changed_job_does_not_go_on(run_of, tmp_path, here, monkeypatch, capsys):
    table(9000, seed=1).write_csv(tmp_path / "rows.csv")
    run, out = str(run_of("table")), tmp_path / "x.jsonl"
    call = ["score", run, str(tmp_path / "rows.csv"), "--engine", "ray", "--out", str(out)]

    def refused(*arguments):
        capsys.readouterr()
        assert main([*call, *arguments]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        return err.removeprefix("chainrule: ")

    assert refused("--resume").startswith(f"--resume: there is no {out}/_progress.jsonl: leave it out")
    compute = ShardWorker.compute
    stop = iter([None, KeyboardInterrupt])

    def killed(self, number):
        if (error := next(stop)) is not None:
            raise error
        return compute(self, number)

    monkeypatch.setattr(ShardWorker, "compute", killed)
    assert main(call) == 130
    monkeypatch.setattr(ShardWorker, "compute", compute)
    assert refused().startswith(f"--out: {out} is there already: choose another name, or pass --resume")
    assert refused("--resume", "--per", "cell").startswith(f"--resume: {out} was begun with other options: ")
    table(9001, seed=1).write_csv(tmp_path / "rows.csv")
    assert refused("--resume").startswith(f"--resume: {out} was begun with other data: ")
    (out / "_progress.jsonl").write_bytes(b"00 {}\n")
    assert refused("--resume").startswith(f"--resume: {out}/_progress.jsonl is damaged")


def test_errors_are_those_of_one_process(run_of, files, tmp_path, here, capsys):
    text = (files / "rows.csv").read_text().splitlines()
    text[5500], text[1500] = "2,d,3.5", "2,a,nothing"
    (tmp_path / "bad.csv").write_text("\n".join(text))
    said = []
    for engine in (["--workers", "1"], ["--engine", "ray"]):
        call = ["score", str(run_of("table")), str(tmp_path / "bad.csv"), "--out", str(tmp_path / "x.jsonl"), *engine]
        assert main(call) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (["score", "{run}", "{rows}", "--engine", "ray"], "--engine: requires --out, and rows that are not sorted"),
        (
            ["score", "{run}", "{rows}", "--engine", "ray", "--out", "x.txt"],
            "--engine: x.txt needs all rows at once: write .csv, .tsv, .jsonl or .parquet",
        ),
        (["score", "{run}", "{rows}", "--resume"], "--resume: requires --engine ray"),
        (["score", "{run}", "{rows}", "--address", "auto"], "--address: requires --engine ray"),
    ],
)
def test_what_needs_one_process_or_the_engine_is_refused(call, text, run_of, files, here, capsys):
    places = {"run": run_of("table"), "rows": files / "rows.csv"}
    assert main([word.format(**places) for word in call]) == 2
    assert capsys.readouterr().err == f"chainrule: {text}\n"


def test_a_missing_engine_is_named(run_of, files, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    call = ["score", str(run_of("table")), str(files / "rows.csv"), "--engine", "ray", "--out", str(tmp_path / "x.csv")]
    assert main(call) == 2
    text = "--engine: requires Ray, of the extra scale: pip install 'ray[data,train]'"
    assert capsys.readouterr().err == f"chainrule: {text}\n"
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=40, deadline=None)
@given(
    batches=st.integers(0, 23),
    size=st.integers(1, 5),
    bad=st.integers(0, 40),
    seed=st.integers(0, 1 << 16),
)
def test_any_order_of_shards_adds_the_figures_of_all_batches_in_turn(batches, size, bad, seed):
    """Against the plain loop of one process: the same rows, sums in the same order, and the first error."""
    random = Random(seed)

    def answer(batch):
        if batch == bad:
            raise ValueError(f"batch {batch}")
        return [(batch,)] * (batch % 3), (0.1 * batch,)

    def compute(number):
        own = range(batches)[number * size : (number + 1) * size]
        try:
            answers = list(map(answer, own))
        except ValueError as error:
            return Failure(number, error)
        return Shard(len(own), sum(len(rows) for rows, _ in answers), 0, "", [figures for _, figures in answers])

    def executor(numbers):
        running = []
        while running or (running := list(islice(numbers, 3))):
            number = running.pop(random.randrange(len(running)))
            yield number, compute(number)
            running += islice(numbers, 1)

    def outcome(rows):
        added, rows_before = [], 0
        try:
            for count in rows(added.append):
                rows_before += count
        except ValueError as error:
            return str(error)
        return rows_before, added

    with ShardLog.open(None, {"batches": size}) as log:
        shards = Shards(log, executor, lambda rows: None)
        found = outcome(lambda add: (part.rows for part in shards.answered(range(batches), answer, add)))
    assert found == outcome(lambda add: (1 for _ in in_turn(range(batches), answer, add)))
