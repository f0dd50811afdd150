"""Any cells of a table predicted from the others, and the gaps of a table filled."""

import csv
import io
import json
import math

import polars
import pytest
import torch
from small_data import TABLE_COLUMNS

import chainrule
from chainrule_app.tasks.table.task import TableTask


def rows_of(text):
    return list(csv.reader(io.StringIO(text)))


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


def log_probs(run, column, cells):
    """log p of a row with each category of a column."""
    opened = TableTask.open(run)
    place = TABLE_COLUMNS.index(column)
    names = opened.schema.kept[place].categories
    rows = [opened.schema.encode([*cells[:place], name, *cells[place + 1 :]]) for name in names]
    with torch.no_grad():
        return names, opened.model().log_prob(torch.tensor(rows, dtype=torch.float64))


def test_a_gap_has_the_probabilities_that_enumeration_gives(command, learnt, tmp_path):
    (tmp_path / "part.csv").write_text("colour,count,height,class\n,4,1.5,yes\nred,4,1.5,\n")
    outcome = command("predict", learnt, tmp_path / "part.csv", "--json")
    first, second = objects(outcome.out)
    assert (first["line"], first["column"], second["line"], second["column"]) == (2, "colour", 3, "class")
    for found, cells in ((first, ["", "4", "1.5", "yes"]), (second, ["red", "4", "1.5", ""])):
        names, logs = log_probs(learnt, found["column"], cells)
        shares = dict(zip(names, logs.tolist(), strict=True))
        del shares["<other>"]  # training had none of it
        total = math.log(sum(map(math.exp, shares.values())))
        for name, log in shares.items():
            assert found["shares"][name] == pytest.approx(math.exp(log - total), abs=1e-5)  # in float32
        assert found["value"] == max(shares, key=shares.get)
        assert found["probability"] == found["shares"][found["value"]]
        assert (found["how"], found["draws"], found["effective"]) == ("exact", 0, None)
    assert "2 cells: 2 exact" in outcome.err
    assert first["value"] != "red"  # as the class says, though it comes last
    assert second["value"] == "no"


def test_a_number_has_a_mean_an_interval_and_quantiles(command, learnt, tmp_path):
    (tmp_path / "part.csv").write_text("colour,count,height,class\nred,,1.5,no\nblue,3,,yes\n")
    count, height = objects(command("predict", learnt, tmp_path / "part.csv", "--json", "--interval", 0.9).out)
    assert isinstance(count["value"], int)
    assert isinstance(height["value"], float)
    for found in (count, height):
        assert [found["low"], found["high"]] == pytest.approx([found["shares"]["0.05"], found["shares"]["0.95"]])
        assert found["low"] <= found["median"] <= found["high"]
        assert found["probability"] is None
        assert found["value"] == found["mean"]
        assert found["bins"] is None
    binned = objects(command("predict", learnt, tmp_path / "part.csv", "--json", "--bins", 4).out)
    for found in binned:
        edges, shares = found["bins"]["edges"], found["bins"]["probabilities"]
        assert edges == sorted(set(edges))
        assert len(shares) == len(edges) - 1 <= 4
        assert 0.99 < sum(shares) <= 1.0000001
    narrow = objects(command("predict", learnt, tmp_path / "part.csv", "--json", "--interval", 0.5).out)
    assert narrow[0]["high"] - narrow[0]["low"] <= count["high"] - count["low"]


def test_named_columns_are_predicted_from_those_that_are_not(command, refused, learnt, rows, tmp_path):
    found = objects(command("predict", learnt, rows, "--column", "class", "--json").out)
    assert len(found) == 200
    assert sum(row["value"] == row["actual"] for row in found) >= 198  # the class follows from the colour
    said = []
    for name, cells in (("red", "red,4,1.5,no"), ("blue", "blue,4,1.5,yes")):
        (tmp_path / f"{name}.csv").write_text(f"{','.join(TABLE_COLUMNS)}\n{cells}\n")
        asked = ("predict", learnt, tmp_path / f"{name}.csv", "--columns", "colour,class", "--seed", 1, "--json")
        said.append([(row["column"], row["shares"]) for row in objects(command(*asked).out)])
    assert [column for column, _ in said[0]] == ["colour", "class"]
    assert said[0] == said[1]  # neither of the two is read
    assert "--columns: expected NAME,... of colour, count, height, class, got 'size'" in refused(
        "predict", learnt, rows, "--columns", "size"
    )


def test_no_gap_stays_empty_where_training_had_missing_cells(command, learnt, tmp_path):
    """Completions left as many cells empty as training had, without a word."""
    cells = [f"{['red', 'blue', 'green'][n % 3]},{n % 97},,{'yes' if n % 3 else 'no'}" for n in range(100)]
    (tmp_path / "part.csv").write_text("\n".join([",".join(TABLE_COLUMNS), *cells]))
    for flags in (["--with", "mean"], ["--with", "draw", "--seed", 1], ["--with", "mode"]):
        header, *filled = rows_of(command("fill", learnt, tmp_path / "part.csv", *flags).out)
        assert header == TABLE_COLUMNS
        assert len(filled) == 100
        assert all(row[2] for row in filled)
        assert [",".join([*row[:2], "", row[3]]) for row in filled] == cells
    _, *drawn = rows_of(
        command("fill", learnt, tmp_path / "part.csv", "--with", "draw", "--seed", 1, "--allow-missing").out
    )
    assert 0 < sum(not row[2] for row in drawn) < 50  # a tenth in training


