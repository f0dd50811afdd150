"""Sentences of a word a blank are no columns: the tags were written over one of their words."""

import pytest

from chainrule_app.cli.main import main

SMALL = ("--hidden-size", "8", "--embedding-size", "8", "--character-size", "8", "--template-passes", "0")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Of columns of word, lemma and tag, of four columns, and of CoNLL-U."""
    folder = tmp_path_factory.mktemp("runs")
    row = [("Bo", "O"), ("met", "O"), ("Li", "B-P")]
    plain = "".join("".join(f"{word} {word.lower()} {tag}\n" for word, tag in row) + "\n" for _ in range(30))
    rows = "".join("\t".join((str(n), w, "_", t, *"______")) + "\n" for n, (w, t) in enumerate(row, 1))
    (folder / "columns.conll").write_text(plain)
    broader = (f"{line} {line[-1]}\n" if line else "\n" for line in plain.split("\n"))
    (folder / "broader.conll").write_text("".join(broader))
    (folder / "universal.conllu").write_text((rows + "\n") * 30)
    for name in ("columns.conll", "broader.conll", "universal.conllu"):
        assert main(["train", str(folder / name), "--out", str(folder / name[:7]), "--steps", "2", *SMALL]) == 0
    return folder


@pytest.mark.parametrize(
    ("run", "text", "message"),
    [
        (
            "univers",
            "Bo met Li in .\nAl met Cy in .\n",
            "expected words alone or with a tag, got 5 columns: pass --text",
        ),
        ("columns", "Bo met Li here .\n" * 600, "expected 3 columns, as in training, got 5 columns: pass --text"),
        ("broader", "Bo met\nAl met\n", "expected 4 columns, as in training, got 2 columns: pass --text"),
        ("columns", "Bo met Li here .\nAl met Cy .\n", "pass --text if each line is a sentence"),
        ("columns", "Bo met .\nAl met Cy .\n", "line 2: expected 3 columns as in the file's first row, got 4"),
        ("columns", "Bo met .\nAl met Cy .\n", "pass --text if each line is a sentence"),
    ],
)
def test_sentences_are_not_taken_for_columns(runs, tmp_path, ok, refused, run, text, message):
    (tmp_path / "words.txt").write_text(text)
    assert message in refused("tag", runs / run, tmp_path / "words.txt")
    ok("tag", runs / run, tmp_path / "words.txt", "--text")


def test_other_columns_between_tabs_are_not_written_over(runs, tmp_path, refused):
    (tmp_path / "words.txt").write_text("Bo\tbo\tO\t1\t2\nLi\tli\tO\t3\t4\n")
    said = refused("tag", runs / "columns", tmp_path / "words.txt")
    assert "expected 3 columns, as in training, got 5 columns: tags would be" in said


@pytest.mark.parametrize(
    ("run", "text"),
    [
        ("columns", "Bo\nLi\n"),
        ("columns", "Bo\tbo\tO\nLi\tli\tO\n"),
        ("columns", "Bo bo\nLi li\n"),
        ("columns", "Bo bo O\nLi li O\n"),
        ("univers", "Bo\nLi\n"),
        ("univers", "Bo X\nLi X\n"),
        ("univers", "Bo\tbo\tx\tX\nLi\tli\tx\tX\n"),
    ],
)
def test_words_with_and_without_tags_are_tagged(runs, tmp_path, ok, run, text):
    (tmp_path / "words.txt").write_text(text)
    outcome = ok("tag", runs / run, tmp_path / "words.txt")
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["Bo", "Li"]
