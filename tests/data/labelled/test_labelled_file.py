"""Which columns a file has, and one clear line where it has not."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from chainrule_app.readers.labelled.labelled_file import LabelledFile, LabelledText


def written(folder: Path, text: str, name: str = "rows.tsv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path, **options) -> list[tuple[str, str]]:
    return [(row.text, row.label) for row in LabelledFile(path, **options)]


def test_text_and_label_stand_with_a_tab_between_them(tmp_path: Path) -> None:
    path = written(tmp_path, 'a "good" film\t1\nbad, very bad\t0\na film\t1\n')
    assert list(LabelledFile(path)) == [
        LabelledText(1, 'a "good" film', "1"),
        LabelledText(2, "bad, very bad", "0"),
        LabelledText(3, "a film", "1"),
    ]


@pytest.mark.parametrize("header", ["sentence\tlabel", "id\tText\tn\tSentiment", "CLASS\tREVIEW"])
def test_a_header_with_the_usual_names_is_found(tmp_path: Path, header: str) -> None:
    names = header.lower().split("\t")
    cells = {"id": "7", "n": "x"} | dict.fromkeys(["sentence", "text", "review"], "fine") | {"label": "yes"}
    cells |= {"sentiment": "yes", "class": "yes"}
    path = written(tmp_path, f"{header}\n" + "\t".join(cells[name] for name in names) + "\n")
    file = LabelledFile(path)
    assert file.columns.header
    assert [(row.line, row.text, row.label) for row in file] == [(2, "fine", "yes")]


def test_columns_are_named_or_numbered(tmp_path: Path) -> None:
    path = written(tmp_path, "heading\tbody text\tmood\nA\tgood\tup\nB\tbad\tdown\n")
    assert read(path, text_column="body text", label_column="mood") == [("good", "up"), ("bad", "down")]
    assert read(path, text_column="1", label_column="3")[0] == ("heading", "mood")  # numbers say nothing of a header
    assert read(path, text_column="heading", label_column="3") == [("A", "up"), ("B", "down")]


def test_csv_has_quotes_and_lines_inside_them(tmp_path: Path) -> None:
    path = written(tmp_path, 'text,label\n"so, ""well""\nmade",1\nbad,0\n', "rows.csv")
    assert [(row.line, row.text, row.label) for row in LabelledFile(path)] == [
        (3, 'so, "well"\nmade', "1"),
        (4, "bad", "0"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("label-first.tsv", "1\ta film\n0\tbad\n1\tfine\n", [("a film", "1"), ("bad", "0"), ("fine", "1")]),
        ("empty-texts.tsv", "good\t1\n\t0\n  \t0\nbad\t0\n", [("good", "1"), ("", "0"), ("", "0"), ("bad", "0")]),
        ("windows-ends.tsv", "good\t1\r\nbad\t0\r\n", [("good", "1"), ("bad", "0")]),
        ("semicolons-and-mark.csv", "\ufefftext;label\nfine;1\nbad;0\n", [("fine", "1"), ("bad", "0")]),
    ],
)
def test_rows_are_read_in_every_usual_form(tmp_path: Path, name: str, text: str, rows: list[tuple[str, str]]) -> None:
    assert read(written(tmp_path, text, name)) == rows


def test_texts_alone_are_lines_or_found_in_a_labelled_file_and_empty_ones_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path, "one text\n\nanother, one\n", "texts.txt")
    rows = list(LabelledFile(path, labelled=False))
    assert [(row.line, row.text) for row in rows] == [(1, "one text"), (2, ""), (3, "another, one")]
    path = written(tmp_path, "label\ttext\n1\tgood\n0\tbad\n")
    assert read(path, labelled=False) == [("good", ""), ("bad", "")]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("good\t1\nbad\n", {}, "rows.tsv line 2: expected at least 2 columns, got 1: put a tab"),
        ("good\t1\nbad\t\n", {}, "rows.tsv line 2: the label is empty"),
        ("good\nbad\n", {}, "rows.tsv line 1: expected a text, a tab and a label"),
        ("a\tb\tc\n1\t2\t3\n", {}, "rows.tsv: 3 columns .* name the text column with text_column"),
        ("text\tb\tc\n1\t2\t3\n", {"text_column": "text"}, "name the label column with label_column"),
        ("text\tb\tc\n1\t2\t3\n", {}, "name the label column with label_column"),
        ("text\tlabel\nx\ty\n", {"text_column": "body"}, "line 1: expected a header with the column 'body'"),
        ("x\ty\n", {"label_column": "3"}, "line 1: expected at least 3 columns, got 2"),
        ("x\ty\n", {"text_column": "1", "label_column": "1"}, "expected two columns, got one twice"),
        ("\n\n", {}, "expected rows of text, got only empty lines"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path, text: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read(written(tmp_path, text), **options)
    assert "\n" not in str(caught.value)


def test_an_open_quote_is_said_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"rows.csv line \d: not a valid row of CSV"):
        read(written(tmp_path, 'text,label\n"open,1\n', "rows.csv"))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        LabelledFile(tmp_path / "none.tsv")
    with pytest.raises(ValueError, match="which standard input cannot be: write it to a file first"):
        LabelledFile("-")


def test_columns_are_those_of_another_file_where_there_is_no_header(tmp_path: Path) -> None:
    like = LabelledFile(written(tmp_path, "1\tgood film\n0\tbad film\n0\tno film\n")).columns
    path = written(tmp_path, "no\tyes\nyes\tno\n", "dev.tsv")
    assert read(path, like=like) == [("yes", "no"), ("no", "yes")]
    assert read(path, like=like, labelled=False) == [("yes", ""), ("no", "")]
    assert read(written(tmp_path, "text\tlabel\nyes\tno\n", "named.tsv"), like=like) == [("yes", "no")]
    assert read(written(tmp_path, "a text\n", "plain.txt"), like=like, labelled=False) == [("a text", "")]


def test_columns_with_names_of_their_own_are_known_again(tmp_path: Path) -> None:
    path = written(tmp_path, "what,mood\ngood,up\nbad,down\n", "rows.csv")
    like = LabelledFile(path, text_column="what", label_column="mood").columns
    other = written(tmp_path, "mood,date,what\nup,1,fine\n", "other.csv")
    assert read(other, like=like) == [("fine", "up")]
    assert read(other, like=like, labelled=False) == [("fine", "")]


def test_a_tab_inside_of_a_text_does_not_make_a_label(tmp_path: Path) -> None:
    path = written(tmp_path, "a good film\tgood\nfine\tgood\nit is\tnot bad\tbad\n")
    with pytest.raises(ValueError, match="line 3: expected 2 columns as in the first row, got 3"):
        read(path)
    path = written(tmp_path, "text,label\na film,good\nwell, bad,bad\n", "rows.csv")
    with pytest.raises(ValueError, match=r"line 3: expected 2 columns .* got 3: put a cell"):
        read(path)


def test_a_named_column_of_standard_input_is_that_of_its_header(monkeypatch) -> None:
    def given(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))

    given("stars\treview\n3\tgood\n1\tbad\n")
    rows = list(LabelledFile("-", text_column="review", labelled=False))
    assert [(row.line, row.text) for row in rows] == [(2, "good"), (3, "bad")]
    given("3\tgood\n1\tbad\n")
    assert read("-", text_column="2", labelled=False) == [("good", ""), ("bad", "")]
    for text, found in (("3\tgood\n", "'3', 'good'"), ("", "nothing")):
        given(text)
        message = f"standard input line 1: expected a header with the column 'review', got {found}: name another"
        with pytest.raises(ValueError, match=message):
            LabelledFile("-", text_column="review", labelled=False)


@pytest.mark.parametrize("name", ["rows.tsv", "rows.txt", "rows.csv"])
def test_the_header_of_texts_alone_is_no_text_where_files_of_the_run_have_headers(tmp_path: Path, name: str) -> None:
    with_header = LabelledFile(written(tmp_path, "what,mood\nfine,up\nbad,down\n", "run.csv"), text_column="what")
    for header in ("what", "text"):
        path = written(tmp_path, f"{header}\ngood\nbad\n", name)
        assert read(path, labelled=False, like=with_header.columns) == [("good", ""), ("bad", "")]
    without = LabelledFile(written(tmp_path, "fine\tup\nbad\tdown\n", "run.tsv"))
    lines = written(tmp_path, "text\ngood\n", "lines.txt")
    assert read(lines, labelled=False, like=without.columns) == [("text", ""), ("good", "")]


REVIEWS = [("a good film", "gut"), ("very bad", "schlecht"), ("fine", "gut")] + [("so so at best", "schlecht")] * 9


@pytest.mark.parametrize(
    ("first", "rows", "header"),
    [
        (("Kommentar", "Bewertung"), REVIEWS, True),
        (("stars", "comment"), [("5", "good"), ("1", "bad"), ("5", "great"), ("1", "worse")], True),  # one word each
        (("Kommentar", "gut"), REVIEWS, False),  # a label that comes again
        (("what a mess", "neutral"), REVIEWS, False),  # several words, as other texts: a rare label
        (("Kommentar", "Bewertung"), [*REVIEWS, ("a", "once")], False),  # other labels are rare as well
        (("Wien", "Ort"), [("Anna", "Person"), ("Rom", "Stadt"), ("Emil", "Person"), ("Ulm", "Stadt")], False),
        (("super", "Gut"), REVIEWS, False),  # a label that comes again in lower case
        (("super", "3"), REVIEWS, False),  # a number is no name
        (("3", "ok"), [("5", "good"), ("1", "bad"), ("5", "great"), ("1", "worse")], False),  # a number as all labels
    ],
)
def test_a_first_row_that_only_names_the_columns_is_a_header(tmp_path: Path, first, rows, header: bool) -> None:
    """Such a row became a text to train on, and its cell a label."""
    path = written(tmp_path, "".join("\t".join(row) + "\n" for row in [first, *rows]))
    file = LabelledFile(path)
    assert file.columns.header == header
    assert len(list(file)) == len(rows) + (not header)


def test_a_first_row_without_a_label_is_no_header(tmp_path: Path) -> None:
    """Among numbers, the empty label passed for the name of their column."""
    path = written(tmp_path, "good\t\nbad\t0\nfine\t1\nno\t0\nyes\t1\n")
    with pytest.raises(ValueError, match="line 1: the label is empty"):
        read(path)


def test_an_error_lists_whole_names_of_columns(tmp_path: Path) -> None:
    """The list ended in the middle of a name: 'churn', 'l)."""
    names = [f"column number {number}" for number in range(9)]
    path = written(tmp_path, "\t".join(names) + "\n" + "\t".join("x" * 9) + "\n")
    with pytest.raises(ValueError, match=r"9 columns \('column number 0', .*'column number 3' and 5 more\): name the"):
        read(path)
    with pytest.raises(ValueError, match=r"'column number 3' and 5 more: name another column"):
        read(path, text_column="text", label_column="label")


