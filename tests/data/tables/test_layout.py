"""Where a table begins, and whether its first row names the columns: decided by all columns together."""

import random
from pathlib import Path

import pytest

from chainrule_app.readers.labelled.labelled_file import LabelledFile
from chainrule_app.readers.series.series_file import read_series
from chainrule_app.readers.tables.prepare import prepare_table
from chainrule_app.readers.tables.table_file import TableFile

DRAW = random.Random(0)
NAMES = ["Luke", "Anna", "Emma", "Ben", "Zoe"]
MIXED = [f"{DRAW.choice(['red', 'blue'])},{DRAW.randrange(99)},{DRAW.random() * 9:.1f}" for _ in range(60)]
WORDS = [f"{DRAW.choice(NAMES)},{DRAW.choice('MF')}" for _ in range(60)]
REALS = [f"{n},{DRAW.gauss(0, 1):.2f},{DRAW.gauss(0, 1):.2f}" for n in range(40)]
COUNTS = [f"{DRAW.choice(NAMES)}{n},{DRAW.randrange(10**5, 10**6)},{DRAW.randrange(10**5, 10**6)}" for n in range(40)]
FLAGS = [f"{DRAW.randrange(2)},{DRAW.randrange(2)},{DRAW.randrange(6)}" for _ in range(40)]
DAYS = [f"2020-01-{day:02},{day * 7 % 5},{day % 3}" for day in range(1, 31)]
SEMICOLONS = [row.replace(",", ";").replace(".", ",") for row in MIXED]


def written(folder: Path, lines: list[str], name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("before", "rows", "names"),
    [
        (["colour,n,x"], MIXED, ["colour", "n", "x"]),
        ([], MIXED, None),
        (["region,2019,2020"], ["south,5.1,5.0", "south,6.1,5.8", "north,4.2,6.0"] * 9, ["region", "2019", "2020"]),
        (["country,2019,2020"], COUNTS, ["country", "2019", "2020"]),
        (["region,2020-01,2020-02"], COUNTS, ["region", "2020-01", "2020-02"]),
        (["colour,7,x"], MIXED, ["colour", "7", "x"]),  # one number among words
        (["0,1,2"], MIXED, ["0", "1", "2"]),  # as pandas numbers columns
        ([",0,1"], REALS, ["column1", "0", "1"]),  # and its index
        ([",a,b"], REALS, ["column1", "a", "b"]),
        (["NA,n,x"], MIXED, ["NA", "n", "x"]),
        (["colour,null,x"], MIXED, ["colour", "null", "x"]),
        (["colour,,x"], MIXED, ["colour", "column2", "x"]),
        (["colour,n,x,"], [f"{row}," for row in MIXED], ["colour", "n", "x", "column4"]),
        (['"colour","n","x"'], MIXED, ["colour", "n", "x"]),
        (["\ufeffcolour,n,x"], MIXED, ["colour", "n", "x"]),
        (["day,n,x"], DAYS, ["day", "n", "x"]),
        (["day,101,102"], DAYS, ["day", "101", "102"]),
        (["weight,price"], ["3 kg,5%", "4 kg,7%", "11 kg,1%"] * 5, ["weight", "price"]),
        (["name,sex"], WORDS, ["name", "sex"]),
        (["name"], [row.partition(",")[0] for row in WORDS], ["name"]),
        (["a,b"], ["1,2"], ["a", "b"]),
        ([], WORDS, None),
        ([], [row.partition(",")[0] for row in WORDS], None),
        ([], ["1,2", "3,4"], None),
        ([], FLAGS, None),
        ([], [f"{n},{n + 1},{n + 2}" for n in range(40)], None),  # counts from 0, but so do the rows after it
        ([], ["n/k,n/k,5", *FLAGS], None),  # one word twice: missing numbers
        ([], ["inf,M", *WORDS], None),
        ([], DAYS, None),
    ],
)
def test_the_first_row_names_the_columns_where_they_say_so(tmp_path, before, rows, names):
    """One number, missing-looking or empty cell vetoed a header, and rows of words lost their first one to it."""
    file = TableFile(written(tmp_path, before + rows))
    assert file.header == (names is not None)
    assert file.names == (names or [f"column{place + 1}" for place in range(len(file.names))])
    assert len(list(file.rows())) == len(rows)
    assert file.left_out() == ""


