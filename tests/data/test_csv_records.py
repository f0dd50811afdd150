"""Rows of CSV are cut as Python's `csv` module cuts them, wherever the bytes are divided."""

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule_app.readers.csv_records import cut_records, read_records
from chainrule_app.readers.origin import Origin

WHERE = Origin("rows.csv")


def expected(content, delimiter=","):
    """Rows with their last lines, and whether what follows them is no row, by Python's reader."""
    lines = io.StringIO(content.decode(), newline="")
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    rows = []
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped) or len(stripped) > 1:
                rows.append((reader.line_num, stripped))
    except csv.Error:
        return rows, True
    return rows, False


def cut(content, size, delimiter=","):
    rows, error = [], None
    for records in read_records(io.BytesIO(content), delimiter, WHERE, size=size):
        assert error is None
        rows += records.rows()
        error = records.error
    return rows, error


@given(
    st.lists(st.sampled_from(["a", "é", ",", ";", '"', '"', '""', "\n", "\r\n", " ", '","', '\n"']), max_size=30),
    st.sampled_from([1, 5, 1000]),
    st.sampled_from(",;"),
)
@settings(max_examples=400, deadline=None)
def test_rows_are_those_of_the_csv_module(parts, size, delimiter):
    content = "".join(parts).encode()
    rows, error = cut(content, size, delimiter)
    if error is not None and "looks like a row" in str(error):
        return
    assert (rows, error is not None) == expected(content, delimiter)


def test_line_ends_of_old_machines_end_rows_and_stay_in_cells():
    rows, error = cut(b'a,b\r1,"x\ry"\r2,z', 1000)
    assert (rows, error) == ([(1, ["a", "b"]), (2, ["1", "x\ry"]), (3, ["2", "z"])], None)


@pytest.mark.parametrize(
    ("content", "rows", "message"),
    [
        (b'a,b\n1,"x"y\n3,4\n', 1, "line 2: not a valid row of CSV: ',' expected after '\"': double each quote inside"),
        (b'a,b\n\n1,"x\ny\n3,4\n', 1, "line 3: not a valid row of CSV: .* on to line 5 .unexpected end of data"),
        (b"a,b\n1,\xff\n3,4\n", 1, "line 2: expected UTF-8, got other bytes"),
        (b"a,b\n1,\0\n3,4\n", 1, "line 2: expected text, got a NUL byte"),
        (b'a,b\n1,"x\0\n"\n', 1, "line 2: expected text, got a NUL byte"),
        (
            b'a,b,c\n"x\n1,2,3\ny",2,3\n',
            1,
            "line 2: not a valid row of CSV: .* on to line 4 .every line of it",
        ),
        (b"a," + b"x" * 70, 0, "line 1: a row longer than 0 MiB: split it"),
    ],
)
def test_rows_before_one_that_cannot_be_read_are_read(monkeypatch, content, rows, message):
    if "longer" in message:
        monkeypatch.setattr("chainrule_app.readers.csv_records.LARGEST_ROW", 64)
        content += b"y" * 70
    found, error = cut(content, 1000 if "longer" not in message else 80)
    assert len(found) == rows
    with pytest.raises(ValueError, match=message):
        raise error


@pytest.mark.parametrize("quoted", [False, True])
def test_rows_of_another_width_are_named(quoted):
    first = b'"a",b\n' if quoted else b"a,b\n"
    for content, count, message in (
        (b"1,2\n3,4,5\n6\n", 2, "line 3: expected 2 cells, got 3: put a cell"),
        (b"1,2\n6\n3,4,5\n", 2, "line 3: expected 2 cells, got 1: add the separators"),
        (b'1,2\n  \n"x,y",4\n5,6,7\n', 3, "line 5: expected 2 cells, got 3"),
    ):
        records, rest, _ = cut_records(first + content, ",", WHERE, 0, last=True)
        regular = records.regular(2, WHERE)
        assert (len(regular), rest) == (count, b"")
        with pytest.raises(ValueError, match=message):
            raise regular.error
    records, _, _ = cut_records(first + b"1,2\n \n3,4\n", ",", WHERE, 0, last=True)
    whole = records.of_width(2, WHERE)
    assert ([line for line, _ in whole.rows()], whole.error) == ([1, 2, 4], None)


def test_lines_before_the_rows_are_passed_over_with_their_quotes():
    records = list(read_records(io.BytesIO(b'a "title\r\nthe 2nd\ra,b\n1,2\n'), ",", WHERE, before=2))
    assert [row for one in records for row in one.rows()] == [(3, ["a", "b"]), (4, ["1", "2"])]
