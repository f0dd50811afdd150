"""A CSV file gives the same numbers, the same schema and the same messages wherever its bytes are divided."""

import gzip
import math
import random
from collections import Counter

import numpy as np
import polars
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainrule_app.readers import csv_records, delimited
from chainrule_app.readers.tables import csv_blocks, table_file
from chainrule_app.readers.tables.cell import MISSING, as_integer, as_number
from chainrule_app.readers.tables.columns import CellColumn
from chainrule_app.readers.tables.csv_blocks import CodedColumn, Coding
from chainrule_app.readers.tables.prepare import prepare_table

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
    """Read once in one stretch; and twice in many stretches, cut anywhere, few cells of a column coded."""
    whole = prepared(path, folder / "whole", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_records, "STRETCH", stretch)
        patch.setattr(delimited, "_BEGINNING", stretch)
        patch.setattr(csv_blocks, "_FEWEST_ROWS", 3)
        patch.setattr(csv_blocks, "_SHARE", 1.0)
        patch.setattr(table_file, "KEPT", 0)
        divided = prepared(path, folder / "divided", **options)
    return whole, divided


@given(st.lists(st.sampled_from(NUMBERS + WORDS) | st.floats(-1e6, 1e6).map(repr), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_columns_answer_as_their_cells(cells):
    different = list(dict.fromkeys([*cells, "never"]))
    codes = np.array([different.index(cell) for cell in cells])
    for column in (CellColumn(cells), CodedColumn(codes, CellColumn(different))):
        _answers(column, cells)


def _answers(column, cells):
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
@example([("red", 0, 0.0)] * 29 + [(" x ", 0, 0.0)], [(0, 'a"b')], "\n", False, 1, False)
@settings(max_examples=30, deadline=None)
def test_a_file_is_prepared_alike(tmp_path_factory, rows, oddities, ending, blank, min_count, header):
    lines = [[colour, str(whole), repr(round(real, 3))] for colour, whole, real in rows]
    for place, cell in oddities:
        lines[place % len(lines)][0] = cell
    text = ["colour,whole,real"] * header + [",".join(line) for line in lines] + [""] * blank + ["red,1,0.5"] * blank
    folder = tmp_path_factory.mktemp("alike")
    path = folder / "rows.csv"
    path.write_bytes(ending.join([*text, ""]).encode())
    whole, divided = both_ways(path, folder, min_count=min_count, types={"whole": "integer"} if header else None)
    assert divided == whole


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
    whole, divided = both_ways(path, tmp_path, stretch=997, types={"i": "integer"})
    assert divided == whole
    assert not isinstance(divided, str), divided


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"1,2,3", "line 902: expected 2 cells, got 3"),
        (b'"1,2', "line 902: not a valid row of CSV"),
        (b"\xff,1", "line 902: expected UTF-8"),
        (b"1\0,2", "line 902: expected text, got a NUL byte"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path, row, message):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\n" + b"1,2\n3,4\n5,5\n" * 300 + row + b"\n")
    whole, divided = both_ways(path, tmp_path, stretch=997)
    assert message in divided
    assert divided == whole


def test_few_different_cells_become_codes_that_later_cells_extend(monkeypatch):
    monkeypatch.setattr(csv_blocks, "_FEWEST_ROWS", 4)
    coding = Coding()

    def strip(cells):
        return cells.str.strip_chars()

    first = coding.column("a", polars.Series(["x", "x ", "", "x"] * 3), strip)
    second = coding.column("a", polars.Series(["y", "x ", None]), strip)
    third = coding.column("a", polars.Series(["x", "z"]), strip)
    assert [type(column) for column in (first, second, third)] == [CellColumn, CodedColumn, CodedColumn]
    assert (second.texts(), third.texts()) == (["y", "x", ""], ["x", "z"])
    assert second.counts() == [("y", 1), ("x", 1), ("", 1)]
    many = coding.column("b", polars.Series(list("abcd")))
    assert [type(many), type(coding.column("b", polars.Series(["a"])))] == [CellColumn, CellColumn]


def test_a_column_of_numbers_that_becomes_categories_is_read_again(tmp_path):
    """Its spelling is lost with the first pass."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "".join(f"{row % 7}.50,{row % 3}\n" for row in range(200)))
    schema = prepare_table(path, tmp_path / "table", types={"a": "categorical"}).schema
    assert schema.columns[0].categories[:2] == ("0.50", "1.50")
