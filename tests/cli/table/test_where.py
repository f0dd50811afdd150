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
    ],
)
def test_unknown_columns_and_values_are_refused(refused, run, where, message):
    assert message in refused("sample", run, "--where", where)


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