@pytest.mark.parametrize(
    ("before", "rows", "told"),
    [
        (["sep=;", "colour;n;x"], SEMICOLONS, "line 1, before the table: left out"),
        (['"sep=,"', "colour,n,x"], MIXED, "line 1, before the table: left out"),
        (["sep=\t", "colour\tn\tx"], [row.replace(",", "\t") for row in MIXED], "line 1, before the table: left out"),
        (["Sales 2020", "", "colour,n,x"], MIXED, "lines 1 to 2, before the table: left out"),
        (["Sales, by colour, 2020", "", "colour,n,x"], MIXED, "lines 1 to 2, before the table: left out"),
        (["Sales, 2020", 'by "me', "colour,n,x"], MIXED, "lines 1 to 2, before the table: left out"),
        (["Sales 2020,,", ",,", "colour,n,x"], MIXED, "lines 1 to 2, before the table: left out"),
        (["Station,Berlin", "Latitude,52.5", "", "day,n,x"], DAYS, "lines 1 to 3, before the table: left out"),
        (["# made by a, b, c", "#", "colour,n,x"], MIXED, "lines 1 to 2, before the table: left out"),
        (["colour,n,x", ",kg,m/s"], MIXED, "line 2, which gives units: left out"),
        (["colour,n,x", "[-],[kg],[m]"], MIXED, "line 2, which gives units: left out"),
        (["Sales", "colour,n,x", ",kg,m"], MIXED, "line 1, before the table and line 3, which gives units: left out"),
    ],
)
def test_lines_that_are_no_rows_are_left_out_and_told(tmp_path, before, rows, told):
    """They became data, or the names of columns."""
    path = written(tmp_path, [*before, *rows])
    file = TableFile(path)
    assert file.header
    assert file.names == (["day", "n", "x"] if rows is DAYS else ["colour", "n", "x"])
    assert [line for line, _ in file.rows()] == list(range(len(before) + 1, len(before) + len(rows) + 1))
    assert [line for block in file.blocks() for line in block.lines.tolist()] == [line for line, _ in file.rows()]
    assert file.left_out() == f"{path}: {told}"
    schema = prepare_table(path, tmp_path / "table", types={"day": "skip"} if rows is DAYS else {}).schema
    assert [column.kind for column in schema.columns[1:]] == ["integer", "integer" if rows is DAYS else "real"]


def test_a_comment_without_a_header_is_left_out_and_a_header_with_a_mark_is_not(tmp_path):
    file = TableFile(written(tmp_path, ["# made by me", *MIXED]))
    assert (file.header, len(list(file.rows()))) == (False, len(MIXED))
    file = TableFile(written(tmp_path, ["#colour,n,x", *MIXED]))
    assert (file.names, len(list(file.rows()))) == (["#colour", "n", "x"], len(MIXED))


def test_empty_lines_between_rows_begin_no_table(tmp_path):
    file = TableFile(written(tmp_path, ["colour,n,x", "", MIXED[0], "", *MIXED[1:]]))
    assert (file.header, len(list(file.rows())), file.left_out()) == (True, len(MIXED), "")
    assert not TableFile(written(tmp_path, [MIXED[0], "", *MIXED[1:]])).header


def test_a_short_row_at_the_beginning_is_no_title(tmp_path):
    file = TableFile(written(tmp_path, ["a,b,c", "1,2", "3,4,5", "6,7,8", "9,1,2"]))
    with pytest.raises(ValueError, match=r"line 2: expected 3 cells, got 2: add the separators of the missing cells"):
        list(file.rows())


