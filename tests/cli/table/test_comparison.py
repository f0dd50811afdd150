"""`chainrule compare real.csv synthetic.csv`: what a synthetic table is worth."""

import json

import pytest
from small_data import write_colours

import chainrule_app


def figures(command, *files):
    outcome = command("compare", *files, "--json")
    assert outcome.status == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()], json.loads(outcome.err.splitlines()[0])


def test_a_sample_of_the_same_rows_is_told_apart_by_nothing(command, real, tmp_path):
    rows, told = figures(command, real, write_colours(tmp_path / "same.csv", 800, 1))
    assert [row["what"] for row in rows] == ["column"] * 3 + ["pair"] * 3
    assert told["columns_distance"] < 0.06
    assert told["classifier"] == pytest.approx(0.5, abs=4 * told["classifier_error"])
    assert told["nearest"] == pytest.approx(told["nearest_held_out"], rel=0.5)
    assert told["copies"] < 0.2


def test_a_lost_association_shows_in_the_pair_and_to_the_classifier(command, real, tmp_path):
    rows, told = figures(command, real, write_colours(tmp_path / "loose.csv", 800, 1, tied=False))
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
    result = chainrule_app.compare_tables(frame, frame.sample(frac=0.5, random_state=0))
    assert result["distance"][0] < 0.05
    assert result.summary["synthetic_rows"] == 400


def test_tables_that_cannot_be_compared_are_refused(refused, real, tmp_path):
    (tmp_path / "other.csv").write_text("colour,weight\nred,1\nblue,2\n")
    assert "the column 'size' is missing" in refused("compare", real, tmp_path / "other.csv")
    assert "expected two tables" in refused("compare", real)


def test_rare_categories_are_compared(command, tmp_path):
    """A run draws them as <other>, which the comparison of the page refused."""
    (tmp_path / "real.csv").write_text("colour,n\n" + "red,1\nblue,2\n" * 40 + "mauve,3\n")
    (tmp_path / "synthetic.csv").write_text("colour,n\n" + "red,1\nblue,2\n<other>,3\n" * 9)
    rows, _ = figures(command, tmp_path / "real.csv", tmp_path / "synthetic.csv")
    assert 0.3 < rows[0]["distance"] < 0.35
