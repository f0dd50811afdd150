"""Sampled numbers keep to the range of training without piling up at its ends."""

import csv
import io

import torch

from chainrule._app.cli.main import main
from chainrule._app.tasks.table.task import TableTask


def test_numbers_outside_the_range_are_drawn_again(tmp_path, capsys):
    """They were moved to the lowest and the highest number, each of which came in a tenth of the rows."""
    rows, run = tmp_path / "rows.csv", tmp_path / "run"
    numbers = torch.rand(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows.write_text("x,y\n" + "".join(f"{number:.6f},{n % 2}\n" for n, number in enumerate(numbers.tolist())))
    assert main(["train", str(rows), "--steps", "20", "--out", str(run)]) == 0
    capsys.readouterr()
    assert main(["sample", str(run), "-n", "500", "--seed", "0"]) == 0
    drawn = [float(row["x"]) for row in csv.DictReader(io.StringIO(capsys.readouterr().out))]
    low, high = TableTask.open(run).schema.columns[0].bounds
    assert low <= min(drawn)
    assert max(drawn) <= high
    assert sum(number in (low, high) for number in drawn) < 5


def test_a_cell_that_training_had_none_of_is_marked(tmp_path, capsys):
    rows, run, new = tmp_path / "rows.csv", tmp_path / "run", tmp_path / "new.csv"
    rows.write_text("x,y\n" + "".join(f"{'abc'[n % 3]},{n % 2}\n" for n in range(400)))
    new.write_text("x,y\na,0\nfax,1\n")
    assert main(["train", str(rows), "--steps", "20", "--out", str(run)]) == 0
    capsys.readouterr()
    assert main(["score", str(run), str(new), "--sort"]) == 0
    heading, first = capsys.readouterr().out.splitlines()[:2]
    assert heading.split()[-1] == "unseen"
    assert first.split()[0] == "3"
    assert first.split()[2:4] == ["x", "fax"]
    assert first.split()[-1] == "x"  # the column whose cell training had none of
