"""JSON records come back as they were written; rows have equally many cells by the delimiter of their file."""

import gzip
import json
from dataclasses import dataclass
from typing import Literal

import pytest

from chainrule.files import Record
from chainrule_app.readers.delimited import DelimitedFile
from chainrule_app.readers.tables.layout import find_delimiter
from chainrule_app.readers.tables.table_file import TableFile


@dataclass(frozen=True)
class Unit:
    name: str
    factor: float


@dataclass(frozen=True)
class Settings(Record):
    units: tuple[Unit, ...]
    kind: Literal["a", "b"] | None
    counts: dict[str, int]
    span: tuple[int, float] | None
    exact: bool

    def __post_init__(self) -> None:
        if not self.units:
            raise ValueError("units: expected at least one")


WHOLE = Settings((Unit("s", 1.0), Unit("m", 60.0)), "a", {"rows": 3}, (1, 0.5), exact=True)


def test_a_record_comes_back_from_its_file(tmp_path):
    WHOLE.save(tmp_path / "settings.json")
    assert Settings.load(tmp_path / "settings.json") == WHOLE
    with pytest.raises(FileNotFoundError, match=r"none\.json: no such file"):
        Settings.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format: expected 1, got 2"),
        ({"format": True}, "format: expected 1, got True"),
        ({"more": 1}, "content: unknown key 'more'"),
        ({"units": []}, "units: expected at least one"),
        ({"units": {}}, r"units: expected a list of an object, got \{\}"),
        ({"units": [{"name": "s"}]}, "units: the key 'factor' is missing"),
        ({"units": [{"name": "s", "factor": float("nan")}]}, "units.factor: expected a finite number, got nan"),
        ({"units": [{"name": "s", "factor": 10**400}]}, "units.factor: expected a finite number"),
        ({"units": [{"name": 3, "factor": 1}]}, "units.name: expected text, got 3"),
        ({"kind": "c"}, "kind: expected one of a, b, got 'c'"),
        ({"kind": ["a"]}, "kind: expected one of a, b"),
        ({"counts": {"rows": True}}, r"counts\[.rows.\]: expected a whole number, got True"),
        ({"counts": {"rows": 1.0}}, r"counts\[.rows.\]: expected a whole number"),
        ({"span": [1]}, "span: expected a list"),
        ({"exact": 1}, "exact: expected true or false, got 1"),
        ({"exact": "x" * 10_000}, "exact: expected true or false"),
    ],
)
def test_a_changed_record_is_refused_in_a_short_line(tmp_path, change, message):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(WHOLE.to_json() | change))
    with pytest.raises(ValueError, match=rf"settings\.json: {message}.*; the file is damaged") as caught:
        Settings.load(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) - len(str(path)) < 200


@pytest.mark.parametrize("content", [3, [1], None, "text"])
def test_what_is_no_object_is_no_record(content):
    with pytest.raises(ValueError, match="expected an object, got"):
        Settings.from_json(content)


@pytest.mark.parametrize(
    ("name", "text", "delimiter"),
    [
        ("rows.csv", '"Preis, netto, EUR";Menge;Art\n"1,5";2;a\n"2,5";3;b\n', ";"),
        ("rows.csv", "Date;Amount (EUR, net, incl. fees)\n2024;5\n2025;6\n", ";"),
        ("rows.tsv", "red, big, old, nice\t4\t2.5\nblue, small, new, bad\t5\t1\n", "\t"),
        ("rows.tsv.gz", "a,b\tc,d\n", "\t"),
        ("rows.tsv", "a,b\n1,2\n", ","),  # no tab in it
        ("rows.csv", "great, love it, thanks 0;pos\nfine, 1;neg\nno;neg\n", ";"),
        ("rows.csv", "a,b\n1,2\n", ","),
        ("rows.csv", 'a,b\n"1;2;3;4",2\n', ","),
        ("rows.csv", '\n\na|"b\nc;d;e"|f\n1|2|3\n', "|"),
        ("rows.csv", 'a;b\n1;"' + "x,y\n" * 30 + '"\n', ";"),  # a cell longer than what is looked at
        ("rows.csv", "a,b;c\n1,2,3;4\n", ";"),
        ("rows.csv", "a,b\n1,2,3\n", ","),  # no delimiter fits: the most frequent, and the error names the line
        ("rows.csv", "one\ntwo\n", ","),
        # a row with a cell too many is for the error to name
        ("rows.csv", "Date;Amount (EUR, net, incl. fees)\n2024;5\n2025;6;7\n2026;7\n", ";"),
        ("rows.csv", 'x, y;c\n"a, b";c\n', ";"),  # what cannot be read may come in the last line
        ("rows.csv", '"' + "x, y\n" * 30 + '";b\nd;e\n', ";"),  # a first cell longer than so many lines
        ("rows.csv", "a, b;c\r1,5;d\r2,5;e, f\r", ";"),  # lines that end in another way
        ("rows.csv", "one\ntwo; or three\n", ","),  # a column of texts
        ("rows.csv", "1,5;2,5\n-3,0;4,25\n", ";"),  # decimal commas and no header
        ("rows.csv", "1,5;2,5;\n3,0;4,25;7\n", ";"),
        ("rows.csv", "red,5;blue,5\nred,6;blue,7\n", ","),  # words: the one that gives more cells
    ],
)
def test_the_delimiter_that_fits_the_rows_is_taken(tmp_path, name, text, delimiter):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert find_delimiter(DelimitedFile(path).beginning()) == delimiter


def test_a_folder_whose_name_looks_like_a_kind_of_file_says_nothing(tmp_path):
    (tmp_path / "rows.tsv.d").mkdir()
    (tmp_path / "rows.tsv.d" / "rows.csv").write_text("a\tb,c\n1,2\n")
    assert find_delimiter(DelimitedFile(tmp_path / "rows.tsv.d" / "rows.csv").beginning()) == ","


def test_a_quoted_header_with_other_delimiters_is_read(tmp_path):
    """Its commas were counted in quotes, and the file was refused."""
    path = tmp_path / "rows.csv"
    path.write_text('"Preis, netto, EUR";Menge\n' + "".join(f'"{n},5";{n}\n' for n in range(40)))
    file = TableFile(path)
    assert file.names == ["Preis, netto, EUR", "Menge"]
    assert [row for _, row in file.rows()][3] == ["3.5", "3"]
    cells = [column.cell(3) for block in file.blocks() for column in block.columns]
    assert cells[:2] == ["3.5", "3"]


def test_a_file_in_utf_16_is_named_as_one(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes("a,b\n1,2\n".encode("utf-16"))
    with pytest.raises(ValueError, match=r"rows\.csv: expected UTF-8 text, got UTF-16: convert it, .*iconv -f utf-16"):
        TableFile(path)


def test_standard_input_is_refused_by_its_name_where_files_are_read_twice():
    with pytest.raises(ValueError, match="-: expected a file, got standard input, which cannot be used here"):
        TableFile("-")