def test_rows_of_nothing_at_the_end_are_left_out(tmp_path):
    """Excel writes them; each was a row of missing cells."""
    file = TableFile(written(tmp_path, ["a,b", "1,2", ",", "3,4", ",", ","]))
    assert [cells for _, cells in file.rows()] == [["1", "2"], ["", ""], ["3", "4"]]
    (block,) = file.blocks()
    assert block.lines.tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    ("rows", "ending"),
    [
        ([f"film {n},{'pos' if n % 2 else 'neg'}" for n in range(9)], "film 9,pos"),
        ([f"{n},{n % 3},{n % 2}" for n in range(5)], "5,1,0"),
    ],
)
def test_a_lost_quote_is_named_by_the_line_that_has_it(tmp_path, rows, ending):
    """All rows up to the next quote became one cell, without a word."""
    last, _, label = ending.rpartition(",")
    lines = [f'"{rows[0]}', *rows[1:], f'{last}",{label}']
    header = ["text,label"] if len(ending.split(",")) == 2 else ["a,b,c"]
    path = written(tmp_path, [*header, *rows, *lines, *rows])
    expected = rf"rows\.csv line {len(rows) + 2}: not a valid row of CSV: .* opens a cell .*{2 * len(rows) + 2}"
    with pytest.raises(ValueError, match=expected):
        prepare_table(path, tmp_path / "table")
    with pytest.raises(ValueError, match=expected):
        list(LabelledFile(path, text_column="1", label_column="2"))
    with pytest.raises(ValueError, match=expected):
        read_series(path, "all")


def test_a_quote_that_is_never_closed_is_named_by_its_line(tmp_path):
    path = written(tmp_path, ["a,b", "1,2", '"3,4', *["5,6"] * 9])
    with pytest.raises(ValueError, match=r"line 3: not a valid row of CSV: .* opens a cell .* on to line 12"):
        list(TableFile(path).rows())


def test_lines_of_prose_inside_of_a_cell_are_a_cell(tmp_path):
    verse = '"' + "\n".join(f"roses, red {n}" for n in range(9)) + '"'
    assert len(list(TableFile(written(tmp_path, ["text,label", f"{verse},1", "b,2"])).rows())) == 2


def test_texts_with_labels_begin_where_a_table_would(tmp_path):
    rows = [f"a film {n},{'gut' if n % 2 else 'schlecht'}" for n in range(20)]
    file = LabelledFile(written(tmp_path, ["sep=,", "Kommentar,Bewertung", *rows, ",", ","]))
    assert (file.columns.header, len(list(file))) == (True, 20)
    tabs = [f'"a ""good"" film {n}"\t"{"gut" if n % 2 else "schlecht"}"' for n in range(20)]
    file = LabelledFile(written(tmp_path, ['"text"\t"label"', *tabs], "rows.tsv"))
    assert next((row.text, row.label) for row in file) == ('a "good" film 0', "schlecht")
    plain = [f'a "good" film {n}\t{n % 2}' for n in range(20)]
    file = LabelledFile(written(tmp_path, ['"text"\t"label"', *plain], "rows.tsv"))
    assert next((row.text, row.label) for row in file) == ('a "good" film 0', "0")


def test_series_begin_where_a_table_would(tmp_path):
    path = written(tmp_path, ["Heat of 2020", "", "day,2019,2020", ",°C,°C", *DAYS, ",,"])
    file = read_series(path, "2020")
    assert (file.date, str(file.frequency), len(file.values)) == ("day", "every day", 30)


def test_a_year_above_numbers_in_another_notation_is_data(tmp_path):
    """The smallest of no numbers was looked for."""
    rows = ["2020,x", *(f"\N{MINUS SIGN}{n},{n % 3}" for n in range(9))]
    assert TableFile(written(tmp_path, rows)).header is False
