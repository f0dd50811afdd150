"""Rows of text become numbers and the same rows again; what cannot is refused in one line."""

import gzip
import itertools
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule_app.readers.tables.column_facts import ColumnFacts
from chainrule_app.readers.tables.column_schema import OTHER, ColumnSchema
from chainrule_app.readers.tables.columns import CellColumn
from chainrule_app.readers.tables.prepare import TableSchema, open_table, prepare_table, table_batches, table_evaluation
from chainrule_app.readers.tables.record_blocks import blocks_of_rows
from chainrule_app.readers.tables.table_file import TableFile

NAN = math.nan


def csv_file(folder, lines, name="rows.csv"):
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def mixed(rows=60):
    lines = ["colour,count,zip,height"]
    for n in range(rows):
        colour = ["red", "blue", "green", "?"][n % 4] if n % 7 else '"red, or so"'
        lines.append(f"{colour},{n * n % 101},0{n % 9}1,{'' if n % 11 == 3 else n / 7}")
    return lines


@pytest.fixture
def table(tmp_path):
    return prepare_table(csv_file(tmp_path, mixed()), tmp_path / "table", min_count=1)


def test_kinds_are_found(table):
    assert [column.kind for column in table.schema.columns] == ["categorical", "integer", "categorical", "real"]
    assert table.train.shape == (54, 4)
    assert table.valid.shape == (6, 4)


def test_rows_come_back_cell_by_cell(table, tmp_path):
    for line, cells, numbers in table.schema.encoded(tmp_path / "rows.csv"):
        (again,) = table.schema.decode(np.array([numbers]))
        expected = [None if cell in ("", "?") else cell for cell in cells]
        assert again[:3] == expected[:3], line
        assert again[3] == expected[3] or float(again[3]) == float(expected[3])


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=5),
            st.integers(-(2**53), 2**53),
            st.floats(-1e100, 1e100),
        ),
        min_size=3,
        max_size=30,
    )
)
@settings(max_examples=40, deadline=None)
def test_any_row_comes_back(rows):
    facts = [ColumnFacts(name, "rows") for name in ("word", "whole", "fraction")]
    cells = [[f"w{word}", str(whole), repr(fraction)] for word, whole, fraction in rows]
    cells += [["wa", "1", "0.5"], ["wb", "2", "1.5"], ["wc", "3", "-2.5"]]
    (block,) = blocks_of_rows(enumerate(cells))
    for column, own in zip(facts, block.columns, strict=True):
        column.add(own, np.ones(len(cells), dtype=bool), block.lines)
    schema = TableSchema.fit(facts, True, {"word": "categorical", "whole": "integer"}, 1)
    again = list(schema.decode(np.array([schema.encode(row) for row in cells])))
    assert [row[:2] for row in again] == [row[:2] for row in cells]
    assert [float(row[2]) for row in again] == [float(row[2]) for row in cells]


def test_the_schema_knows_training_rows_only_and_is_saved_whole(tmp_path):
    lines = mixed(100)
    first = prepare_table(csv_file(tmp_path, lines), tmp_path / "one", seed=3)
    held_out = {tuple(row) for row in first.schema.decode(first.valid)}
    assert len(held_out) == 10
    assert TableSchema.load(tmp_path / "one" / "schema.json") == first.schema
    mean = float(np.mean(first.train[:, 1]))
    assert first.schema.heads()[1].centre == pytest.approx(mean)
    again = open_table(tmp_path / "one")
    assert np.array_equal(again.train, first.train, equal_nan=True)


def test_a_type_may_be_said_and_a_column_left_out(tmp_path):
    path = csv_file(tmp_path, mixed())
    table = prepare_table(path, tmp_path / "t", types={"count": "categorical", "height": "skip"})
    assert [column.kind for column in table.schema.kept] == ["categorical"] * 3
    assert table.train.shape[1] == 3
    with pytest.raises(ValueError, match="types: there is no column 'size'"):
        prepare_table(path, tmp_path / "t", types={"size": "real"})
    with pytest.raises(ValueError, match="line 2, column 'colour': expected a number, got 'red, or so'"):
        prepare_table(path, tmp_path / "t", types={"colour": "real"})
    with pytest.raises(ValueError, match="column 'height': expected an integer"):
        prepare_table(path, tmp_path / "t", types={"height": "integer"})


def test_frequent_numbers_are_atoms():
    facts = ColumnFacts("gain", "rows")
    cells = ["0" if line % 10 else str(1000 + 37 * line) for line in range(1000)]
    facts.add(CellColumn(cells), np.ones(1000, dtype=bool), np.arange(1000))
    column = facts.numbers("integer", missing=False)
    assert column.atoms == (0.0,)
    assert column.low == 0


