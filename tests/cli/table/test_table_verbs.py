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
from chainrule.heads import Column
from chainrule.models import TableEnsemble, TableMADE
from chainrule_app.readers.delimited import parse_types
from chainrule_app.readers.tables import table_batches
from chainrule_app.tasks.options import OptimisationOptions
from chainrule_app.tasks.table import verbs
from chainrule_app.tasks.table.run import TableRun
from chainrule_app.tasks.table.trial import Trial, try_training


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


def test_several_networks_are_averaged(ok, rows, tmp_path):
    """All verbs compute with the mean, which a resumed run trains further."""
    run = tmp_path / "run"
    ok("train", rows, "--out", run, "--steps", 30, "--hidden-size", 8, "--num-members", 2)
    trained = TableRun.open(run).model()
    assert isinstance(trained, TableEnsemble)
    weights = [member.output.weight for member in trained.members]
    assert not torch.equal(*weights)
    ok("train", "--resume", "--out", run, "--steps", 32)
    scores = [json.loads(line) for line in ok("score", run, rows, "--json").out.splitlines()]
    x = torch.from_numpy(TableRun.open(run).table().valid.copy())
    expected = (-TableRun.open(run).model().log_prob(x)).sort().values
    found = torch.tensor([row["nats"] for row in scores]).double()
    assert all((found - nats).abs().min() < 1e-4 for nats in expected)
    for verb in (("sample", run, "-n", 3, "--seed", 0), ("predict", run, rows, "--column", "colour"), ("inspect", run)):
        ok(*verb)


def test_a_target_is_visited_last_and_chosen_by_its_own_nats(ok, refused, rows, tmp_path):
    run = tmp_path / "run"
    asked = ("train", rows, "--task", "table", "--out", run, "--hidden-size", 8, "--steps", 40)
    outcome = ok(*asked, "--target", "colour")
    trained = TableRun.open(run)
    names = [column.name for column in trained.schema.kept]
    model, target = trained.model(), names.index("colour")
    assert model.order[-1] == target
    best = [record for record in trained.metrics("validation") if record.get("best")][-1]
    x = torch.from_numpy(trained.table().valid.copy())
    logs = model(x).log_prob(x)[:, target].mean().item()
    assert best["target_log_prob"] == pytest.approx(logs, abs=1e-4)
    assert f"colour: {-best['target_log_prob']:.4f} nats given the rest" in outcome.out
    first = json.loads(ok("predict", run, rows, "--column", "colour", "--json").out.splitlines()[0])
    assert first["how"] == "exact"
    cells = torch.from_numpy(next(iter(trained.schema.encoded_blocks(rows, 1)))[1])
    every = cells.repeat(len(trained.schema.kept[target].categories), 1)
    every[:, target] = torch.arange(len(every))
    direct = model(every).log_prob(every)[:, target].exp()
    named = dict(zip(trained.schema.kept[target].categories, direct.tolist(), strict=True))
    possible = {name: share for name, share in first["shares"].items() if share > 0}
    assert len(possible) == 3
    total = sum(named[name] for name in possible)
    for name, share in possible.items():
        assert share == pytest.approx(named[name] / total, abs=1e-4)
    assert "--target: expected one of" in refused(*asked, "--overwrite", "--target", "weight")


def test_a_target_by_name_in_a_file_without_names_is_told_how_to_get_them(tmp_path, refused):
    (tmp_path / "rows.csv").write_text("".join(f"{number % 7},{number % 3}.5\n" for number in range(60)))
    asked = ("train", tmp_path / "rows.csv", "--target", "quality", "--steps", 1, "--out", tmp_path / "run")
    assert "the first row was read as data; see --header" in refused(*asked)


