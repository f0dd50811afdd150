"""Rows of tables: drawn in range, scored, and shown where there are many columns."""

import csv
import io
import json

import polars
import pytest
import torch
from small_data import TABLE_COLUMNS

import chainrule
from chainrule_app.tasks.table.run import TableRun


def test_an_integer_beyond_those_of_float64_is_said_to_be_too_large(refused, named_run, tmp_path):
    (tmp_path / "large.csv").write_text(f"colour,size,count\nred,1.5,{10**20}\n")
    assert "expected an integer of at most 9,007,199,254,740,992, got" in refused(
        "score", named_run, tmp_path / "large.csv"
    )


def test_a_wide_table_is_shown_in_part(command, ok, tmp_path):
    """The first columns are listed, the others counted by kind; rows drawn in training are cut; `--json` has all."""
    columns = 40
    rows = [
        [
            f"{n * k % 97 / 7:.3f}" if k % 4 == 0 else str((n * 7919 + k * n * n) // 13 % 2)
            for k in range(1, columns + 1)
        ]
        for n in range(80)
    ]
    header = [f"x{k}" for k in range(1, columns + 1)]
    (tmp_path / "wide.csv").write_text("\n".join(map(",".join, [header, *rows])))
    outcome = ok("train", tmp_path / "wide.csv", "--out", tmp_path / "run", "--steps", 2, "--hidden-size", 8)
    listed = [line.split() for line in outcome.err.splitlines() if line.startswith("  x")]
    assert [name for name, *_ in listed] == header[:12]
    assert [kind for _, kind, *_ in listed[:4]] == ["categorical"] * 3 + ["real"]
    assert "  and 28 more: 21 categorical, 7 real\n" in outcome.err
    drawn = [line for line in outcome.err.splitlines() if line.startswith("    ") and "," in line]
    assert drawn
    assert all(len(line) <= 164 for line in drawn)
    about = command("info", tmp_path / "run")
    assert "  and 28 more: 21 categorical, 7 real" in about.out
    facts = json.loads(command("info", tmp_path / "run", "--json").out)
    assert header[-1] in json.dumps(facts)


def test_numbers_outside_the_range_are_drawn_again(command, ok, tmp_path):
    """They were moved to the lowest and the highest number, each of which came in a tenth of the rows."""
    rows, run = tmp_path / "rows.csv", tmp_path / "run"
    numbers = torch.rand(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows.write_text("x,y\n" + "".join(f"{number:.6f},{n % 2}\n" for n, number in enumerate(numbers.tolist())))
    ok("train", rows, "--steps", 20, "--out", run)
    table = csv.DictReader(io.StringIO(command("sample", run, "-n", 500, "--seed", 0).out))
    drawn = [float(row["x"]) for row in table]
    low, high = TableRun.open(run).schema.columns[0].bounds
    assert low <= min(drawn)
    assert max(drawn) <= high
    assert sum(number in (low, high) for number in drawn) < 5


def test_a_cell_that_training_had_none_of_is_marked(command, ok, tmp_path):
    rows, run, new = tmp_path / "rows.csv", tmp_path / "run", tmp_path / "new.csv"
    rows.write_text("x,y\n" + "".join(f"{'abc'[n % 3]},{n % 2}\n" for n in range(400)))
    new.write_text("x,y\na,0\nfax,1\n")
    ok("train", rows, "--steps", 20, "--out", run)
    heading, first, *_ = command("score", run, new, "--sort").out.splitlines()
    assert heading.split()[-1] == "unseen"
    line, _, *surprise, unseen = first.split()
    assert (line, surprise[:2], unseen) == ("3", ["x", "fax"], "x")  # the column whose cell training had none of


def test_scores_are_those_of_the_model_most_surprising_first(command, run, rows):
    records = [json.loads(line) for line in command("score", run, rows, "--json").out.splitlines()]
    assert len(records) == 200
    model, schema = TableRun.open(run).model(), TableRun.open(run).schema
    x = torch.tensor([numbers for _, _, numbers in schema.encoded(rows)], dtype=torch.float64)
    assert [record["nats"] for record in records] == pytest.approx((-model.log_prob(x)).tolist(), rel=1e-6)
    assert all(sum(record["columns"].values()) == pytest.approx(record["nats"]) for record in records)
    ordered = [json.loads(line)["nats"] for line in command("score", run, rows, "--sort", "--json").out.splitlines()]
    assert ordered == sorted((record["nats"] for record in records), reverse=True)
    _, *shown, total, measured, trained_on = command("score", run, rows, "--top", 3).out.splitlines()
    assert [float(row.split()[1]) for row in shown] == pytest.approx(ordered[:3], abs=0.0005)  # three decimals
    assert measured.startswith("measured: exact")
    assert trained_on.startswith("the run was trained on this very table")
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


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_frame_with_gaps_comes_back_as_such_a_frame_from_a_run_of_a_file(run, library):
    """It came back as a `Result`, where the manual promised a frame."""
    pandas = pytest.importorskip("pandas")
    rows = {"colour": ["red", None], "count": [1, None], "height": [None, None]}
    frames = {
        "pandas": lambda: pandas.DataFrame(rows).astype({"colour": "category"}),
        "polars": lambda: polars.DataFrame(rows, schema_overrides={"count": polars.Int32}),
        "pyarrow": lambda: polars.DataFrame(rows).to_arrow(),
    }
    frame = frames[library]()
    drawn = chainrule.load(run).fill(frame, particles=16, draws=4)
    assert type(drawn) is type(frame)
    completed = polars.DataFrame(drawn) if library == "polars" else polars.from_dataframe(drawn)
    assert completed.columns == ["colour", "count", "height", "class"]  # also the one that the frame lacks
    assert completed["colour"][0] == "red"
    assert completed["count"][0] == 1
    assert completed["count"].null_count() == 0
    assert completed["height"].dtype == polars.Float64
    assert set(completed["class"]) <= {"yes", "no"}
    if library == "pandas":
        assert str(drawn["colour"].dtype) == "category"
    if library == "polars":
        assert drawn["count"].dtype == polars.Int32


def test_columns_of_samples_are_short_to_read(run):
    """Each showed the whole schema of its column, with all categories."""
    shown = repr(chainrule.load(run).sample(2, seed=0).columns)
    assert len(shown) < 400
    assert "Column(name='colour'" in shown
