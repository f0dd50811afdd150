"""Rows of numbers in files of NumPy are the table that they are in memory."""

import numpy as np
import pytest

from chainrule_app.readers.gather import gathered
from chainrule_app.readers.sources import kind_of

ROWS = np.random.default_rng(0).normal(size=(6, 3))


def read(source):
    table = gathered(str(source), "rows")
    return table.names, [cells for _, cells in table.rows()]


def test_rows_of_arrays_are_read_exactly(tmp_path):
    """An .npz of rows held "no images", and as a table "expected UTF-8"."""
    np.save(tmp_path / "a.npy", np.asfortranarray(ROWS))
    np.savez(tmp_path / "a.npz", rows=ROWS, count=6)
    for name in ("a.npy", "a.npz"):
        names, rows = read(tmp_path / name)
        assert names == ["column1", "column2", "column3"]
        assert np.array_equal(np.array(rows, float), ROWS)
        assert kind_of(tmp_path / name) == "table"
    np.save(tmp_path / "b.npy", np.array([True, False, True]))
    assert read(tmp_path / "b.npy") == (["value"], [["1"], ["0"], ["1"]])
    np.savez(tmp_path / "c.npz", x=ROWS, y=-ROWS)
    with pytest.raises(ValueError, match=r"several arrays of rows \(x, y\): name one, as in .*c\.npz:x"):
        read(tmp_path / "c.npz")
    assert float(read(f"{tmp_path / 'c.npz'}:y")[1][0][0]) == -ROWS[0, 0]


def test_arrays_that_can_be_images_are_images(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=np.zeros((5, 4, 4), np.uint8), y_train=np.zeros((5, 1), np.int64))
    assert kind_of(tmp_path / "a.npz") == "image"


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"\x93NUMPY\1\0v\0" + b"{'descr': '<f8', 'fortran_order': False, "
                         b"'shape': (99999, 3), }".ljust(117) + b"\n"])  # fmt: skip
def test_damaged_arrays_are_named(tmp_path, content):
    for name in ("a.npy", "a.npz"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name}"):
            read(tmp_path / name)
