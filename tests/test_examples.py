"""The short scripts and the notebook of the front door run, with a tiny budget."""

import ast
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORT = ("fit_text", "fit_table", "fill_table", "fit_images", "fit_series", "check_module")
MOST_LINES = 4


@pytest.mark.parametrize("name", SHORT)
def test_a_short_example_runs(name, tmp_path, monkeypatch, capsys):
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    lines = [node for node in ast.parse(source).body[1:] if not isinstance(node, ast.ClassDef)]  # the user's own module
    assert len(lines) <= MOST_LINES
    quick = source.replace('budget="30s"', "steps=1, threads=1")
    assert (quick != source) == (name != "check_module")
    monkeypatch.chdir(tmp_path)
    exec(compile(quick, name, "exec"), {"__name__": "__main__"})
    out = capsys.readouterr().out
    assert out.strip()
    assert "FAIL" not in out
    assert name != "check_module" or len(out.splitlines()) == 14
    assert not list(tmp_path.iterdir())  # a temporary run leaves nothing


def shown(cell, kind="text/plain"):
    """What a cell of a notebook shows below it."""
    return "".join(output["data"].get(kind, "") for output in cell["outputs"] if "data" in output)


@pytest.mark.slow
def test_the_notebook_shows_frames_pages_and_pictures(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(EXAMPLES / "front_door.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # kept without them
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    _, run, drawn, scores, page, forecast, picture, text = (
        cell for cell in notebook.cells if cell["cell_type"] == "code"
    )
    assert "<Run table: made, held out" in shown(run)
    assert "reproduce with" in "".join(output.get("text", "") for output in run["outputs"])  # told while it trains
    assert "<table" in shown(drawn, "text/html")
    assert "smokes" in shown(drawn, "text/html")
    assert shown(scores, "text/html").count("<tr>") == 4
    assert "<iframe srcdoc=" in shown(page, "text/html") or shown(page)
    assert "2026-01-26 11:00:00" in shown(forecast)
    assert shown(picture, "image/png")
    (value,) = (output for output in text["outputs"] if output["output_type"] == "execute_result")  # below its curve
    assert len(ast.literal_eval(value["data"]["text/plain"])) == 2