def test_known_cells_are_written_as_they_are(command, ok, named_run, tmp_path):
    """They went through the schema: to its digits, into its bounds, and to <other>; the column id was lost."""
    known = [["r900", "purple", "123.456789", ""], ["NA", "", "5.5", "500"], ["7", "red", "+1e1", "12.0"]]
    (tmp_path / "part.csv").write_text("\n".join(map(",".join, [["id", "colour", "size", "count"], *known])))
    for copies, flags in ((1, []), (1, ["--with", "median"]), (2, ["--with", "draw", "-n", 2, "--particles", 8])):
        header, *filled = rows_of(command("fill", named_run, tmp_path / "part.csv", *flags).out)
        assert header == ["id", "colour", "size", "count"]
        for row, cells in zip((row for row in known for _ in range(copies)), filled, strict=True):
            assert [there or cell for there, cell in zip(row, cells, strict=True)] == cells
            assert "" not in cells
            assert "<other>" not in cells
    ok("fill", named_run, tmp_path / "part.csv", "--out", tmp_path / "new.parquet")
    frame = polars.read_parquet(tmp_path / "new.parquet")
    assert frame.schema == {"id": polars.String, "colour": polars.String, "size": polars.Float64, "count": polars.Int64}
    assert frame["size"].to_list() == [123.456789, 5.5, 10.0]
    assert frame["count"][1:].to_list() == [500, 12]


def test_missing_columns_and_rows_of_empty_cells_are_filled(command, named_run, tmp_path):
    (tmp_path / "part.csv").write_text("colour,size\nred,\n,\n,\n")
    header, *filled = rows_of(command("fill", named_run, tmp_path / "part.csv").out)
    assert header == ["colour", "size", "count"]
    assert len(filled) == 3
    assert all(cell for row in filled for cell in row)
    (tmp_path / "none.csv").write_text("colour,size,count\n")
    assert command("fill", named_run, tmp_path / "none.csv").out == "colour,size,count\n"


def test_many_copies_of_a_row_take_no_more_memory(command, named_run, tmp_path, monkeypatch):
    """Rows were drawn together n times as many as fit."""
    from chainrule import decoding

    complete, together = decoding.complete, []

    def counted(model, x, known, **options):
        together.append(len(x) * options["particles"])
        return complete(model, x, known, **options)

    monkeypatch.setattr(decoding, "complete", counted)
    monkeypatch.setattr("chainrule_app.tasks.table.prediction._TOGETHER", 40)
    (tmp_path / "part.csv").write_text("colour,size,count\n,1.5,3\n,2.5,4\n")
    flags = ("--with", "draw", "-n", 9, "--particles", 8, "--json")
    filled = objects(command("fill", named_run, tmp_path / "part.csv", *flags).out)
    assert [row["size"] for row in filled] == [1.5] * 9 + [2.5] * 9
    assert together == [40, 40, 40, 24]


def test_draws_follow_the_known_cells(command, learnt, tmp_path):
    (tmp_path / "part.csv").write_text("class,colour\nyes,\n,red\n")
    flags = ("--with", "draw", "-n", 20, "--seed", 1)
    _, *drawn = rows_of(command("fill", learnt, tmp_path / "part.csv", *flags).out)
    assert [row[3] for row in drawn[:20]] == ["yes"] * 20
    assert "red" not in [row[0] for row in drawn[:20]]
    assert [row[0] for row in drawn[20:]] == ["red"] * 20
    assert [row[3] for row in drawn[20:]].count("no") >= 18
    assert len({row[1] for row in drawn}) > 10


def test_probabilities_are_written_to_a_second_file(ok, refused, learnt, tmp_path):
    (tmp_path / "part.csv").write_text("colour,count,height,class\n,4,1.5,yes\nred,,,no\n")
    arguments = ("fill", learnt, tmp_path / "part.csv", "--out", tmp_path / "filled.csv")
    ok(*arguments, "--probabilities", tmp_path / "shares.csv")
    with (tmp_path / "shares.csv").open() as lines:
        cells = list(csv.DictReader(lines))
    assert [(cell["line"], cell["column"]) for cell in cells] == [("2", "colour"), ("3", "count"), ("3", "height")]
    assert sum(json.loads(cells[0]["shares"]).values()) == pytest.approx(1)
    filled = rows_of((tmp_path / "filled.csv").read_text())
    assert cells[0]["value"] == filled[1][0]
    assert cells[0]["how"] == "exact"
    draw = ("--with", "draw", "--probabilities", tmp_path / "shares.csv")
    assert "--probabilities: draws have none" in refused(*arguments, *draw)
    assert "-n: requires --with draw" in refused("fill", learnt, tmp_path / "part.csv", "-n", 2)


