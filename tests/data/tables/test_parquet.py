"""Parquet, as polars writes it, is the table that CSV would be; damaged files are refused in one line."""

import numpy as np
import polars
import pytest

from chainrule.data import prepare_table
from chainrule.data._tables import TableFile


def test_parquet_is_read_row_by_row(tmp_path):
    path = tmp_path / "rows.parquet"
    columns = {"a": ["x", " y", None], "b": [1, -2, 3], "c": [0.5, None, 1e-9], "d": [True, False, True]}
    polars.DataFrame(columns).write_parquet(path)
    file = TableFile(path)
    assert (file.names, file.header) == (["a", "b", "c", "d"], True)
    expected = [["x", "1", "0.5", "True"], ["y", "-2", "", "False"], ["", "3", "1e-09", "True"]]
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
