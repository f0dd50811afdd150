"""Pages show the figures that the benchmarks' results have."""

from pathlib import Path

import pytest


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
    import tables

    return tables


def test_pages_agree_with_the_results(tables):
    outdated = [path.name for path, text in tables.pages().items() if text != path.read_text(encoding="utf-8")]
    assert not outdated, f"{outdated}: run python benchmarks/tables.py"


def test_a_number_in_a_passage_is_replaced_across_lines(tables):
    text = "needs 5.1 bits\nper sample, and 4.0 bits"
    assert tables.quoted(text, "needs {} bits per", ["4.3"], "page") == "needs 4.3 bits\nper sample, and 4.0 bits"


@pytest.mark.parametrize("passage", ["costs {} bits", "{} bits"])
def test_a_passage_that_is_missing_or_ambiguous_is_an_error(tables, passage):
    with pytest.raises(SystemExit, match="expected one passage"):
        tables.quoted("needs 5.1 bits, and 4.0 bits", passage, ["4.3"], "page")
