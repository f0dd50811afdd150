"""Results: typed rows that are read once, ranked, converted and shown."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule_app.results import Column, Report, Result

CELLS = st.one_of(st.none(), st.integers(), st.floats(allow_nan=False), st.text())


def scores(rows=((1, "a", 2.0), (2, "b", 3.5), (3, "c", 1.0))):
    return Result([Column("line"), Column("text"), Column("nats", 2)], rows, rank="nats", about={"unit": "nats"})


@given(st.lists(st.tuples(st.integers(), CELLS)))
def test_rows_are_the_same_in_every_form(rows):
    result = Result([Column("a"), Column("b")], iter(rows))
    assert [tuple(row.values()) for row in result] == rows
    assert len(result) == len(rows)
    assert list(result[1:]) == list(result)[1:]
    assert result.to_dict() == {"a": [a for a, _ in rows], "b": [b for _, b in rows]}
    assert [tuple(row) for row in result.stream()] == rows  # after they were read, too


def test_rows_are_read_when_they_are_needed_and_only_once():
    read = []

    def rows():
        for number in range(1000):
            read.append(number)
            yield (number,)

    result = Result([Column("number")], rows())
    assert repr(result).endswith("…")
    assert len(read) < 30
    assert result["number"] == list(range(1000)) == result["number"]
    assert len(read) == 1000


def test_the_top_rows_are_those_of_the_greatest_rank():
    assert scores().top()["line"] == [2, 1, 3]
    assert scores().top(1).to_dict() == {"line": [2], "text": ["b"], "nats": [3.5]}
    assert scores().top(1).about == {"unit": "nats"}
    with pytest.raises(ValueError, match="no rank"):
        Result([Column("a")], []).top()


def test_cells_of_text_become_values():
    result = Result([Column("n", parse=int), Column("x", parse=float)], [("1", "2.50"), ("3", None)])
    assert list(result) == [{"n": 1, "x": 2.5}, {"n": 3, "x": None}]
    assert result.cells() == {"n": ["1", "3"], "x": ["2.50", None]}


def test_a_result_converts_to_frames_and_arrays():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frame = scores().to_pandas()
    assert list(frame.columns) == ["line", "text", "nats"]
    assert frame["line"].dtype == np.int64
    assert isinstance(frame, pandas.DataFrame)
    assert scores().to_polars().schema == {"line": polars.Int64, "text": polars.String, "nats": polars.Float64}
    assert scores().to_numpy("nats").tolist() == [2.0, 3.5, 1.0]


def test_the_page_of_a_result_escapes_what_data_hold():
    shown = Result([Column("<b>")], [("<script>alert(1)</script>",)], about={"file": "<i>"})._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "<b>" not in shown.replace("<tbody>", "")
    assert "<i>" not in shown


def test_an_unknown_column_is_named():
    with pytest.raises(KeyError, match="no column 'bits': expected one of line, text, nats"):
        scores()["bits"]


def test_numbers_are_aligned_to_the_right_and_texts_to_the_left():
    assert repr(scores([(1, "long text", 2.0), (100, "b", math.pi)])).splitlines() == [
        "line  text       nats",
        "   1  long text  2.00",
        " 100  b          3.14",
    ]


def test_a_report_shows_its_page_in_a_frame_of_its_own(tmp_path):
    report = Report({"nats": 1.0}, ("one finding",), '<html lang="en">"quoted"</html>')
    assert repr(report) == "one finding"
    assert "&quot;quoted&quot;" in report._repr_html_()
    report.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == report.page
    assert Report({}, ("<b>",))._repr_html_() == "<pre>&lt;b&gt;</pre>"


def test_figures_without_rows_are_shown():
    figures, measured = {"nats": 1.25, "most_surprising": "<b>"}, "exact, " * 20
    result = Result([], [], summary=lambda: figures, about={"measured": measured})
    assert repr(result).splitlines() == ["nats: 1.2500", "most surprising: <b>", f"measured: {measured}"]
    assert "most surprising: &lt;b&gt;" in result._repr_html_()


def test_a_result_gives_rows_for_other_parts_of_its_data():
    words = Result([Column("text")], [("a b",)], views={"word": lambda: Result([Column("word")], [("a",), ("b",)])})
    assert words.per("word")["word"] == ["a", "b"]
    with pytest.raises(ValueError, match="per: expected one of word, got 'line'"):
        words.per("line")
    with pytest.raises(ValueError, match="per: these rows have no other parts"):
        scores().per("line")


def test_rows_without_a_rank_value_come_last():
    assert scores([(1, "a", None), (2, "b", -1.0)]).top()["line"] == [2, 1]


def test_values_of_different_kinds_become_texts_of_polars():
    """A truth value among numbers became a number."""
    polars = pytest.importorskip("polars")
    result = Result([Column("mixed"), Column("number")], [(4, 1), (False, 0.5), (None, None)])
    assert result.to_polars()["mixed"].to_list() == ["4", "False", None]
    assert result.to_polars().schema["number"] == polars.Float64
