"""A categorical target whose near training rows are counted: kept with the run, named, and switched off."""

import csv
import json
import random

import pytest
import torch

from chainrule_app.tasks.run_directory import NEIGHBOURS
from chainrule_app.tasks.table.run import TableRun


@pytest.fixture(scope="session")
def twins(tmp_path_factory):
    """Rows that are there several times, with labels that follow from nothing else; and new ones among them."""
    draw = random.Random(0)
    kinds = [[f"{draw.gauss(0, 1):.3f}", f"{draw.gauss(0, 1):.3f}", draw.choice("abc")] for _ in range(60)]
    home = tmp_path_factory.mktemp("twins")
    for name, count in (("rows", 600), ("new", 20)):
        with (home / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["x", "y", "label"], *(draw.choice(kinds) for _ in range(count))])
    return home


@pytest.fixture(scope="session")
def near(twins, tmp_path_factory):
    from chainrule_app.cli.main import main

    out = tmp_path_factory.mktemp("near") / "run"
    few = ("--steps", "10", "--validate-every", "5", "--hidden-size", "8", "--target", "label")
    assert main(["train", str(twins / "rows.csv"), "--out", str(out), *few]) == 0
    return out


def test_twins_of_the_training_rows_are_known(ok, near, twins):
    found = [
        json.loads(line)
        for line in ok("predict", near, twins / "new.csv", "--column", "label", "--json").out.splitlines()
    ]
    shares = [cell["shares"][cell["actual"]] for cell in found if "actual" in cell]
    assert len(shares) == 20
    assert sum(shares) / 20 > 0.8  # by chance a third


def test_the_recipe_names_them_and_any_cell_is_predicted(ok, near, twins):
    assert "made 256 + neighbours of label" in ok("info", near).out.replace("made 8 ", "made 256 ")
    assert TableRun.open(near).next_steps()[0] == f"chainrule predict {near} FILE --column label"
    rows = ok("predict", near, twins / "new.csv", "--column", "x", "--json").out.splitlines()
    assert len([line for line in rows if '"column": "x"' in line]) == 20
    assert len(ok("sample", near, "-n", 3, "--seed", 0).out.splitlines()) == 4


def test_rows_beyond_the_limit_are_drawn_by_the_seed(ok, twins, tmp_path):
    from chainrule.tensor_files import read_tensors

    asked = ("train", twins / "rows.csv", "--steps", 1, "--hidden-size", 4, "--target", "label", "--neighbours", 50)
    kept = []
    for seed in (0, 0, 1):
        ok(*asked, "--out", tmp_path / "run", "--seed", seed, "--overwrite")
        kept.append(read_tensors(tmp_path / "run" / NEIGHBOURS)[0]["rows"])
        assert kept[-1].shape == (50, 3)
    train = TableRun.open(tmp_path / "run").table().train.tolist()
    assert torch.equal(kept[0], kept[1])
    assert all(row in train for row in kept[2].tolist())


def test_they_are_left_out_where_nothing_is_asked_of_a_category(ok, refused, twins, tmp_path):
    asked = ("train", twins / "rows.csv", "--out", tmp_path / "run", "--steps", 1, "--hidden-size", 4, "--overwrite")
    for more in (("--target", "x"), ("--target", "label", "--neighbours", 0), ("--target", "label", "--plain"), ()):
        assert "neighbours of" not in ok(*asked, *more).err
        assert not (tmp_path / "run" / NEIGHBOURS).exists()
    assert "--neighbours: requires --target" in refused(*asked, "--neighbours", 5)


def test_an_export_keeps_them_and_says_so(ok, near, twins, tmp_path):
    outcome = ok("export", near, "--to", "hub", "--out", tmp_path / "hub")
    assert f"{NEIGHBOURS} holds rows of the training table" in outcome.out + outcome.err
    found = [
        ok("predict", run, twins / "new.csv", "--column", "label", "--json").out for run in (near, tmp_path / "hub")
    ]
    assert [line for line in found[0].splitlines() if "actual" in line] == [
        line for line in found[1].splitlines() if "actual" in line
    ]


def test_a_run_that_lost_them_says_so(near, tmp_path):
    from shutil import copytree

    copytree(near, tmp_path / "run")
    (tmp_path / "run" / NEIGHBOURS).unlink()
    with pytest.raises(FileNotFoundError, match="restore it, or train again"):
        TableRun.open(tmp_path / "run").model()
