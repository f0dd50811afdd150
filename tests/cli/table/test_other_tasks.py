"""A series, or a file of labelled texts, that is read as a table: the command for the right task is told first."""

import shlex
from datetime import datetime, timedelta
from pathlib import Path

import pytest

TEXTS = [f"it is a {'good' if n % 2 else 'bad'} film number {n}" for n in range(80)]


def days(skipped=()):
    dates = [datetime(2024, 1, 1) + timedelta(days=n) for n in range(60) if n not in skipped]
    return [f"{date:%Y-%m-%d},{n % 7}.5,{n * n % 11}" for n, date in enumerate(dates)]


@pytest.mark.parametrize(
    ("name", "lines", "flags"),
    [
        ("rows.csv", ["Date,heat,a b", *days()], ["forecast", "--target", "a b", "--horizon", "10"]),
        ("rows.csv", ["Date,heat,wind", *days({7, 9})], ["forecast", "--target", "wind", "--fill", "--horizon", "10"]),
        ("rows.csv", days(), ["forecast", "--target", "column3", "--horizon", "10"]),
        ("rows.tsv", [f"{text}\t{n % 2}" for n, text in enumerate(TEXTS)], ["classify"]),
        ("rows.tsv", [f'"{text}, he said\t{n % 2}' for n, text in enumerate(TEXTS)], ["classify"]),  # a lost quote
        ("rows.csv", ["id,text,label", *(f"{n},{text},{n % 2}" for n, text in enumerate(TEXTS))], ["classify"]),
        (
            "rows.csv",
            ["n,Kommentar,Note", *(f"{n},{text},{'gut' if n % 2 else 'schlecht'}" for n, text in enumerate(TEXTS))],
            ["classify", "--text-column", "Kommentar", "--label-column", "Note"],
        ),
    ],
)
def test_the_command_for_the_task_of_the_data_is_told(refused, ok, tmp_path, monkeypatch, name, lines, flags):
    """The advice was to leave out the dates, or the texts."""
    monkeypatch.chdir(tmp_path)
    path = Path(name)
    path.write_text("".join(f"{line}\n" for line in lines))
    said = refused("train", path, "--out", tmp_path / "run", "--steps", 1)
    told = said.partition("looks like ")[2].partition(": ")[2].partition(" (or, ")[0]
    assert shlex.split(told) == ["chainrule", "train", str(path), "--task", *flags]
    ok(*shlex.split(told)[1:], "--out", tmp_path / "run", "--steps", 1)


def test_other_tables_get_the_remedy_for_a_table(refused, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,b\n" + "".join(f"u{n},{n % 7}\n" for n in range(60)))
    said = refused("train", path, "--out", tmp_path / "run", "--steps", 1)
    assert "column 'id': a different text in each of 54 rows, an identifier: leave it out with --types id=skip" in said
    path.write_text("id,b\n")
    assert "expected at least two rows" in refused("train", path, "--out", tmp_path / "run", "--steps", 1)
    path.write_text("\n".join(["Date,heat,wind", *days()]))
    said = refused("train", path, "--out", tmp_path / "run", "--steps", 1, "--types", "Date=real")
    assert "line 2, column 'Date': expected a number, got '2024-01-01'" in said
