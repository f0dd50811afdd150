"""What `chainrule score` says of the rows of a table, and which it refuses."""

import csv
import io
import json

import pytest
import torch
from small_data import TABLE_COLUMNS

from chainrule._app.tasks.table.task import TableTask


def test_scores_are_those_of_the_model_most_surprising_first(command, run, rows):
    records = [json.loads(line) for line in command("score", run, rows, "--json").out.splitlines()]
    assert len(records) == 200
    model, schema = TableTask.open(run).model(), TableTask.open(run).schema
    x = torch.tensor([numbers for _, _, numbers in schema.encoded(rows)], dtype=torch.float64)
    assert [record["nats"] for record in records] == pytest.approx((-model.log_prob(x)).tolist(), rel=1e-6)
    assert all(sum(record["columns"].values()) == pytest.approx(record["nats"]) for record in records)
    ordered = [json.loads(line)["nats"] for line in command("score", run, rows, "--sort", "--json").out.splitlines()]
    assert ordered == sorted((record["nats"] for record in records), reverse=True)
    _, *shown, total, measured = command("score", run, rows, "--top", 3).out.splitlines()
    assert [float(row.split()[1]) for row in shown] == pytest.approx(ordered[:3], abs=0.0005)  # three decimals
    assert measured.startswith("measured: exact")
    assert total.startswith("rows 200, nats per row ")
    printed = list(csv.DictReader(io.StringIO(command("score", run, rows, "--csv").out)))
    assert [float(row["nats"]) for row in printed] == pytest.approx([record["nats"] for record in records])


def test_the_column_that_surprised_most_is_named(command, run, tmp_path):
    (tmp_path / "odd.csv").write_text(",".join(TABLE_COLUMNS) + "\nred,4,999.5,no\n")
    (record,) = [json.loads(line) for line in command("score", run, tmp_path / "odd.csv", "--json").out.splitlines()]
    assert record["most"] == "height"


BAD = {
    "changed header": ("colour,number,height,class\nred,1,2,no\n", "the column 'count' is missing"),
    "unseen": ("colour,count,height,class\nred,x,2,no\n", "line 2, column 'count': expected a number, got 'x'"),
    "infinite": ("colour,count,height,class\nred,1,inf,no\n", "expected a finite number"),
    "ragged": ("colour,count,height,class\nred,1,2\n", "line 2: expected 4 cells, got 3"),
    "empty": ("colour,count,height,class\n", "at least one row"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_refused_in_one_line(refused, run, tmp_path, name):
    content, message = BAD[name]
    (tmp_path / "bad.csv").write_text(content)
    assert message in refused("score", run, tmp_path / "bad.csv")


def test_a_constant_column_is_learnt_and_another_cell_in_it_is_the_surprise(command, ok, refused, tmp_path):
    path, new, run = tmp_path / "rows.csv", tmp_path / "new.csv", tmp_path / "run"
    path.write_text("a,b,c\n" + "".join(f"1,{n % 7},\n" for n in range(100)))
    new.write_text("a,b,c\n1,3,\n2,3,\n1,3,x\n")
    ok("train", path, "--out", run, "--steps", 30, "--hidden-size", 8)
    plain, changed, filled = (json.loads(line) for line in command("score", run, new, "--json").out.splitlines())
    for row, column in ((changed, "a"), (filled, "c")):
        assert row["most"] == column
        assert row["columns"][column] > 4 + plain["columns"][column]
        assert plain["columns"][column] < 0.1
    assert plain["most"] == "b"  # costs less than usual, where a and c cost nothing, as usual
    drawn = list(csv.DictReader(io.StringIO(command("sample", run, "-n", 50).out)))
    assert {(row["a"], row["c"]) for row in drawn} == {("1", "")}
    path.write_text("a,b\n" + "1,2\n" * 50)
    assert "every column is constant" in refused("train", path, "--out", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_an_unseen_category_is_an_error_where_other_is_not_kept(ok, refused, rows, tmp_path):
    strict, path = tmp_path / "strict", tmp_path / "new.csv"
    ok("train", rows, "--out", strict, "--steps", 1, "--min-count", 1)
    path.write_text(",".join(TABLE_COLUMNS) + "\npink,4,1.5,no\n")
    assert "the category 'pink' was not in training (known: blue, green, red)" in refused("score", strict, path)