def test_typical_nats_are_computed_once_for_a_loaded_run(run, rows, monkeypatch):
    """A server scored 4,096 held-out rows for each request of one row."""
    loaded = chainrule.load(run)
    first, sizes, measure = loaded.score(rows)["nats"], [], verbs.nats_of

    def counted(model, x):
        sizes.append(len(x))
        return measure(model, x)

    monkeypatch.setattr(verbs, "nats_of", counted)
    assert loaded.score(rows)["nats"] == first
    assert sizes == [200]


def test_scores_do_not_depend_on_the_rows_computed_together(run, rows, monkeypatch):
    expected = list(chainrule.load(run).score(rows, per="row").rows())
    monkeypatch.setattr(verbs, "_LEAST_ROWS", 7)
    monkeypatch.setattr(verbs, "_CELLS", 0)
    found = list(chainrule.load(run).score(rows, per="row").rows())
    assert [row[0] for row in found] == [row[0] for row in expected] == list(range(2, 202))
    assert [row[1] for row in found] == pytest.approx([row[1] for row in expected], abs=1e-4)


def test_a_column_of_cells_gives_the_values_of_each_cell(run, tmp_path):
    odd = tmp_path / "odd.csv"
    odd.write_text("colour,count,height,class\nmauve,12,2.5,yes\n,3.0,NA,no\nred,,1e1,odd\n")
    schema = TableRun.open(run).schema
    ((block, numbers),) = schema.encoded_blocks(odd, 10)
    for index, column in enumerate(schema.kept):
        cells = block.columns[index].texts()
        assert column.values(block.columns[index], numbers[:, index]) == list(map(column.parsed, cells))
        unseen = column.unseen_cells(block.columns[index], numbers[:, index]).tolist()
        assert unseen == [not column.seen(cell) for cell in cells]
    assert [len(block) for block, _ in schema.encoded_blocks(odd, 2)] == [2, 1]


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
    assert "--given: all requires --per cell" in refused("score", run, rows, "--given", "all")
    (tmp_path / "a.txt").write_text("some text\n" * 99)
    assert "--types" in refused("train", tmp_path / "a.txt", "--types", "a=real")
    assert "--hidden-size was 256 and is 9" in refused("train", "--resume", "--out", run, "--hidden-size", 9)
    assert "expected COLUMN=KIND" in refused("train", rows, "--types", "a")
    assert "--types: there is no column 'a'" in refused("train", rows, "--types", "a=real", "--out", tmp_path / "x")
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
    page = (learnt / "report.html").read_text()
    assert "Which column informs about which" in page
    assert page.count('<th scope="row">') == 2 * len(found["columns"])


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
    monkeypatch.setattr("chainrule_app.tasks.model_size.memory", lambda: 1 << 30)
    names = [f"c{n}" for n in range(600)]
    rows = [",".join(str((n * n + k) % 11) for k in range(600)) for n in range(30)]
    (tmp_path / "wide.csv").write_text("\n".join([",".join(names), *rows]))
    message = refused("train", tmp_path / "wide.csv", "--out", tmp_path / "run", "--steps", 1, "--hidden-size", 16384)
    assert "600 columns make a model of" in message
    assert "GiB to train, more than the 1 GiB of this machine: skip columns with --types" in message
    assert not (tmp_path / "run").exists()


def test_a_trial_that_overfits_shortens_the_training(planned, rows, tmp_path, monkeypatch):
    """What is left of the budget trains further models; the flags that are printed repeat the run."""
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: 3.0)
    monkeypatch.setattr("chainrule_app.tasks.table.trial.try_training", lambda *_: Trial(12.0, 3.0, True))
    small = ("--hidden-size", 8, "--components", 1, "--batch-size", 90)
    outcome = planned(rows, "--out", tmp_path / "run", *small, "--budget", "300s")
    assert "a trial stopped improving after 3 passes over the rows: more would overfit" in outcome.err
    assert "--epochs 6 --validate-every 1 --num-members 4" in outcome.err
    planned(rows, "--out", tmp_path / "one", *small, "--budget", "300s", "--num-members", 1)
    assert TableRun.open(tmp_path / "one").config.options.num_members == 1