def test_an_unseen_category_is_an_error_or_other(tmp_path):
    path = csv_file(tmp_path, ["a,b"] + [f"{'xy'[n % 2]},{n}" for n in range(20)])
    strict = prepare_table(path, tmp_path / "strict", min_count=1).schema
    other = csv_file(tmp_path, ["a,b", "x,3", "z,4"], "new.csv")
    with pytest.raises(ValueError, match=r"new.csv line 3, column 'a': the category 'z' was not in training"):
        list(strict.encoded(other))
    lenient = prepare_table(path, tmp_path / "lenient", min_count=2).schema
    rows = [numbers for _, _, numbers in lenient.encoded(other)]
    assert list(lenient.decode(np.array(rows))) == [["x", "3"], [OTHER, "4"]]


def test_another_file_has_the_same_header_in_any_order(tmp_path, table):
    lines = [",".join(reversed(row.split(","))) for row in ["colour,count,zip,height", "red,3,001,2.5"]]
    ((_, cells, _),) = table.schema.encoded(csv_file(tmp_path, lines, "turned.csv"))
    assert cells == ["red", "3", "001", "2.5"]
    for header, message in (
        ("colour,zip,height", "the column 'count' is missing"),
        ("colour,count,zip,height,age", "the column 'age' was not in training"),
        ("Colour,count,zip,height", "the column 'colour' is missing"),
    ):
        with pytest.raises(ValueError, match=message):
            list(table.schema.encoded(csv_file(tmp_path, [header], "changed.csv")))


def test_without_a_header_columns_are_numbered_and_counted(tmp_path):
    path = csv_file(tmp_path, [f"{n // 2},{n % 3}" for n in range(40)])
    table = prepare_table(path, tmp_path / "table")
    assert [column.name for column in table.schema.columns] == ["column1", "column2"]
    assert len(table.train) + len(table.valid) == 40
    with pytest.raises(ValueError, match="expected 2 columns without a header, got 3"):
        list(table.schema.encoded(csv_file(tmp_path, ["1,2,3"], "wide.csv")))


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_and_compression_are_seen(tmp_path, separator):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(f"name{separator} size\nä b {separator}1\n\n".encode("utf-8-sig")))
    file = TableFile(path)
    assert file.names == ["name", "size"]
    assert list(file.rows()) == [(2, ["ä b", "1"])]


@pytest.mark.parametrize(
    ("first", "names"),
    [
        ("a,b", ["a", "b"]),
        (",b", ["column1", "b"]),  # the index that pandas writes
        ("a,1", None),
        ("a,?", None),
        ('a,"1.234,5"', None),  # a number with a decimal comma
    ],
)
def test_a_header_is_told_from_a_row(tmp_path, first, names):
    file = TableFile(csv_file(tmp_path, [first, "x,2"]))
    assert file.header == (names is not None)
    assert file.names == (names or ["column1", "column2"])
    assert len(list(file.rows())) == 2 - file.header
    assert TableFile(tmp_path / "rows.csv", header=False).names == ["column1", "column2"]


BAD = {
    "constant": (["a,b"] + ["1,?"] * 20, "rows.csv: every column is constant in the training rows"),
    "infinite": (["a,b"] + [f"{n}.5,{n}" for n in range(20)] + ["inf,1"], "line 22, column 'a': expected a finite num"),
    "ragged": (["a,b"] + [f"{n},{n}" for n in range(20)] + ["1,2,3"], "line 22: expected 2 cells, got 3"),
    "identifier": (["a,b"] + [f"u{n},{n}" for n in range(2000)], "an identifier or free text"),
    "twice": (["a,b"], "expected at least two rows with a value to train on, got 0"),
    "few": (["a,b", "1,2", "2,3", "3,4"], "expected at least 10 rows, one of them to hold out"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_refused_in_one_line(tmp_path, name):
    lines, message = BAD[name]
    path = csv_file(tmp_path, lines)
    with pytest.raises(ValueError) as error:
        prepare_table(path, tmp_path / "table", min_count=1)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("count", "inf", "expected a finite number"),
        ("count", "1.5", "expected an integer"),
        ("count", "-4", "expected an integer >= 0"),
        ("count", "many", "expected a number"),
        ("count", "nan", "an empty cell, though the column had none in training"),
        ("zip", "", "an empty cell"),
        ("height", "1e999", "expected a finite number"),
    ],
)
def test_a_cell_that_does_not_fit_is_refused(table, column, cell, message):
    (schema,) = [known for known in table.schema.columns if known.name == column]
    with pytest.raises(ValueError, match=message):
        schema.encode(cell)


