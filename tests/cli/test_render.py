"""Results on the command line: tables, CSV, JSON and files."""

import csv
import errno
import gzip
import io
import json
import sys
from datetime import datetime
from weakref import WeakSet

import numpy as np
import polars
import pytest
from matplotlib.figure import Figure

from chainrule.printing import one_line, printable
from chainrule_app.cli import render
from chainrule_app.cli.main import SafeOutput
from chainrule_app.cli.render import figure_lines, show, write_plot
from chainrule_app.cli.row_format import checked_out
from chainrule_app.printing import dump_json, shortened
from chainrule_app.results import Column, Result

COLUMNS = [Column("name"), Column("nats", 2, heading="its nats"), Column("hidden", shown=False)]
ROWS = [("a", 1.5, [1]), ("longer", 12.25, [2]), ("b", 3.0, [3])]


def result(rows=ROWS, **others):
    given = {"summary": lambda: {"rows": 3, "nats_per_row": 5.5833}, "about": {"measured": "exact"}, "rank": "nats"}
    return Result(COLUMNS, iter(rows), **given | others)


def test_a_table_is_aligned_and_figures_follow_it(capsys):
    show(result(notes=lambda: ["a note"]))
    assert capsys.readouterr().out.splitlines() == [
        "name    its nats",
        "a           1.50",
        "longer     12.25",
        "b           3.00",
        "rows 3, nats per row 5.5833",
        "measured: exact",
        "a note",
    ]


def test_the_most_surprising_rows_come_first_and_figures_are_of_all(capsys):
    show(result(), ranked=True, top=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["longer", "b"]
    assert lines[3].startswith("rows 3")
    show(result(), ranked=True)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:4]] == ["longer", "b", "a"]
    with pytest.raises(ValueError, match="--sort: these rows have no rank"):
        show(result(rank=""), ranked=True)


def test_a_table_is_printed_before_the_last_row_is_computed(capsys):
    def endless():
        for number in range(200):
            if number == 150:
                raise KeyboardInterrupt
            yield str(number), 1.0, None

    with pytest.raises(KeyboardInterrupt):
        show(result(endless()))
    assert len(capsys.readouterr().out.splitlines()) == 151


def test_tables_keep_to_the_columns_that_the_environment_names(capsys, monkeypatch):
    rows = [("a" * 50, 1.5, [1])]
    scores = [{"series": "s" * 50, "crps": 1.0}]
    show(result(rows, summary=lambda: {"scores": scores}))
    assert max(map(len, capsys.readouterr().out.splitlines())) > 55
    monkeypatch.setenv("COLUMNS", "30")
    show(result(rows, summary=lambda: {"scores": scores}))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 30
    assert sum(line.endswith("…") for line in lines) == 4


def test_json_has_rows_alone_on_standard_output(capsys):
    show(result(notes=lambda: ["a note"]), json=True)
    shown = capsys.readouterr()
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert rows[1] == {"name": "longer", "nats": 12.25, "hidden": [2]}
    assert len(rows) == 3
    facts, note = shown.err.splitlines()
    assert json.loads(facts) == {"rows": 3, "nats_per_row": 5.5833, "measured": "exact"}
    assert note == "a note"


def test_dates_are_written_alike_in_json_and_csv(capsys):
    months = Result([Column("month", parse=lambda cell: datetime.strptime(cell, "%Y-%m"))], [("2024-01",)], form="csv")
    show(months, json=True)
    show(months.with_rows([("2024-01",)]))
    assert capsys.readouterr().out.splitlines() == ['{"month": "2024-01"}', "month", "2024-01"]


def test_json_of_figures_alone_is_an_object_on_standard_output(capsys):
    show(Result([], [], summary=lambda: {"accuracy": 0.5}, about={"measured": "exact"}), json=True)
    shown = capsys.readouterr()
    assert (json.loads(shown.out), shown.err) == ({"accuracy": 0.5, "measured": "exact"}, "")


