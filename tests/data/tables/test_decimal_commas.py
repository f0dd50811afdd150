"""Tables with decimal commas and tables in Parquet are what CSV with points would be."""

import random

import numpy as np
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule_app.readers.series.prepare import prepare_series
from chainrule_app.readers.tables.cell import GROUPING, with_point
from chainrule_app.readers.tables.prepare import prepare_table
from chainrule_app.readers.tables.table_file import TableFile


@given(st.integers(-(10**12), 10**12), st.integers(1, 6), st.sampled_from(["", *GROUPING]))
def test_a_number_is_the_same_in_both_spellings(whole, digits, grouping):
    number = f"{whole / 7:.{digits}f}"
    assert with_point(f"{whole / 7:_.{digits}f}".replace(".", ",").replace("_", grouping)) == number


@pytest.mark.parametrize("cell", ["1.234", "1,", ",5", "1,5,6", "1,5e3", "12.34,5", "a,5", "1.2345,6", "", "1,5 €"])
def test_other_cells_stay(cell):
    assert with_point(cell) == cell


@pytest.mark.parametrize("header", [True, False])
def test_a_table_is_that_of_points(tmp_path, header):
    draw = random.Random(0)
    rows = [[f"{draw.gauss(0, 2000):.2f}", draw.choice(["red", "a b"]), f"{draw.random():.3f}"] for _ in range(300)]
    names = [["price", "kind", "share"]] * header
    (tmp_path / "point.csv").write_text("".join(",".join(row) + "\n" for row in [*names, *rows]))
    grouped = [[f"{float(price):_.2f}".replace(".", ",").replace("_", "."), *row] for price, *row in rows]
    text = "".join(f"{price};{kind};{share.replace('.', ',')}\n" for price, kind, share in [*names, *grouped])
    (tmp_path / "comma.csv").write_text(text)
    tables = [prepare_table(tmp_path / f"{name}.csv", tmp_path / name) for name in ("point", "comma")]
    assert tables[1].schema == tables[0].schema
    assert [column.kind for column in tables[1].schema.kept] == ["real", "categorical", "real"]
    for part in ("train", "valid"):
        assert np.array_equal(getattr(tables[1], part), getattr(tables[0], part))


def test_commas_between_other_delimiters_are_left_alone(tmp_path):
    (tmp_path / "rows.csv").write_text('a,b\n"1,234",2\n')
    assert [cells for _, cells in TableFile(tmp_path / "rows.csv").rows()] == [["1,234", "2"]]
    (tmp_path / "rows.tsv").write_text("a\tb\n1,234\t2\n")
    assert [cells for _, cells in TableFile(tmp_path / "rows.tsv").rows()] == [["1,234", "2"]]


def test_a_series_is_that_of_points(tmp_path):
    rows = [(f"2024-01-{day:02}", f"{20 + day % 7 / 2:.1f}") for day in range(1, 29)]
    (tmp_path / "point.csv").write_text("date,load\n" + "".join(f"{day},{load}\n" for day, load in rows))
    commas = "".join(f"{day};{load.replace('.', ',')}\n" for day, load in rows)
    (tmp_path / "comma.csv").write_text("date;load\n" + commas)
    point, comma = (
        prepare_series(tmp_path / f"{name}.csv", tmp_path / name, target=None, horizon=2) for name in ("point", "comma")
    )
    assert np.array_equal(point.values, comma.values)


def test_parquet_is_read_row_by_row(tmp_path):
    path = tmp_path / "rows.parquet"
    columns = {"a": ["x", " y", None], "b": [1, -2, 3], "c": [0.5, None, 1e-9], "d": [True, False, True]}
    polars.DataFrame(columns).write_parquet(path)
    file = TableFile(path)
    assert (file.names, file.header) == (["a", "b", "c", "d"], True)
    expected = [["x", "1", "0.5", "True"], [" y", "-2", None, "False"], [None, "3", "1e-9", "True"]]
    assert list(file.rows()) == list(enumerate(expected, start=1))


def test_a_parquet_table_is_the_table_of_its_csv(tmp_path):
    rows = polars.DataFrame({"kind": ["a", "b", "c", "a"] * 50, "size": [n / 8 for n in range(200)]})
    rows.write_parquet(tmp_path / "rows.parquet")
    rows.write_csv(tmp_path / "rows.csv")
    tables = [prepare_table(tmp_path / name, tmp_path / f"{name}.table") for name in ("rows.parquet", "rows.csv")]
    assert np.array_equal(*(np.asarray(table.train) for table in tables))
    assert np.array_equal(*(np.asarray(table.valid) for table in tables))


def test_a_file_that_is_no_parquet_is_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"rows\.parquet: expected a Parquet file .*restore it"):
        TableFile(path)
    polars.DataFrame({"a": range(3000)}).write_parquet(path)
    content = bytearray(path.read_bytes())
    content[4:60] = b"\xff" * 56  # the names are at the end, and whole
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"rows\.parquet: expected a Parquet file .*restore it"):
        list(TableFile(path).rows())
