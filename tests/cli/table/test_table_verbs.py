"""A table from CSV to a run, and what the verbs do with it."""

import csv
import gzip
import io
import json
import shutil

import polars
import pytest
import torch
from small_data import TABLE_COLUMNS

import chainrule
from chainrule_app.readers.delimited import parse_types
from chainrule_app.tasks.table.run import TableRun


def test_a_table_is_recognised_and_shown(ok, rows, tmp_path):
    few = ("--steps", 2, "--hidden-size", 8, "--types", "count=real", "--json")
    outcome = ok("train", rows, "--out", tmp_path / "run", *few)
    summary = json.loads(outcome.out)
    assert summary["nats_per_row"] == pytest.approx(4 * summary["nats_per_element"])
    for shown in (
        "rows.csv, read as a table",
        "180 rows to train on, 20 held out, with a header",
        "real (not integer)",
    ):
        assert shown in outcome.err


def test_a_table_is_learnt(learnt):
    trained = TableRun.open(learnt)
    x = torch.from_numpy(trained.table().valid.copy())
    assert float(-trained.model()(x).log_prob(x)[:, 3].mean().detach()) < 0.1  # the class follows from the colour


def test_sampled_rows_are_rows_of_the_schema(command, ok, run, tmp_path):
    printed = command("sample", run, "-n", 5, "--seed", 1).out
    ok("sample", run, "-n", 5, "--seed", 1, "--out", tmp_path / "new.csv")
    assert (tmp_path / "new.csv").read_text() == printed
    header, *drawn = csv.reader(io.StringIO(printed))
    assert header == TABLE_COLUMNS
    assert len(drawn) == 5
    schema = TableRun.open(run).schema
    assert all(len(schema.encode(row)) == 4 for row in drawn)
    objects = [json.loads(line) for line in command("sample", run, "-n", 5, "--seed", 1, "--json").out.splitlines()]
    assert [schema.encode(["" if value is None else str(value) for value in row.values()]) for row in objects] == [
        pytest.approx(schema.encode(row), nan_ok=True) for row in drawn
    ]
    assert all(isinstance(row["count"], int) for row in objects)


def test_info_shows_columns_and_figures(command, run):
    shown = command("info", run).out
    for part in ("180 rows to train on", "nats per row", "colour", "categorical", "--resume"):
        assert part in shown
    facts = json.loads(command("info", run, "--json").out)
    assert facts["model"]["name"] == "made"
    assert [column["kind"] for column in facts["facts"]["columns"]] == ["categorical", "integer", "real", "categorical"]


def test_held_out_rows_are_checked(checked, run):
    assert checked(run).x.shape == (4, 4)


