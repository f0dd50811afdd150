"""Rows known in part are completed: known cells come back as written, and so do columns left out of training."""

import csv
import io
import json

import polars
import pytest

from chainrule._app.cli.main import main


@pytest.fixture(scope="module")
def named_run(tmp_path_factory):
    """A run that left out the column id; not to be written to."""
    home = tmp_path_factory.mktemp("named")
    rows = [f"r{n},{['red', 'blue'][n % 2]},{n % 37 / 4:.2f},{n * n % 21}" for n in range(120)]
    (home / "rows.csv").write_text("\n".join(["id,colour,size,count", *rows]))
    arguments = ["--types", "id=skip", "--steps", "2", "--hidden-size", "8", "--json"]
    assert main(["train", str(home / "rows.csv"), "--out", str(home / "run"), *arguments]) == 0
    return home / "run"


def test_known_cells_are_completed_as_they_were_written(command, ok, named_run, tmp_path):
    """They went through the schema: to its digits, into its bounds, and to <other>; the column id was lost."""
    known = [["r900", "purple", "123.456789", ""], ["NA", "", "5.5", "500"], ["7", "red", "+1e1", "12.0"]]
    (tmp_path / "part.csv").write_text("\n".join(map(",".join, [["id", "colour", "size", "count"], *known])))
    complete = ("sample", named_run, "--complete", tmp_path / "part.csv", "-n", 2, "--particles", 8, "--seed", 1)
    header, *drawn = csv.reader(io.StringIO(command(*complete).out))
    assert header == ["id", "colour", "size", "count"]
    assert len(drawn) == 6
    for row, cells in zip((row for row in known for _ in range(2)), drawn, strict=True):
        assert [there or drawn for there, drawn in zip(row, cells, strict=True)] == cells
        assert "" not in cells
    ok(*complete, "--out", tmp_path / "new.parquet")
    frame = polars.read_parquet(tmp_path / "new.parquet")
    assert frame.schema == {"id": polars.String, "colour": polars.String, "size": polars.Float64, "count": polars.Int64}
    assert frame["size"][::2].to_list() == [123.456789, 5.5, 10.0]
    assert frame["count"][2::2].to_list() == [500, 12]


def test_many_completions_of_a_row_take_no_more_memory(command, named_run, tmp_path, monkeypatch):
    """Rows were drawn together n times as many as fit."""
    from chainrule import decoding

    complete, together = decoding.complete, []

    def counted(model, x, known, **options):
        together.append(len(x) * options["particles"])
        return complete(model, x, known, **options)

    monkeypatch.setattr(decoding, "complete", counted)
    monkeypatch.setattr("chainrule._app.tasks.table.verbs._TOGETHER", 40)
    (tmp_path / "part.csv").write_text("colour,size,count\n,1.5,3\n,2.5,4\n")
    drawn = command("sample", named_run, "--complete", tmp_path / "part.csv", "-n", 9, "--particles", 8, "--json").out
    assert [json.loads(line)["size"] for line in drawn.splitlines()] == [1.5] * 9 + [2.5] * 9
    assert together == [40, 40, 40, 24]


def test_a_column_that_was_left_out_comes_back_in_parquet_as_what_it_holds(ok, named_run, tmp_path):
    for name, cells, kind in (("numbers", "1,red", polars.Int64), ("names", "007,red", polars.String)):
        (tmp_path / f"{name}.csv").write_text(f"id,colour\n{cells}\n")
        out = tmp_path / f"{name}.parquet"
        ok("sample", named_run, "--complete", tmp_path / f"{name}.csv", "--out", out)
        assert polars.read_parquet(out).schema["id"] == kind
    (tmp_path / "none.csv").write_text("colour\n")  # a file without the column, and without rows
    out = tmp_path / "none.parquet"
    ok("sample", named_run, "--complete", tmp_path / "none.csv", "--out", out)
    assert polars.read_parquet(out).columns == ["colour", "size", "count"]


def test_a_table_without_rows_is_completed_by_its_header(command, named_run, tmp_path):
    (tmp_path / "none.csv").write_text("colour,size,count\n")
    assert command("sample", named_run, "--complete", tmp_path / "none.csv").out == "colour,size,count\n"


def test_an_integer_beyond_those_of_float64_is_said_to_be_too_large(refused, named_run, tmp_path):
    (tmp_path / "large.csv").write_text(f"colour,size,count\nred,1.5,{10**20}\n")
    assert "expected an integer of at most 9,007,199,254,740,992, got" in refused(
        "score", named_run, tmp_path / "large.csv"
    )


def test_rows_of_empty_cells_are_completed(command, named_run, tmp_path):
    """At the end of a table of training they are left out."""
    (tmp_path / "part.csv").write_text("colour,size,count\nred,,\n,,\n,,\n")
    drawn = command("sample", named_run, "--complete", tmp_path / "part.csv", "-n", 1, "--particles", 8).out
    assert len(drawn.splitlines()) == 4
