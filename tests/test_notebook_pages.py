"""What a notebook shows of runs, checks and reports, in a browser: pages and tables, not their source."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import chainrule
import chainrule_app
from chainrule.testing import check_model

CITIES = Path(chainrule_app.__file__).parent / "demo" / "cities"
CELLS = (
    "import chainrule; run = chainrule.load('cities'); run",
    "run.inspect()",
    "run.report()",
    "run.check()",
    "run.score(['Lisbon', '<b>$x$</b>'])",
    "run.score(['Lisbon']).plot()",
)


def test_a_check_is_shown_as_its_table(float64: None) -> None:
    report = check_model(
        chainrule.models.RecurrentLM(3, hidden_size=2), chainrule.models.RecurrentLM(3).sample(2, length=4)
    )
    assert repr(report) == str(report)
    html = report._repr_html_()
    assert html.count("<tr>") == 1 + len(report.results)
    assert html.count("<td>pass</td>") == sum(result.ok and result.applies for result in report.results)


def test_a_run_is_shown_as_its_facts() -> None:
    run = chainrule.load(CITIES)
    best = run.task.held_out()
    assert best is not None
    html = run._repr_html_()
    assert f">{best.nats_per_element:.4f} {best.basis.per}<" in html
    assert "compress, decompress, embed" in html


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each cell shows, by its type; run before a browser, which brings an event loop of its own."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    folder = tmp_path_factory.mktemp("notebook")
    shutil.copytree(CITIES, folder / "cities")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return [next(output["data"] for output in cell["outputs"] if "data" in output) for cell in notebook.cells]


@pytest.mark.slow
def test_a_notebook_renders_pages_and_tables(outputs: list[dict[str, Any]], chromium: Any) -> None:
    run, inspected, reported, checked, scores, picture = outputs
    context = chromium.new_context(viewport={"width": 900, "height": 700})
    page = context.new_page()
    for html in (inspected["text/html"], reported["text/html"]):
        page.set_content("<!doctype html><div id=out></div>")
        page.evaluate("html => { out.innerHTML = html; }", html)  # as a notebook does with an output
        frame = page.frame_locator("iframe")
        assert frame.locator("h1").count() == 1
        assert frame.locator("h2").count() > 1
        text = frame.locator("body").inner_text()
        assert "cities" in text
        assert "<" + "h2" not in text
        assert "&lt;" not in text
        assert page.locator("iframe").get_attribute("title")
    for html, rows in ((run["text/html"], 6), (checked["text/html"], 10), (scores["text/html"], 3)):
        page.set_content("<!doctype html><div id=out></div>")
        page.evaluate("html => { out.innerHTML = html; }", html)
        assert page.locator("tr").count() >= rows
    assert page.locator("b").count() == 0  # data are text
    assert picture["image/png"]
    context.close()