FILMS = [f"a {word} film" for word in ("good", "bad", "long", "slow", "short")]


@pytest.mark.parametrize(
    "trained", ["text,label\ngood one,up\nbad one,down\n", "good one,up\nbad one,down\nthe third,up\n"]
)
@pytest.mark.parametrize("names", ["remark", "id,remark", "remark,verdict", "verdict,stars,remark"])
def test_a_header_of_other_names_is_no_text_to_label(tmp_path: Path, trained: str, names: str) -> None:
    """It was labelled as if it were a text, and a column of numbers in its place."""
    like = LabelledFile(written(tmp_path, trained, "run.csv"), text_column="1", label_column="2").columns
    if names == "remark" and not like.header:
        return  # of one column, and a run whose files have no headers, it may be a text
    cells = {"id": range(5), "remark": FILMS, "verdict": ["up", "down", "up", "up", "down"], "stars": [3, 1, 3, 4, 1]}
    lines = [",".join(map(str, row)) for row in zip(*(cells[name] for name in names.split(",")), strict=True)]
    file = LabelledFile(written(tmp_path, "\n".join([names, *lines]) + "\n", "new.csv"), labelled=False, like=like)
    assert [row.text for row in file] == FILMS


def test_a_column_of_texts_has_several_words_in_half_of_its_rows(tmp_path: Path) -> None:
    like = LabelledFile(written(tmp_path, "text,label\ngood one,up\nbad one,down\n", "run.csv")).columns
    texts = ["a good film", "fine", "not bad at all", "dull"]
    path = written(tmp_path, "id,remark\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts)), "new.csv")
    assert [row.text for row in LabelledFile(path, labelled=False, like=like)] == texts


def test_several_columns_of_texts_or_labels_are_asked_for(tmp_path: Path) -> None:
    like = LabelledFile(written(tmp_path, "text,label\ngood one,up\nbad one,down\n", "run.csv")).columns
    path = written(tmp_path, "remark,note\n" + "".join(f"{film},{film} too\n" for film in FILMS), "new.csv")
    with pytest.raises(
        ValueError, match=r"none of the names of the training file .*: name the text column with text_column"
    ):
        LabelledFile(path, labelled=False, like=like)
    path = written(tmp_path, "text,category,rating\n" + "".join(f"{film},a,3\n" for film in FILMS), "new.csv")
    with pytest.raises(ValueError, match=r"several columns may hold the labels \(category, rating\): name one with"):
        LabelledFile(path)
    path = written(tmp_path, '{"messages": [{"role": "user"}], "label": "up"}\n' * 3, "new.jsonl")
    with pytest.raises(ValueError, match="line 1: the text is a list or an object"):
        list(LabelledFile(path, text_column="messages"))
