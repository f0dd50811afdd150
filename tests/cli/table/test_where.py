"""`sample --where`, and what is said of tables that cannot be learnt as they are."""

import json
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path

import pytest

import chainrule
from chainrule_app.cli.main import main


@pytest.fixture(scope="module")
def run(real):
    out = real.with_name("run")
    assert main(["train", str(real), "--steps", "60", "--out", str(out)]) == 0
    return out


def drawn(command, run, where, *flags):
    outcome = command("sample", run, "-n", 400, "--where", where, "--seed", 0, "--json", *flags)
    assert outcome.status == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()], json.loads(outcome.err.splitlines()[0])[
        "conditioning"
    ]


def test_known_columns_at_the_beginning_are_conditioned_on_exactly(command, run):
    rows, way = drawn(command, run, "colour=blue")
    assert way == "exact"
    assert {row["colour"] for row in rows} == {"blue"}


def test_later_columns_are_conditioned_on_by_importance_as_enumeration_says(command, run):
    rows, way = drawn(command, run, "size=small", "--particles", 64)
    assert way.startswith("sampling-importance")
    task = chainrule.open_run(run)
    model, columns = task.model(), task.schema.kept
    import torch

    nats = {}
    for colour, size in product(["red", "blue"], ["big", "small"]):
        values = torch.linspace(-4, 4, 801, dtype=torch.float64)  # the weight is summed over a grid
        grid = torch.tensor([[columns[0].encode(colour), columns[1].encode(size), float(v)] for v in values])
        nats[colour, size] = model.log_prob(grid.double()).exp().sum().item()
    share = nats["red", "small"] / (nats["red", "small"] + nats["blue", "small"])
    found = sum(row["colour"] == "red" for row in rows) / len(rows)
    assert found == pytest.approx(share, abs=4 * (share * (1 - share) / len(rows)) ** 0.5 + 0.02)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("colour", "expected COLUMN=VALUE"),
        ("shape=round", "got 'shape'"),
        ("weight=heavy", "--where: "),
        ("colour=red,colour=blue", "expected each column once, got 'colour=red,colour=blue'"),
        ("colour=red\rblue", "expected COLUMN=VALUE,... in one line"),
        ("colour=Red", "column 'colour': 'Red' is not in the training data: did you mean 'red'?"),
        ("colour=rde", "did you mean 'red'?"),
        ("size=no such", "'no such' is not in the training data: expected one of big, small"),
    ],
)
def test_unknown_columns_and_values_are_refused(refused, run, where, message):
    assert message in refused("sample", run, "--where", where)


def test_a_number_outside_the_range_of_training_is_said(command, run):
    outcome = command("sample", run, "-n", 2, "--where", "weight=1e6", "--particles", 4)
    assert outcome.status == 0
    assert "--where: weight=1e6 lies outside the range of training, -" in outcome.err


def test_a_value_never_seen_is_not_taken_for_a_rare_one(ok, refused, command, tmp_path):
    """Rows of Paris were drawn from a model that had never seen Paris, without a word."""
    cities = ["Rome", "Oslo"] * 30 + ["Bern", "Cork", "Brno"]
    lines = [f"{city},{n % 7},{n % 3}" for n, city in enumerate(cities)]
    (tmp_path / "rows.csv").write_text("\n".join(["city,size,first name", *lines]))
    run = tmp_path / "run"
    ok("train", tmp_path / "rows.csv", "--out", run, "--steps", 2, "--hidden-size", 8, "--validation-fraction", 0.05)
    line = refused("sample", run, "--where", "city=Roma")
    assert "'Roma' is rare or not in the training data: did you mean 'Rome'?; city=<other> is any rare value" in line
    with pytest.raises(ValueError, match="where: column 'city': 'Paris' is rare or not in the training data"):
        chainrule.load(run).sample(where={"city": "Paris"})
    assert "conditioning" in ok("sample", run, "--where", "city=<other>", "--particles", 4).err
    assert "of city, size, first name, got 'town'" in refused("sample", run, "--where", "town=Rome")
    (tmp_path / "part.csv").write_text("city,size\nParis,\n,3\nRome,9\n")
    said = command("fill", run, tmp_path / "part.csv", "--particles", 16, "--draws", 4).err
    assert "rare or not in the training data, read as any rare value: city=Paris\n" in said


def test_rows_that_are_copies_of_training_rows_are_counted(command, run, monkeypatch):
    table = chainrule.open_run(run).table()
    rows = [*table.schema.decode(table.train[:2].copy()), ["red", "big", "77.125"], ["<other>", "big", "1"]]
    drawn = "chainrule_app.tasks.table.verbs._drawn"
    monkeypatch.setattr(drawn, lambda *arguments: (arguments[-1](rows), iter(rows))[1])  # the last one counts them
    outcome = command("sample", run, "-n", 4, "--seed", 1)
    assert outcome.err == "rows 4, in training data 2\nseed: 1\n"
    facts = json.loads(command("sample", run, "-n", 4, "--seed", 1, "--json").err)
    assert facts == {"rows": 4, "in_training_data": 2, "seed": 1}


DATES = [f"{datetime(2024, 1, 1) + timedelta(days=n):%Y-%m-%d},{n % 7}.5" for n in range(60)]
TEXTS = [f"it is a {'good' if n % 2 else 'bad'} film number {n},{n % 2}" for n in range(2400)]


@pytest.mark.parametrize(
    ("lines", "advice"),
    [
        (["Date,heat", *DATES], "a different date in each of 54 rows, an identifier: use --task forecast for a series"),
        (
            ["text,label", *TEXTS[:80]],
            "an identifier: use --task classify for texts with labels, leave it out with --types",
        ),
        (["text,label", *TEXTS], "an identifier or free text: use --task classify for texts with labels"),
    ],
)
def test_a_table_of_another_task_is_told_the_task(refused, tmp_path, monkeypatch, lines, advice):
    """The advice was to leave out the dates, or the texts."""
    monkeypatch.chdir(tmp_path)
    path = Path("rows.csv")
    path.write_text("".join(f"{line}\n" for line in lines))
    assert advice in refused("train", path, "--out", tmp_path / "run", "--steps", 1)


def test_other_tables_get_the_remedy_for_a_table(refused, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,b\n" + "".join(f"u{n},{n % 7}\n" for n in range(60)))
    said = refused("train", path, "--out", tmp_path / "run", "--steps", 1)
    assert "column 'id': a different text in each of 54 rows, an identifier: leave it out with --types id=skip" in said
    path.write_text("id,b\n")
    assert "expected at least two rows" in refused("train", path, "--out", tmp_path / "run", "--steps", 1)
    path.write_text("\n".join(["Date,heat", *DATES]))
    said = refused("train", path, "--out", tmp_path / "run", "--steps", 1, "--types", "Date=real")
    assert "line 2, column 'Date': expected a number, got '2024-01-01'" in said
