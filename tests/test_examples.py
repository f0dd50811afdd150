"""The short scripts and the notebook of the front door run, with a tiny budget."""

import ast
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORT = {
    "fit_text": "model of a text",
    "fit_table": "alcohol",
    "fit_images": "[[[",
    "fit_series": "2026-02-03 08:00:00",
    "check_module": "passed",
}
MOST_LINES = 4


def code_lines(source):
    """Lines of a script beside its docstring and the module that it defines."""
    return [node for node in ast.parse(source).body if not isinstance(node, ast.Expr | ast.ClassDef) or is_call(node)]


def is_call(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


@pytest.mark.parametrize("name", SHORT)
def test_a_short_example_runs(name, tmp_path, monkeypatch, capsys):
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert len([node for node in code_lines(source) if not isinstance(node, ast.Import | ast.ImportFrom)]) <= 2
    monkeypatch.chdir(tmp_path)
    quick = source.replace('budget="30s"', "steps=1, threads=1")
    assert (quick != source) == (name != "check_module")
    exec(compile(quick, name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()
    assert not list(tmp_path.iterdir())