def test_bytes_that_are_no_text_and_a_broken_archive_are_refused(tmp_path):
    (tmp_path / "latin.csv").write_bytes(b"a,b\n" + b"x,1\n" * 5000 + "é,1\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"expected UTF-8.*: convert the file"):
        list(TableFile(tmp_path / "latin.csv").rows())
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"a,b\n" + bytes(range(48, 58)) * 9999)[:60])
    with pytest.raises(ValueError, match="cannot be read"):
        list(TableFile(tmp_path / "cut.csv.gz").rows())
    with pytest.raises(FileNotFoundError, match="no such file"):
        TableFile(tmp_path / "none.csv")


def test_a_damaged_schema_is_refused(table, tmp_path):
    path = tmp_path / "table" / "schema.json"
    for old, new in (('"format": 5', '"format": 9'), ('"categorical"', '"text"'), ('"centre"', '"middle"')):
        text = path.read_text()
        assert old in text
        (tmp_path / "schema.json").write_text(text.replace(old, new))
        with pytest.raises(ValueError, match="damaged"):
            TableSchema.load(tmp_path / "schema.json")
    column = next(column for column in TableSchema.load(path).columns if column.bounds is not None)
    low, high = column.bounds
    with pytest.raises(ValueError, match="bounds: expected two numbers in order"):
        replace(column, bounds=(high + 1, low))


def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("chainrule_app.readers.csv_records.STRETCH", 1 << 16)  # shorter than either file
    monkeypatch.setattr("chainrule_app.readers.delimited._BEGINNING", 1 << 16)
    monkeypatch.setattr("chainrule_app.readers.tables.table_file.KEPT", 1 << 16)
    prepare_table(csv_file(tmp_path, ["a,b", "1,2", "3,4"] * 9), tmp_path / "first")  # imports take memory too
    peaks = []
    for rows in (20_000, 80_000):
        path = csv_file(tmp_path, itertools.chain(["a,b"], (f"{n % 17},{n % 97 / 4}" for n in range(rows))))
        tracemalloc.start()
        prepare_table(path, tmp_path / str(rows))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.6 * peaks[0]  # a block of rows is held as lists; four times as many rows are not


def test_an_epoch_reads_every_row_once():
    rows = np.arange(46.0).reshape(23, 2)
    batches = table_batches(rows, 5, seed=1)
    assert batches.steps_per_epoch == 4
    read = np.concatenate([batches.at(step).x.numpy() for step in range(4)])
    assert len(np.unique(read[:, 0])) == 20
    assert not np.array_equal(batches.at(0).x, batches.at(4).x)
    held_out = [batch.x for batch in table_evaluation(rows, 10)]
    assert np.array_equal(np.concatenate(held_out), rows)


def test_a_missing_number_is_no_number():
    facts = ColumnFacts("age", "rows")
    facts.add(CellColumn(["1", "2", "3", "NA", "nan"]), np.ones(5, dtype=bool), np.arange(5))
    schema = ColumnSchema.fit(facts, "integer", 1)
    assert math.isnan(schema.encode("?"))
    assert schema.decode(NAN) is None


def test_a_name_given_twice_is_refused_and_words_that_repeat_are_rows(tmp_path):
    with pytest.raises(ValueError, match="the header names 'a' twice: rename one, or pass header=\"no\""):
        TableFile(csv_file(tmp_path, ["a,b,a", "x,y,z", "u,v,w"]))
    file = TableFile(csv_file(tmp_path, ["yes,no,yes", "no,no,yes", "no,yes,no"]))
    assert not file.header
    assert len(list(file.rows())) == 3


@pytest.mark.parametrize(
    ("column", "flag"),
    [
        ([str(n) for n in range(100, 160)], "id=integer"),  # in order
        ([str(n * 37 % 61) for n in range(60)], "id=integer"),  # all of a range
        ([f"u{n * 37 % 61}" for n in range(60)], "id=categorical"),
    ],
)
def test_an_identifier_is_refused_unless_it_is_asked_for(tmp_path, column, flag):
    path = csv_file(tmp_path, ["id,b"] + [f"{cell},{n % 7}" for n, cell in enumerate(column)])
    with pytest.raises(ValueError) as error:
        prepare_table(path, tmp_path / "table")
    assert "column 'id': a different" in str(error.value)
    assert f'leave it out with types="id=skip", or keep it with types="{flag}"' in str(error.value)
    kept = prepare_table(path, tmp_path / "table", types={"id": flag.partition("=")[2]})
    assert [column.name for column in kept.schema.kept] == ["id", "b"]


