"""`chainrule compare real.csv synthetic.csv`, and `sample --where`: what a synthetic table is worth."""

import json
import random
import shlex
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path

import pytest

import chainrule
from chainrule._app.cli.main import main


def write(path, count, seed, *, tied=True):
    """Rows of a colour, a size that follows it if `tied`, and a weight."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        colour = draw.choice(["red", "red", "blue"])
        size = (colour == "red") == (draw.random() < 0.9) if tied else draw.random() < 0.5
        rows.append(f"{colour},{'big' if size else 'small'},{draw.gauss(0, 1):.3f}")
    path.write_text("colour,size,weight\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    return write(tmp_path_factory.mktemp("tables") / "real.csv", 800, 0)


def figures(command, *files):
    outcome = command("compare", *files, "--json")
    assert outcome.status == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()], json.loads(outcome.err.splitlines()[0])


def test_a_sample_of_the_same_rows_is_told_apart_by_nothing(command, real, tmp_path):
    rows, told = figures(command, real, write(tmp_path / "same.csv", 800, 1))
    assert [row["what"] for row in rows] == ["column"] * 3 + ["pair"] * 3
    assert told["columns_distance"] < 0.06
    assert told["classifier"] == pytest.approx(0.5, abs=4 * told["classifier_error"])
    assert told["nearest"] == pytest.approx(told["nearest_held_out"], rel=0.5)
    assert told["copies"] < 0.2


def test_a_lost_association_shows_in_the_pair_and_to_the_classifier(command, real, tmp_path):
    rows, told = figures(command, real, write(tmp_path / "loose.csv", 800, 1, tied=False))
    pair = next(row for row in rows if (row["column"], row["other"]) == ("colour", "size"))
    assert pair["association_real"] > 0.6 > 0.2 > pair["association_synthetic"]
    assert told["association_difference"] > 0.4
    assert told["classifier"] > 0.6


def test_copies_of_the_real_rows_are_found(command, real):
    _, told = figures(command, real, real)
    assert told["copies"] > 0.85
    assert told["nearest"] == 0 < told["nearest_held_out"]


def test_frames_are_compared_in_python(real):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(real)
    result = chainrule.compare_tables(frame, frame.sample(frac=0.5, random_state=0))
    assert result["distance"][0] < 0.05
    assert result.summary["synthetic_rows"] == 400


def test_tables_that_cannot_be_compared_are_refused(refused, real, tmp_path):
    (tmp_path / "other.csv").write_text("colour,weight\nred,1\nblue,2\n")
    assert "the column 'size' is missing" in refused("compare", real, tmp_path / "other.csv")
    assert "expected two tables" in refused("compare", real)


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


def test_rare_categories_are_compared(command, tmp_path):
    """A run draws them as <other>, which the comparison of the page refused."""
    (tmp_path / "real.csv").write_text("colour,n\n" + "red,1\nblue,2\n" * 40 + "mauve,3\n")
    (tmp_path / "synthetic.csv").write_text("colour,n\n" + "red,1\nblue,2\n<other>,3\n" * 9)
    rows, _ = figures(command, tmp_path / "real.csv", tmp_path / "synthetic.csv")
    assert 0.3 < rows[0]["distance"] < 0.35


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


TEXTS = [f"it is a {'good' if n % 2 else 'bad'} film number {n}" for n in range(80)]


def days(skipped=()):
    dates = [datetime(2024, 1, 1) + timedelta(days=n) for n in range(60) if n not in skipped]
    return [f"{date:%Y-%m-%d},{n % 7}.5,{n * n % 11}" for n, date in enumerate(dates)]


@pytest.mark.parametrize(
    ("name", "lines", "flags"),
    [
        ("rows.csv", ["Date,heat,a b", *days()], ["forecast", "--target", "a b", "--horizon", "10"]),
        ("rows.csv", ["Date,heat,wind", *days({7, 9})], ["forecast", "--target", "wind", "--fill", "--horizon", "10"]),
        ("rows.csv", days(), ["forecast", "--target", "column3", "--horizon", "10"]),
        ("rows.tsv", [f"{text}\t{n % 2}" for n, text in enumerate(TEXTS)], ["classify"]),
        ("rows.tsv", [f'"{text}, he said\t{n % 2}' for n, text in enumerate(TEXTS)], ["classify"]),  # a lost quote
        ("rows.csv", ["id,text,label", *(f"{n},{text},{n % 2}" for n, text in enumerate(TEXTS))], ["classify"]),
        (
            "rows.csv",
            ["n,Kommentar,Note", *(f"{n},{text},{'gut' if n % 2 else 'schlecht'}" for n, text in enumerate(TEXTS))],
            ["classify", "--text-column", "Kommentar", "--label-column", "Note"],
        ),
    ],
)
def test_the_command_for_the_task_of_the_data_is_told(refused, ok, tmp_path, monkeypatch, name, lines, flags):
    """The advice was to leave out the dates, or the texts."""
    monkeypatch.chdir(tmp_path)
    path = Path(name)
    path.write_text("".join(f"{line}\n" for line in lines))
    said = refused("train", path, "--out", tmp_path / "run", "--steps", 1)
    told = said.partition("looks like ")[2].partition(": ")[2].partition(" (or, ")[0]
    assert shlex.split(told) == ["chainrule", "train", str(path), "--task", *flags]
    ok(*shlex.split(told)[1:], "--out", tmp_path / "run", "--steps", 1)


def test_other_tables_get_the_remedy_for_a_table(refused, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,b\n" + "".join(f"u{n},{n % 7}\n" for n in range(60)))
    said = refused("train", path, "--out", tmp_path / "run", "--steps", 1)
    assert "column 'id': a different text in each of 54 rows, an identifier: leave it out with --types id=skip" in said
    path.write_text("id,b\n")
    assert "expected at least two rows" in refused("train", path, "--out", tmp_path / "run", "--steps", 1)
    path.write_text("\n".join(["Date,heat,wind", *days()]))
    said = refused("train", path, "--out", tmp_path / "run", "--steps", 1, "--types", "Date=real")
    assert "line 2, column 'Date': expected a number, got '2024-01-01'" in said
