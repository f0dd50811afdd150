"""Rows of unequal length are padded as they are, one by one or cut to a limit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data._ragged import Ragged
from chainrule.data._store import Store, StoreWriter

ROWS = st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=6)


@given(ROWS, st.none() | st.integers(1, 4), st.data())
def test_padded_rows_are_the_rows_chosen(rows, limit, data):
    ragged = Ragged.of(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6))
    x, lengths = ragged.padded(np.array(chosen, dtype=np.int64), limit, fill=-1)
    expected = [rows[row][:limit] for row in chosen]
    assert x.shape == (len(chosen), max(map(len, expected), default=0))
    assert [row[:length] for row, length in zip(x.tolist(), lengths.tolist(), strict=True)] == expected
    assert all(value == -1 for row, length in zip(x, lengths, strict=True) for value in row[length:])


def test_rows_come_back_from_the_disk_and_damage_is_named(tmp_path):
    with StoreWriter(tmp_path, "data.json") as writer:
        Ragged.of([[1, 2], [], [9]]).save(writer, "values", "offsets")
        writer.finish({})
    store = Store(tmp_path, "data.json", "rows")
    assert [Ragged.load(store, "values", "offsets", 10).row(row).tolist() for row in range(3)] == [[1, 2], [], [9]]
    with pytest.raises(ValueError, match=r"values: damaged .expected numbers from 0 to 8"):
        Ragged.load(store, "values", "offsets", 9)
    with pytest.raises(ValueError, match="offsets: damaged"):
        Ragged.load(store, "values", "offsets", 10, shortest=1)