def test_columns_that_cannot_be_used_are_refused_together(tmp_path):
    path = csv_file(tmp_path, ["a,b,c,d"] + [f"u{n},{n % 7},{n},{n % 3}" for n in range(60)])
    with pytest.raises(ValueError) as error:
        prepare_table(path, tmp_path / "table")
    assert str(error.value).endswith(
        'leave it out with types="a=skip", or keep it with types="a=categorical"; 1 more cannot be used either: '
        'types="a=skip,c=skip" leaves them out'
    )
    with pytest.raises(ValueError, match=r"types=.d=categorical,a=skip,c=skip. leaves them out$"):
        prepare_table(path, tmp_path / "table", types={"d": "categorical"})
    kept = prepare_table(path, tmp_path / "table", types=dict.fromkeys("ac", "skip"))
    assert [column.name for column in kept.schema.kept] == ["b", "d"]


@pytest.mark.parametrize("min_count", [1, 2])
def test_constant_and_empty_columns_are_kept(tmp_path, min_count):
    path = csv_file(tmp_path, ["a,b,c"] + [f"1,{n % 7},?" for n in range(60)])
    schema = prepare_table(path, tmp_path / "table", min_count=min_count).schema
    assert [column.kind for column in schema.kept] == ["categorical", "integer", "categorical"]
    assert [column.categories for column in schema.kept if column.numbers is None] == (
        [("1",), (None,)] if min_count == 1 else [("1", "<other>"), ("<other>", None)]
    )
    assert schema.unseen()[::2] == ([None, None] if min_count == 1 else [1, 0])
    with pytest.raises(ValueError, match="column 'c': all 54 training rows are missing"):
        prepare_table(path, tmp_path / "other", min_count=min_count, types={"c": "real"})


def test_many_columns_that_cannot_be_used_are_counted(tmp_path):
    rows = [",".join([f"u{n}"] * 40) for n in range(60)]
    path = csv_file(tmp_path, [",".join(f"column{n}" for n in range(40)), *rows])
    with pytest.raises(ValueError, match=r"types=.column0=categorical.; 39 more cannot be used either$"):
        prepare_table(path, tmp_path / "table")


def test_few_integers_that_differ_are_no_identifier(tmp_path):
    lines = ["price,b"] + [f"{n * 7919 % 100003},{n % 7}" for n in range(60)]
    assert prepare_table(csv_file(tmp_path, lines), tmp_path / "table").schema.columns[0].kind == "integer"


def test_numbers_are_written_with_the_digits_and_in_the_range_of_the_data(tmp_path):
    lines = ["price,size,tiny,count"] + [
        f"{n % 50 + 0.5:.2f},{n % 40 / 4:g},{n % 9 + 1}e-7,{n % 30 - 7}" for n in range(99)
    ]
    price, size, tiny, count = prepare_table(csv_file(tmp_path, lines), tmp_path / "table").schema.columns
    assert [price.decode(x) for x in (3.14159, -9.0, 1e9, NAN)] == ["3.14", "0.50", "49.50", None]
    assert [size.decode(x) for x in (3.14159, 7.0, 0.5, -0.001)] == ["3.14", "7", "0.5", "0"]
    assert tiny.decode(2.5e-7) == "2.5e-07"
    assert [count.decode(x) for x in (-100.0, 3.0, 100.0)] == ["-7", "3", "22"]
    assert ColumnSchema.from_json(price.to_json()) == price


def test_the_schema_says_what_training_had_none_of(tmp_path):
    lines = ["a,b,c,d"] + [f"{'xy'[n % 2]},{n % 9},{n % 9 if n % 4 else ''},{'z' if n < 40 else n}" for n in range(60)]
    schema = prepare_table(csv_file(tmp_path, lines), tmp_path / "table").schema
    assert [column.kind for column in schema.columns] == ["categorical", "integer", "integer", "categorical"]
    other, missing = schema.columns[0].categories.index(OTHER), len(schema.columns[1].numbers.atoms)
    assert schema.unseen() == [other, missing, None, None]


def test_a_nul_byte_and_a_flipped_byte_are_refused_in_one_line(tmp_path):
    path = csv_file(tmp_path, ["a,b"] + [f"{n % 7},{n % 5}" for n in range(50)] + ["1\0,2"])
    with pytest.raises(ValueError, match="line 52: expected text, got a NUL byte"):
        prepare_table(path, tmp_path / "table")
    packed = bytearray(gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (n % 97, n * n % 89) for n in range(5000))))
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / "rows.csv.gz").write_bytes(packed)
    with pytest.raises(ValueError, match=r"rows\.csv\.gz: cannot be read") as error:
        prepare_table(tmp_path / "rows.csv.gz", tmp_path / "table")
    assert "\n" not in str(error.value)


def test_a_schema_may_be_refused_before_anything_is_written(tmp_path):
    def refuse(schema):
        raise ValueError(f"{len(schema.kept)} columns")

    with pytest.raises(ValueError, match="4 columns"):
        prepare_table(csv_file(tmp_path, mixed()), tmp_path / "table", check=refuse)
    assert not (tmp_path / "table").exists()
