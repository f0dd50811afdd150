"""Sampled numbers keep to the range of training without piling up at its ends."""

import csv
import io

import torch

from chainrule._app.tasks.table.task import TableTask


def test_numbers_outside_the_range_are_drawn_again(command, ok, tmp_path):
    """They were moved to the lowest and the highest number, each of which came in a tenth of the rows."""
    rows, run = tmp_path / "rows.csv", tmp_path / "run"
    numbers = torch.rand(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows.write_text("x,y\n" + "".join(f"{number:.6f},{n % 2}\n" for n, number in enumerate(numbers.tolist())))
    ok("train", rows, "--steps", 20, "--out", run)
    table = csv.DictReader(io.StringIO(command("sample", run, "-n", 500, "--seed", 0).out))
    drawn = [float(row["x"]) for row in table]
    low, high = TableTask.open(run).schema.columns[0].bounds
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
