"""A CSV read by polars and by Python's reader gives the same numbers, the same schema and the same messages."""

import gzip
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule_app.readers.tables import blocks, table_file
from chainrule_app.readers.tables.blocks import CellColumn
from chainrule_app.readers.tables.cell import MISSING, as_integer, as_number
from chainrule_app.readers.tables.prepare import prepare_table
from chainrule_app.readers.tables.table_file import TableFile

NUMBERS = ["0", "-0", "+5", "007", "1.", ".5", "1e3", "1E-400", "1e999", "inf", "-Infinity", "9007199254740993", "-12"]
WORDS = ["red", "a b", "é", "1_000", "٣", "0x10", "nan", "\xa0x", "Inf.", "--", *sorted(MISSING)]


def prepared(path, folder, **options):
    """Schema, numbers and counts, or the message."""
    try:
        table = prepare_table(path, folder, **options)
    except ValueError as error:
        return str(error)
    return table.schema, table.train.tobytes(), table.valid.tobytes(), table.manifest


def both_ways(path, folder, stretch=97, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_file, "_WIDEST", 0)
        exact = prepared(path, folder / "exact", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "STRETCH", stretch)  # many stretches, cut anywhere
        quick = prepared(path, folder / "quick", **options)
    return exact, quick


@given(st.lists(st.sampled_from(NUMBERS + WORDS) | st.floats(-1e6, 1e6).map(repr), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_columns_answer_as_their_cells(cells):
    column = CellColumn(cells)
    assert column.texts() == cells
    assert column.counts() == list(Counter(cells).items())
    assert column.counts({"red", "0"}) == [
        (cell, count) for cell, count in Counter(cells).items() if cell in ("red", "0")
    ]
    missing = [cell in MISSING for cell in cells]
    assert column.missing().tolist() == missing
    known = {"red": 0, "0": 1, "": 2}
    assert column.codes(known, 7.0).tolist() == [known.get(cell, 7.0) for cell in cells]
    numbers = [None if gap else as_number(cell) for cell, gap in zip(cells, missing, strict=True)]
    finite = [number is not None and math.isfinite(number) for number in numbers]
    kinds = {
        "word": [number is None and not gap for number, gap in zip(numbers, missing, strict=True)],
        "infinite": [number is not None and math.isinf(number) for number in numbers],
        "fraction": [real and as_integer(cell) is None for real, cell in zip(finite, cells, strict=True)],
    }
    found = column.numbers()
    assert [getattr(found, kind) for kind in kinds] == [
        kind.index(True) if any(kind) else None for kind in kinds.values()
    ]
    expected = np.array([number if real else np.nan for number, real in zip(numbers, finite, strict=True)], np.float64)
    assert found.values.tobytes() == expected.tobytes()


cells = st.sampled_from(["red", "blue", "NA", "", '"a, b"', '"say ""no"""', " x ", "é", '""', "green"])
odd = st.sampled_from(['a"b', '"two\nlines"', ' "late"', '"open', "x\0", "\x1f", "1,2", '"a"b'])


@given(
    rows=st.lists(st.tuples(cells, st.integers(-99, 99), st.floats(-9, 9)), min_size=30, max_size=80),
    oddities=st.lists(st.tuples(st.integers(0, 79), odd), max_size=2),
    ending=st.sampled_from(["\n", "\r\n"]),
    blank=st.booleans(),
    min_count=st.sampled_from([1, 2]),
    header=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_a_file_is_prepared_alike(tmp_path_factory, rows, oddities, ending, blank, min_count, header):
    lines = [[colour, str(whole), repr(round(real, 3))] for colour, whole, real in rows]
    for place, cell in oddities:
        lines[place % len(lines)][0] = cell
    text = ["colour,whole,real"] * header + [",".join(line) for line in lines] + [""] * blank + ["red,1,0.5"] * blank
    folder = tmp_path_factory.mktemp("alike")
    path = folder / "rows.csv"
    path.write_bytes(ending.join([*text, ""]).encode())
    exact, quick = both_ways(path, folder, min_count=min_count, types={"whole": "integer"} if header else None)
    assert quick == exact


@pytest.mark.parametrize("zipped", [False, True])
def test_many_rows_of_many_kinds_are_prepared_alike(tmp_path, zipped):
    draw = random.Random(3)
    colours = ["red", "blue", "NA", '"a, b"', "été"]
    lines = [
        f"{draw.choice(colours)};{draw.randrange(10**9)};{draw.gauss(0, 1):.{draw.randrange(4)}f};{draw.random()!r}"
        for _ in range(400)
    ]
    content = "\n".join(["c;i;r;x", *lines]).replace('"a, b"', '"a; b"').encode()
    path = tmp_path / ("rows.csv.gz" if zipped else "rows.csv")
    path.write_bytes(gzip.compress(content) if zipped else content)
    exact, quick = both_ways(path, tmp_path, stretch=997, types={"i": "integer"})
    assert quick == exact
    assert not isinstance(quick, str), quick


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"1,2,3", "line 902: expected 2 cells, got 3"),
        (b'"1,2', "line 902: no row of a table"),
        (b"\xff,1", "line 902: expected UTF-8"),
        (b"1\0,2", "line 902: expected text, got a NUL byte"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path, row, message):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\n" + b"1,2\n3,4\n5,5\n" * 300 + row + b"\n")
    exact, quick = both_ways(path, tmp_path, stretch=997)
    assert message in quick
    assert quick == exact


def test_plain_rows_are_not_left_to_the_exact_reader(tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    path.write_bytes(b'a,b\r\n"x, y",2\r\nz, 4\r\n')
    monkeypatch.setattr(TableFile, "_listed", None)
    (block,) = TableFile(path).blocks()
    assert [[column.cell(row) for column in block.columns] for row in range(2)] == [["x, y", "2"], ["z", "4"]]
    assert block.lines.tolist() == [2, 3]
