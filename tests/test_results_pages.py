"""Pages show the figures that the benchmarks' results have."""

import json
import re
from ast import literal_eval
from itertools import pairwise
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


def test_every_page_of_results_is_of_a_result(tables):
    assert {*(tables.ROOT / "docs/results").glob("*.md")} <= {*tables.pages()}


def test_figures_beside_other_software_are_results(tables):
    page = (tables.ROOT / "docs/instead.md").read_text(encoding="utf-8")
    rows = [row for row in page.splitlines() if "(results/" in row]
    assert len(rows) >= 5
    for row in rows:
        name = row.split("(results/")[1].partition(".md)")[0]
        claims = json.loads((tables.ROOT / f"benchmarks/results/{name}.json").read_text())["claims"]
        measured = [float(each) for claim in claims for each in re.findall(r"\d+\.\d+", claim["measured"])]
        shown = re.findall(r"\d+\.\d+", row.split("|")[-2])
        assert any(round(value, len(each.split(".")[1])) == float(each) for each in shown for value in measured), row


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(2.0, "within"), (1.85, "within"), (3.2, "within"), (1.7, "outside, worse"), (3.4, "outside, better")],
)
@pytest.mark.parametrize("sign", ["≥", "≤"])
def test_a_speed_is_compared_with_the_published_range(tables, value, verdict, sign):
    import bench

    published = {
        "measured": "2× to 3×",
        "target": f"{sign} 2×",
        "unit": "×",
        "measurements": [{"value": 2.0}, {"value": 3.0}],
    }
    if sign == "≤":
        verdict = {"outside, worse": "outside, better", "outside, better": "outside, worse"}.get(verdict, verdict)
    measured = {"measurements": [{"value": value}]}
    assert bench.compared(measured, published) == (f"{value:g}×", "2× to 3×", f"{sign} 2×", verdict)
    assert bench.compared(None, published)[3].startswith("not measured")


def test_a_speed_is_published_over_processors(tables, monkeypatch, tmp_path):
    import side_by_side

    monkeypatch.setenv("BENCHMARK_RESULTS", str(tmp_path))
    found = []
    for cpu, value in (("A (AVX2)", 0.9), ("A (AVX-512)", 1.25), ("A (AVX2)", 1.1), ("B (AVX2)", 0.8)):
        monkeypatch.setattr(side_by_side, "machine", lambda cpu=cpu: {"cpu": cpu, "threads": 1})
        side_by_side.publish("speed_x", [], [side_by_side.claim("x", value, ">=", 1, "×")])
        (claim,) = json.loads((tmp_path / "speed_x.json").read_text())["claims"]
        found.append((claim["measured"], claim["met"]))
    assert found == [("0.9×", False), ("0.9× to 1.25×", False), ("1.1× to 1.25×", True), ("0.8× to 1.25×", False)]
    assert [each["value"] for each in claim["measurements"]] == [1.25, 1.1, 0.8]


def test_costs_are_measured_of_tiny_models(tables, monkeypatch, capsys):
    import cost

    monkeypatch.setattr("sys.argv", ["cost.py", "--quick", "--model", "MADE"])
    cost.main()
    rows = [literal_eval(line) for line in capsys.readouterr().out.splitlines()]
    assert {(row["work"], row["size"]) for row in rows} == {(w, s) for w in cost.WORK for s in cost.RANGES} - {
        (work, "vocabulary") for work in cost.WORK
    }
    assert all(row["ms"] is not None for row in rows)
    (scoring,) = (row for row in rows if (row["work"], row["size"]) == ("scoring", "rows"))
    slope, error = scoring["million operations"]
    assert abs(slope - 1) + error < 1e-9


def test_names_of_curves_do_not_cover_each_other(tables):
    import cost

    heights = cost.spread({"a": 0.98, "b": 0.5, "c": 0.97, "d": 0.99})
    assert sorted(heights, key=heights.get) == ["b", "c", "a", "d"]
    ordered = sorted(heights.values())
    assert all(above - below > 0.99 * cost.LABEL_GAP for below, above in pairwise(ordered))
    assert ordered[-1] <= 1


def test_the_page_of_costs_agrees_with_its_points(tables):
    import cost

    path, text = cost.page()
    assert text == path.read_text(encoding="utf-8"), "run python benchmarks/cost.py"


@pytest.mark.slow  # trains two runs for each
@pytest.mark.parametrize(("size", "work"), [("columns", "fill"), ("megabytes", "train words"), ("words", "sample")])
def test_growth_is_measured_of_tiny_data(tables, size, work):
    import growth

    costs = growth.measured(size, work, growth.TINY[size])
    assert costs["s"] > 0
    assert costs["MB"] >= 0


def test_exponents_are_those_of_powers(tables):
    import cost

    rows = [{"length": n, "ms": 0.3 * n**1.5 + (n < 100)} for n in (32, 64, 128, 256, 512, 1024)]
    slope, error = cost.fit(rows, "length", "ms")
    assert abs(slope - 1.5) + error < 1e-9


def test_a_number_in_a_passage_is_replaced_across_lines(tables):
    text = "needs 5.1 bits\nper sample, and 4.0 bits"
    assert tables.quoted(text, "needs {} bits per", ["4.3"], "page") == "needs 4.3 bits\nper sample, and 4.0 bits"


@pytest.mark.parametrize("passage", ["costs {} bits", "{} bits"])
def test_a_passage_that_is_missing_or_ambiguous_is_an_error(tables, passage):
    with pytest.raises(SystemExit, match="expected one passage"):
        tables.quoted("needs 5.1 bits, and 4.0 bits", passage, ["4.3"], "page")