def test_csv_has_a_column_for_each_number_of_a_vector(capsys):
    vectors = [("a, b", np.array([0.5, 1.25])), ("c", np.array([2.0, 3.0]))]
    show(Result([Column("input"), Column("code", heading="z")], vectors, form="csv", about={"seed": 7}))
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["input,z0,z1", '"a, b",0.5,1.25', "c,2,3"]
    assert shown.err == "seed: 7\n"


def test_csv_keeps_all_digits_and_figures_go_to_standard_error(capsys):
    show(result([("a", 1 / 3, {}), (None, 2.0, {})]), csv=True)
    shown = capsys.readouterr()
    assert list(csv.reader(shown.out.splitlines())) == [["name", "its nats"], ["a", str(1 / 3)], ["", "2.0"]]
    assert shown.err.splitlines() == ["rows 3, nats per row 5.5833", "measured: exact"]


def test_files_have_the_form_of_their_name(capsys, tmp_path):
    for name in ("x.csv", "x.csv.gz", "x.tsv", "x.TSV.GZ", "x.txt", "x.jsonl", "x.jsonl.gz", "x.npy", "x.npy.gz"):
        show(result(main="nats"), out=tmp_path / name)
        assert f"{name}: 3 rows\n" in capsys.readouterr().err
    assert (tmp_path / "x.csv").read_text() == "name,its nats\na,1.5\nlonger,12.25\nb,3.0\n"
    for packed, plain in (("x.csv.gz",) * 2, ("x.TSV.GZ", "x.tsv"), ("x.jsonl.gz",) * 2, ("x.npy.gz",) * 2):
        content = gzip.decompress((tmp_path / packed).read_bytes())
        assert content == (tmp_path / plain.removesuffix(".gz")).read_bytes()
    assert (tmp_path / "x.tsv").read_text() == (tmp_path / "x.csv").read_text().replace(",", "\t")
    assert "rows 3, nats per row" in (tmp_path / "x.txt").read_text()
    assert [json.loads(line)["name"] for line in (tmp_path / "x.jsonl").read_text().splitlines()] == [
        "a",
        "longer",
        "b",
    ]
    assert np.load(tmp_path / "x.npy").tolist() == [1.5, 12.25, 3.0]