def test_a_table_that_cannot_be_filled_is_refused(refused, learnt, tmp_path):
    (tmp_path / "partial.csv").write_text("weight\n3\n")
    for verb in ("fill", "predict"):
        assert "the column 'weight' was not in training" in refused(verb, learnt, tmp_path / "partial.csv")
        assert "no such file" in refused(verb, learnt, tmp_path / "nowhere.csv")
    (tmp_path / "partial.csv").write_text("colour,count\nred,many\n")
    assert "line 2, column 'count'" in refused("fill", learnt, tmp_path / "partial.csv")


def test_a_column_without_a_value_in_training_stays_empty_and_is_named(ok, tmp_path):
    path, run = tmp_path / "rows.csv", tmp_path / "run"
    path.write_text("a,b,c\n" + "".join(f"{n % 5},{n % 7},\n" for n in range(100)))
    ok("train", path, "--out", run, "--steps", 2, "--hidden-size", 4)
    (tmp_path / "part.csv").write_text("a,b,c\n1,,\n")
    for flags in ([], ["--with", "draw"]):
        outcome = ok("fill", run, tmp_path / "part.csv", *flags)
        row = rows_of(outcome.out)[1]
        assert row[1]
        assert row[2] == ""
        assert "column c: no value in training, 1 cell stay empty" in outcome.err


def test_python_fills_and_predicts_frames():
    frame = polars.DataFrame({"colour": ["red", "blue", None] * 40, "count": [n % 7 for n in range(120)]})
    run = chainrule.fit(frame, steps=2, hidden_size=4)
    gaps = frame[:4].with_columns(count=polars.Series([1, None, 3, None]))
    filled = run.fill(gaps, seed=0)
    assert isinstance(filled, polars.DataFrame)
    assert filled.schema == frame.schema
    assert filled.null_count().row(0) == (0, 0)
    assert filled["count"][[0, 2]].to_list() == [1, 3]
    found = run.predict(gaps, seed=0)
    assert list(zip(found["index"], found["column"], strict=True)) == [(1, "count"), (2, "colour"), (3, "count")]
    assert len(run.predict(gaps, columns=["colour"])) == 4
    assert len(run.fill(gaps, values="draw", n=3)) == 12
    with pytest.raises(ValueError, match=r"^values: expected"):
        run.fill(gaps, values="best")


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_run_of_a_file_fills_a_frame_of_any_kind(tmp_path, name):
    """A column that is empty in the frame, or missing there, gets the type of its values."""
    kind, path = pytest.importorskip(name), tmp_path / "rows.csv"
    path.write_text("a,b,c,d\n" + "".join(f"{n % 7},{'xyz'[n % 3]},{n % 4 / 4},{n % 5}\n" for n in range(60)))
    run = chainrule.fit(str(path), task="table", steps=1, hidden_size=4)
    filled = run.fill(kind.DataFrame({"a": [1, 2], "b": [None, None], "c": [0.5, 1.5]}), seed=0)
    assert isinstance(filled, kind.DataFrame)
    assert list(filled.columns) == ["a", "b", "c", "d"]
    assert list(filled["a"]) == [1, 2]
    assert set(filled["b"]) <= {"x", "y", "z"}
    assert list(filled["c"]) == [0.5, 1.5]
    assert all(isinstance(value, int | float) for value in filled["d"].to_list())


def test_cells_are_scored_given_all_others(command, learnt, tmp_path):
    (tmp_path / "odd.csv").write_text(",".join(TABLE_COLUMNS) + "\nred,4,1.5,no\ngreen,4,1.5,no\nmauve,4,99,yes\n")
    score = ("score", learnt, tmp_path / "odd.csv", "--per", "cell", "--json")
    cells = objects(command(*score, "--given", "all").out)
    assert [(cell["line"], cell["column"]) for cell in cells[:4]] == [(2, name) for name in TABLE_COLUMNS]
    for cell, row in ((cells[4], ["green", "4", "1.5", "no"]), (cells[7], ["green", "4", "1.5", "no"])):
        names, logs = log_probs(learnt, cell["column"], row)
        assert cell["nats"] == pytest.approx(-logs.log_softmax(0)[names.index(cell["cell"])].item(), abs=1e-3)
    assert cells[7]["expected"].startswith("yes ")
    assert cells[10]["expected"].count(" to ") == 1
    assert cells[10]["low"] < cells[10]["value"] < cells[10]["high"] < 99
    ranked = objects(command(*score, "--given", "all", "--sort").out)
    assert (ranked[0]["column"], ranked[0]["unseen"], ranked[1]["column"]) == ("colour", "yes", "height")
    previous = objects(command(*score).out)
    whole = objects(command("score", learnt, tmp_path / "odd.csv", "--json").out)
    sums = [sum(cell["nats"] for cell in previous[start : start + 4]) for start in (0, 4, 8)]
    assert sums == pytest.approx([row["nats"] for row in whole])
