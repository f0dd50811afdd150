"""Shares of the symbols of a column in training, with which a model of the table begins."""

import math

import numpy as np
import pytest
import torch

from chainrule.heads import Column
from chainrule.models import TableMADE
from chainrule_app.readers.tables.column_schema import OTHER
from chainrule_app.readers.tables.prepare import TableSchema, prepare_table


def prepared(folder, rows, **options):
    path = folder / "rows.csv"
    path.write_text("kind,size\n" + "".join(f"{kind},{size}\n" for kind, size in rows))
    return prepare_table(path, folder / "table", validation=path, **options)


ROWS = [("a", 0), ("a", 3), ("", 0), ("b", ""), ("a", 5), ("b", 0), ("rare", 0), ("a", 0)] * 3
ROWS[6] = ("scarce", 7)


def test_shares_are_the_counts_of_training_rows_and_a_half(tmp_path):
    kind, size = prepared(tmp_path, ROWS).schema.columns
    counts = {"a": 12, "b": 6, "rare": 2, OTHER: 1, None: 3}
    assert set(kind.categories) == set(counts)
    assert kind.shares == pytest.approx([(counts[name] + 0.5) / 26.5 for name in kind.categories])
    numbers = [size for _, size in ROWS if size != ""]
    atoms = [numbers.count(atom) for atom in size.numbers.atoms]
    assert 0 in size.numbers.atoms
    counted = [*atoms, 3, len(numbers) - sum(atoms)]
    assert size.shares == pytest.approx([(count + 0.5) / (24 + len(counted) / 2) for count in counted])
    assert TableSchema.load(tmp_path / "table" / "schema.json").heads() == [kind.column(), size.column()]


def test_a_new_model_expects_the_shares(tmp_path):
    """Its first conditionals were flat, so that a category that never occurred stayed likely for thousands of steps."""
    schema = prepared(tmp_path, ROWS).schema
    torch.manual_seed(0)
    model = TableMADE(schema.heads(), hidden_size=8)
    with torch.no_grad():
        model.output.weight.zero_()
        row = model(torch.tensor([[0.0, 0.0]], dtype=torch.float64))
        kind_column, size_column = schema.kept
        for code, share in enumerate(kind_column.shares):
            x = torch.tensor([[float(code), math.nan]], dtype=torch.float64)
            expected = math.log(share) + math.log(size_column.shares[-2])  # the size is missing
            assert float(row.log_prob(x).sum()) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("prior", [(0.5,), (0.5, 0.5, 0.0), (0.2, 0.3, math.nan)])
def test_a_prior_that_is_none_is_refused(prior):
    with pytest.raises(ValueError, match="prior: expected 3 positive probabilities"):
        Column("categorical", categories=3, prior=prior)


def test_which_rows_lie_outside_the_range_of_training(tmp_path):
    schema = prepared(tmp_path, ROWS).schema
    rows = np.array([[0.0, 3.0], [1.0, 8.0], [0.0, math.nan], [2.0, -1.0], [2.0, 7.0]])
    assert schema.outside(rows).tolist() == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("cells", "doubt"),
    [
        ([f"{n / 8}" for n in range(60)] + ["-"], "60 of 61 different cells are numbers, but not '-' in line 62"),
        ([f"{n},5" for n in range(9)], "written with a point, ungrouped and without a unit, as 66.96, not '0,5'"),
        ([f"1.{n:03},50" for n in range(9)], "written with a point"),
        ([f"${n}.00" for n in range(9)] + ["$1.000"], "written with a point"),
        ([f"{n} %" for n in range(9)], "written with a point"),
        ([f"{n} kg" for n in range(9)], "written with a point, ungrouped and without a unit, as 66.96, not '0 kg'"),
        ([f"{n}kWh" for n in range(9)], "written with a point, ungrouped and without a unit"),
        ([f"{n}" if n % 2 else f"\N{MINUS SIGN}{n}" for n in range(9)], "not '\N{MINUS SIGN}0'"),
        ([f"{n}" if n else "#DIV/0!" for n in range(12)], "'#DIV/0!' is an error of a spreadsheet among numbers"),
        (["#REF!", "red", "blue"], None),
        (["12 Main St", "7 High St"], None),
        ([f"{n}a" for n in range(9)], None),
        ([f"{n}" for n in range(40)] + ["01234"], None),  # postal codes
        (["1", "2", "3", "4", "5+"], None),
        (["10.0.0.1", "10.0.0.2"], None),
        (["red", "blue"], None),
        ([f"{n}" for n in range(40)], None),
    ],
)
def test_a_column_of_words_that_may_be_numbers_is_pointed_out(tmp_path, cells, doubt):
    path = tmp_path / "rows.csv"
    path.write_text("x\ty\n" + "".join(f"{cell}\t{n % 3}\n" for n, cell in enumerate(cells)))
    types = {"x": "categorical"}
    found = prepare_table(path, tmp_path / "table", types=types, validation=path).manifest["columns"][0]["doubt"]
    assert (found is None) if doubt is None else doubt in found


def test_too_many_texts_that_look_like_numbers_are_refused_as_such(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("price\ty\n" + "".join(f"{n},5\t{n % 3}\n" for n in range(1200)))
    with pytest.raises(ValueError, match=r"different texts in 1200 rows, though its cells look like numbers"):
        prepare_table(path, tmp_path / "table", validation=path)


@pytest.mark.parametrize("cell", ["{} kg", "{}%", "\N{MINUS SIGN}{}", '"1,2{:02}.50"', "1'2{:02}"])
def test_different_texts_that_look_like_numbers_are_no_identifiers(tmp_path, cell):
    path = tmp_path / "rows.csv"
    path.write_text("weight,y\n" + "".join(f"{cell.format(n)},{n % 3}\n" for n in range(40)))
    with pytest.raises(ValueError, match=r"a different text in each of 40 rows, though its cells look like numbers"):
        prepare_table(path, tmp_path / "table", validation=path)