def test_options_of_another_task_are_refused(refused, run, rows, tmp_path):
    assert "--chunk-length" in refused("train", rows, "--chunk-length", 5)
    assert "--temperature" in refused("sample", run, "--temperature", 0.5)
    assert "--per" in refused("score", run, rows, "--per", "line")
    assert "--given all requires --per cell" in refused("score", run, rows, "--given", "all")
    (tmp_path / "a.txt").write_text("some text\n" * 99)
    assert "--types" in refused("train", tmp_path / "a.txt", "--types", "a=real")
    assert "--hidden-size was 256 and is 9" in refused("train", "--resume", "--out", run, "--hidden-size", 9)
    assert "expected COLUMN=KIND" in refused("train", rows, "--types", "a")
    assert "no such column" in refused("train", rows, "--types", "a=real", "--out", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_an_optimiser_that_cannot_be_leaves_the_old_run(refused, rows, run, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(run, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    asked = ("--optimiser", "muon", "--num-layers", 0)
    message = refused("train", rows, "--out", out, "--overwrite", "--steps", 3, *asked)
    assert message.startswith("chainrule: --optimiser: expected adamw")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_table_is_a_text_where_a_level_is_given(ok, rows, tmp_path):
    out = tmp_path / "run"
    arguments = ("--level", "char", "--hidden-size", 8, "--steps", 2, "--batch-size", 2, "--chunk-length", 8)
    ok("train", rows, "--out", out, *arguments)
    assert json.loads((out / "config.json").read_text())["task"] == "text"


def test_types_are_read():
    assert parse_types("a=b=real,") == {"a=b": "real"}


def test_inspection_names_the_column_that_another_is_known_from(command, refused, rows, learnt, tmp_path):
    found = json.loads(command("inspect", learnt, "--json").out)
    assert found["rows"] == 20
    by_name = {column["column"]: column for column in found["columns"]}
    assert by_name["colour"]["told_by"] == {}
    told = by_name["class"]["told_by"]
    assert max(told, key=told.get) == "colour"  # the class follows from it
    assert told["colour"] > 0.5
    printed = command("inspect", learnt, rows, "--rows", 100).out.splitlines()
    assert printed[0].startswith("100 rows, ")
    assert "colour" in next(line for line in printed if line.startswith("class"))
    assert "--out" in refused("inspect", learnt, "--out", tmp_path / "page.html")  # there is no page


def test_a_table_is_needed(refused):
    assert "DATA: expected a table to train on, got none" in refused("train", "--task", "table")


def test_a_parquet_file_is_learnt_scored_and_its_columns_shown(ok, tmp_path):
    rows = polars.DataFrame({"colour": ["red", "blue", None] * 40, "count": [n % 7 for n in range(120)]})
    rows.write_parquet(tmp_path / "rows.parquet")
    outcome = ok("train", tmp_path / "rows.parquet", "--out", tmp_path / "run", "--steps", 5, "--hidden-size", 8)
    assert "rows.parquet, read as a table" in outcome.err
    ok("score", tmp_path / "run", tmp_path / "rows.parquet", "--json")
    assert {"colour", "count"} <= {column.name for column in TableRun.open(tmp_path / "run").table().schema.columns}


def test_what_training_had_none_of_is_not_sampled(command, run):
    rows = [json.loads(line) for line in command("sample", run, "-n", 300, "--seed", 1, "--json").out.splitlines()]
    assert {row["colour"] for row in rows} == {"red", "blue", "green"}
    assert all(row["count"] is not None for row in rows)
    assert any(row["height"] is None for row in rows)  # some of it is missing in training
    assert all(0 <= int(row["count"]) <= 100 for row in rows)
    with torch.no_grad():  # though it has a probability where it comes
        opened = TableRun.open(run)
        x = torch.tensor([opened.schema.encode(["mauve", "", "1", "no"])], dtype=torch.float64)
        assert opened.model().log_prob(x).isfinite().all()


def test_a_sample_is_written_as_its_name_says(ok, refused, run, tmp_path):
    ok("sample", run, "-n", 5, "--seed", 1, "--out", tmp_path / "rows.csv")
    ok("sample", run, "-n", 5, "--seed", 1, "--out", tmp_path / "rows.csv.gz")
    assert gzip.decompress((tmp_path / "rows.csv.gz").read_bytes()) == (tmp_path / "rows.csv").read_bytes()
    assert f"no directory {tmp_path / 'none'}" in refused("sample", run, "--out", tmp_path / "none" / "rows.csv")


def test_parquet_holds_numbers(ok, run, tmp_path):
    polars = pytest.importorskip("polars")
    ok("sample", run, "-n", 40, "--seed", 1, "--out", tmp_path / "rows.parquet")
    frame = polars.read_parquet(tmp_path / "rows.parquet")
    assert frame.schema == {
        "colour": polars.String, "count": polars.Int64, "height": polars.Float64, "class": polars.String,
    }  # fmt: skip
    assert len(frame) == 40
    assert frame["height"].null_count() > 0


def test_too_many_columns_for_the_memory_are_refused_before_it_is_taken(refused, tmp_path, monkeypatch):
    monkeypatch.setattr("chainrule_app.tasks.model.memory", lambda: 1 << 30)
    names = [f"c{n}" for n in range(600)]
    rows = [",".join(str((n * n + k) % 11) for k in range(600)) for n in range(30)]
    (tmp_path / "wide.csv").write_text("\n".join([",".join(names), *rows]))
    message = refused("train", tmp_path / "wide.csv", "--out", tmp_path / "run", "--steps", 1)
    assert "600 columns make a model of" in message
    assert "GiB to train, more than the 1 GiB of this machine: skip columns with --types" in message
    assert not (tmp_path / "run").exists()


def test_a_few_rows_are_not_learnt_by_heart(planned, rows, tmp_path):
    small = ("--hidden-size", 8, "--components", 1, "--batch-size", 90)
    outcome = planned(rows, "--out", tmp_path / "run", *small, "--budget", "300s")
    assert "passes over the rows are enough: dropout 0.5" in outcome.err
    config = TableRun.open(tmp_path / "run").config
    assert config.duration.epochs == 100
    assert config.training.validate_every == 8  # four passes of two batches
    planned(rows, "--out", tmp_path / "named", *small, "--budget", "2s", "--dropout", 0.2)
    assert TableRun.open(tmp_path / "named").config.options.dropout == 0.2


def test_numbers_too_far_apart_are_named_in_one_line(refused, tmp_path, recwarn):
    rows = [f"{n % 7},{(-1) ** n * n}e300" for n in range(60)]
    (tmp_path / "huge.csv").write_text("\n".join(["a,b", *rows]))
    message = refused("train", tmp_path / "huge.csv", "--steps", 1, "--out", tmp_path / "run")
    assert (
        "column 'b': values span too wide a range to standardise: rescale them, or leave it out with --types b="
        in message
    )
    assert not recwarn.list


def test_the_training_file_is_not_written_over(ok, refused, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n" + "".join(f"{n % 3},{n % 7}\n" for n in range(60)))
    before = rows.read_bytes()
    ok("train", rows, "--steps", 2, "--out", tmp_path / "run")
    said = refused("sample", tmp_path / "run", "-n", 4, "--out", rows)
    assert "the run was trained on this file: give another name" in said
    assert rows.read_bytes() == before
    ok("sample", tmp_path / "run", "-n", 4, "--out", tmp_path / "new.csv")


def test_cells_of_digits_and_dots_are_shown_while_training(ok, tmp_path):
    """The preview took them for numbers, and training ended in an error."""
    rows = [f"{n % 28 + 1:02}.{n % 12 + 1:02}.2024,192.168.10.{n % 5}" for n in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["day,host", *rows]) + "\n")
    flags = ("--types", "day=categorical", "--steps", 1, "--hidden-size", 4)
    ok("train", tmp_path / "rows.csv", *flags, "--out", tmp_path / "run")


@pytest.mark.parametrize("direct", [True, False])
def test_the_weights_of_a_schema_are_counted_without_a_model(tmp_path, direct):
    """The count refuses a changed run before its model takes memory."""
    path, out = tmp_path / "rows.csv", tmp_path / "run"
    path.write_text("a,b,c\n" + "".join(f"{n % 7},{'xyz'[n % 3]},{n % 4 / 4}\n" for n in range(60)))
    chainrule.fit(str(path), task="table", steps=1, hidden_size=4, direct=direct, out=str(out))
    run = TableRun.open(out)
    matrices = [weight for weight in run.build().parameters() if weight.dim() == 2]
    assert run.fewest_weights() == sum(weight.numel() for weight in matrices)