def test_a_file_counts_the_rows_that_it_has(capsys, tmp_path):
    show(result(), top=2, out=tmp_path / "x.csv")
    assert capsys.readouterr().err.splitlines()[:2] == [f"{tmp_path / 'x.csv'}: 2 rows", "rows 3, nats per row 5.5833"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    def failing():
        yield ROWS[0]
        raise ValueError("line 2 is damaged")

    (tmp_path / "x.csv").write_text("before")
    with pytest.raises(ValueError, match="line 2"):
        show(result(failing()), out=tmp_path / "x.csv")
    assert [file.name for file in tmp_path.iterdir()] == ["x.csv"]
    assert (tmp_path / "x.csv").read_text() == "before"


def test_a_picture_is_written_to_a_file(capsys, tmp_path):
    write_plot(result(figure=lambda _: Figure(), about={"seed": 3}), tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().err == f"{tmp_path / 'x.png'} (seed 3)\n"


# A text of a row with markup in it ran in the browser that x.html was opened with.
FOREIGN = ("html", "htm", "HTML", "html.gz", "xhtml", "svg", "xml", "mht", "js", "md", "pdf", "docx",
           "xlsm", "npz", "pkl", "feather", "png", "wav", "zip", "db", "yaml")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        (".", {}, "this is a directory"),
        ("none/x.csv", {}, "no directory"),
        ("x.csv", {"json": True}, "cannot hold JSON"),
        ("x.npy", {"json": True}, "cannot hold JSON"),
        ("x.tsv.gz", {"json": True}, "cannot hold JSON"),
        ("x.xlsx", {}, "this format is not written: choose .csv, "),  # was CSV
        ("x.CSV.zst", {}, "this format is not written"),
        *((f"x.{name}", {}, "this format is not written") for name in FOREIGN),
    ],
)
def test_files_that_cannot_be_written_are_refused(tmp_path, name, given, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        checked_out(tmp_path / name, **given)


@pytest.mark.parametrize("name", ["x", "x.csv", "x.TSV.gz", "x.jsonl", "x.txt", "x.conllu", "scores-0.5", "x.parquet"])
def test_files_that_can_be_written_are_not(tmp_path, name):
    checked_out(tmp_path / name)


def test_endings_are_refused_that_are_not_those_expected(tmp_path):
    with pytest.raises(ValueError, match=r"--plot .*x\.pdf: expected a name that ends in \.png or \.html"):
        checked_out(tmp_path / "x.pdf", ".png", ".html", flag="--plot")
    checked_out(tmp_path / "x.PNG", ".png")
    checked_out(None, ".png")


def figures(**values):
    return list(figure_lines(Result([], [], summary=lambda: values)))


def test_figures_alone_are_a_line_each():
    assert figures(macro_f1=0.91234, nats_per_row=-0.0123456, rows=12345, size=1234567.8, tiny=1.5e-9) == [
        "macro F1      0.9123",
        "nats per row  -0.01235",
        "rows          12,345",
        "size          1,234,568",
        "tiny          1.5e-09",
    ]


def test_nested_figures_are_tables():
    assert figures(labels={"bad": {"f1": 0.5, "texts": 10}, "good": {"f1": 1.0, "texts": 5}}) == [
        "labels:",
        "            F1  texts",
        "  bad   0.5000     10",
        "  good  1.0000      5",
    ]
    assert figures(scores=[{"forecast": "model", "crps": 31.25}, {"forecast": "naive", "crps": None}], none=[]) == [
        "scores:",
        "  forecast     CRPS",
        "  model     31.2500",
        "  naive",
    ]


def test_labels_of_a_matrix_are_shown_as_they_are():
    assert figures(confusion={"f1_a": {"f1_a": 3, "": 0}, "": {"f1_a": 1, "": 2}})[1:] == [
        "        f1_a",
        "  f1_a     3  0",
        "           1  2",
    ]


def test_numbers_of_other_sizes_are_not_rounded_away():
    shown = figures(scores=[{"series": "small", "crps": 0.00123}, {"series": "large", "crps": 123456.0}])
    assert [line.split()[1] for line in shown[2:]] == ["0.00123", "123456"]


COMMANDS = ["\x1b[2J", "\x07", "\x9b31m", "\x00", "\x7f", "\u202e", "\ud800", "\u2066"]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_reaches_the_terminal(command):
    for shown in (printable(f"a{command}b"), one_line(f"a{command}b"), dump_json(f"a{command}b")):
        assert command[0] not in shown
        assert shown.strip('"').startswith("a\\")
        shown.encode()  # a stream takes it


@pytest.mark.parametrize("text", [*COMMANDS, "plain", "é ☃ 𝄞", "tab\tand\r\nline", '"\\'])
def test_json_keeps_data_exactly(text):
    assert json.loads(dump_json({text: [text]})) == {text: [text]}


def test_text_keeps_lines_tabs_and_letters_of_any_language():
    text = "one\ttwo\r\nthree é ☃ ಠ \u200d می\u200cخواهم\u200f 10\u00a0000\n"
    assert printable(text) == text
    assert one_line(text) == text.replace("\t", "\\t").replace("\r\n", "\\r\\n").replace("\n", "\\n")
    assert dump_json(text) == json.dumps(text, ensure_ascii=False)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_files_and_pipes_get_the_text_as_it_is():
    stream = io.StringIO()
    shown = SafeOutput(stream)
    shown.write("\x1b[2J\u202e\u200f\r\x85\ud800")
    shown.close()
    assert stream.getvalue() == "\x1b[2J\u202e\u200f\r\x85\\ud800"


def test_a_carriage_return_is_a_line_end_only_before_a_line_feed():
    stream = Terminal()
    shown = SafeOutput(stream)
    for piece in ("one\r", "\ntwo\rthree", "\r", "\r\n", "\r"):
        assert shown.write(piece) == len(piece)
    shown.close()
    assert stream.getvalue() == "one\r\ntwo\\rthree\\r\r\n\\r"


def test_every_verb_prints_through_it(command, runs, tmp_path, monkeypatch):
    file = tmp_path / "a.txt"
    file.write_text("line \x1b[31m 1\n")
    text = command("score", runs / "bytes", file, "--per", "line").out
    assert "\x1b" not in text
    assert r"line \x1b[31m 1" in text
    assert (
        json.loads(command("score", runs / "bytes", file, "--per", "line", "--json").out)["text"] == "line \x1b[31m 1"
    )
    assert command("sample", runs / "bytes", "--prompt", "\x1b[2J", "--length", 1).out.startswith("\x1b[2J")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert command("sample", runs / "bytes", "--prompt", "\x1b[2J", "--length", 1).out.startswith(r"\x1b[2J")
    assert not isinstance(sys.stdout, SafeOutput)


def test_an_error_is_one_short_line_whatever_it_quotes(refused, tmp_path):
    for name in ("x" * 200 + "\x1b[2J" + "y" * 20, "z\n" * 60):
        line = refused("info", tmp_path / name)
        assert "\x1b" not in line
        assert len(line) < 300
    line = refused("sample", tmp_path, "--prompt", "a" * 100_000)
    assert len(line) < 300


def test_a_long_line_keeps_its_beginning_and_its_end():
    assert shortened("begin" + "x" * 1000 + "end", 100).startswith("beginx")
    assert shortened("begin" + "x" * 1000 + "end", 100).endswith("xend")
    assert len(shortened("x" * 1000, 100)) == 100
    assert shortened("x" * 100, 100) == "x" * 100


def test_a_progress_bar_leaves_standard_output_to_the_rows(monkeypatch, capsys):
    """Redirected by the bar, rows would appear on the terminal, and not in the pipe that asked for them."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    result = Result([Column("n")], ((n,) for n in range(40)), hints={"rows": 40})
    show(result, csv=True)
    captured = capsys.readouterr()
    assert captured.out.split() == ["n", *map(str, range(40))]


class Row(list):
    """A row that can be watched."""

    __hash__ = object.__hash__


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.jsonl", "x.txt", "x.csv.gz", "x.parquet"])
def test_rows_are_written_while_they_are_computed(name, tmp_path, monkeypatch):
    """The whole file was held in memory: 731 MB for two million rows of a table."""
    monkeypatch.setattr(render, "_ROWS_IN_MEMORY", 50)
    alive, counts, sizes = WeakSet(), [], []

    def rows():
        for number in range(9000):
            row = Row([f"{number * 7919 % 9000} {number}", number / 7, None if number < 60 else {"a": number}])
            alive.add(row)
            yield row
            del row
            counts.append(len(alive))
        sizes.extend(path.stat().st_size for path in tmp_path.iterdir())

    whole = tmp_path / name
    show(Result(COLUMNS, rows()), out=whole)
    assert max(counts) <= 100
    if name.endswith("parquet"):
        frame = polars.read_parquet(whole)
        assert frame["nats"].to_list() == [number / 7 for number in range(9000)]
        assert frame["hidden"].to_list()[58:62] == [None, None, {"a": 60}, {"a": 61}]
    else:
        assert sizes[0] > whole.stat().st_size / 2
        lines = (gzip.decompress(whole.read_bytes()) if name.endswith("gz") else whole.read_bytes()).splitlines()
        assert len(lines) >= 9000
    assert list(tmp_path.iterdir()) == [whole]


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.parquet"])
def test_an_error_while_rows_are_computed_leaves_the_old_file(name, tmp_path):
    def rows():
        yield from ROWS * 9000
        raise OSError(errno.EIO, "Input/output error", "data.csv")

    (tmp_path / name).write_text("old")
    with pytest.raises(OSError, match=r"data\.csv"):
        show(Result(COLUMNS, rows()), out=tmp_path / name)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "old")]