def test_a_trial_finds_out_when_a_table_is_overfitted():
    """Labels that follow from nothing: what the network learns of them after the first passes is wrong."""
    random = torch.Generator().manual_seed(0)
    columns = [Column("categorical", categories=40), Column("categorical", categories=40)]
    train, valid = torch.randint(40, (2, 300, 2), generator=random).double().unbind()
    batches = table_batches(train.numpy(), 32, 0)
    model = TableMADE(columns, 64, 1, dropout=0.0)

    def nats(trained):
        return -trained.log_prob(valid)

    options = OptimisationOptions(learning_rate=0.03)
    before = [parameter.clone() for parameter in model.parameters()]
    tried = try_training(model, batches, nats, options, torch.device("cpu"), 300.0, 200.0)
    assert tried.overfitted
    assert tried.best < tried.passes < 50
    assert all(map(torch.equal, before, model.parameters()))
    falling = iter(range(100, 0, -1))
    improving = try_training(
        model, batches, lambda _: torch.full((2,), float(next(falling))), options, torch.device("cpu"), 300.0, 4.0
    )
    assert not improving.overfitted
    assert improving.passes == pytest.approx(2, abs=0.2)  # half of the limit


def test_a_longer_trial_that_ends_worse_stops_the_training_at_the_shorter_one():
    columns = [Column("categorical", categories=2)]
    batches = table_batches(torch.zeros(320, 1).double().numpy(), 32, 0)

    def tried(ends):
        """Two trials of 2 and 5 passes; within each the nats fall to its end."""
        seen = []

        def measure(trial):
            seen.append(trial)
            first = sum(other is seen[0] for other in seen)
            return torch.full((2,), ends[trial is not seen[0]] + 0.1 / (first + len(seen)))

        network = TableMADE(columns, 4, 1)
        return try_training(network, batches, measure, OptimisationOptions(), torch.device("cpu"), 1e4, 10.0)

    worse, better = tried((1.0, 1.5)), tried((1.5, 1.0))
    assert (worse.overfitted, better.overfitted) == (True, False)
    assert worse.best == pytest.approx(2, abs=0.2)
    assert worse.most_passes(100.0, 10) == pytest.approx(4, abs=0.3)
    assert better.most_passes(100.0, 10) == 15  # 150 steps, which is more than twice the passes of the trial


def test_a_few_rows_are_not_learnt_by_heart(planned, rows, tmp_path, monkeypatch):
    small = ("--hidden-size", 8, "--components", 1, "--batch-size", 90)
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: 3.0)  # 405 passes of two batches
    monkeypatch.setattr("chainrule_app.tasks.table.trial.try_training", lambda *_: Trial(50.0, 50.0, False))
    outcome = planned(rows, "--out", tmp_path / "run", *small, "--budget", "300s")
    assert "passes over the rows are enough, for each of 2 models that are averaged: dropout 0.5" in outcome.err
    config = TableRun.open(tmp_path / "run").config
    assert (config.duration.epochs, config.options.num_members) == (100, 2)
    assert config.training.validate_every == 20  # ten passes
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


@pytest.mark.parametrize(
    ("most", "given", "direct"), [(1 << 24, {}, True), (9, {}, False), (9, {"direct": True}, True)]
)
def test_wide_tables_have_no_direct_weights_by_default(monkeypatch, tmp_path, most, given, direct):
    """Their number grew with the square of the columns: 170 million of 1,000 columns."""
    monkeypatch.setattr("chainrule_app.tasks.table.task._MOST_DIRECT", most)
    (path := tmp_path / "rows.csv").write_text(
        "a,b,c\n" + "".join(f"{n % 7},{'xyz'[n % 3]},{n % 4}\n" for n in range(60))
    )
    run = chainrule.fit(path, task="table", steps=1, hidden_size=4, num_members=1, out=tmp_path / "run", **given)
    assert (run.model.direct is not None) is direct
