"""The faults that `benchmarks/mutants.py` plants are real ones, and each has tests to find it."""

import ast
import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "mutants.py"


@pytest.fixture(scope="module")
def mutants():
    spec = importlib.util.spec_from_file_location("mutants", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_fault_is_one_change_that_python_reads_and_has_tests(mutants):
    faults = [fault for path in mutants.FILES for fault in mutants.chosen(path)]
    assert len({fault.key for fault in faults}) == len(faults) >= 60
    assert {fault.kind for fault in faults} >= {
        "sign",
        "index",
        "mask",
        "off by one",
        "axis",
        "dropped check",
        "swapped",
    }
    assert all(mutants.tests_of(path) for path in mutants.FILES)
    for fault in faults[:: len(faults) // 12]:
        before, after = ((mutants.HOME / fault.path).read_text(encoding="utf-8"), fault.planted())
        assert ast.dump(ast.parse(before)) != ast.dump(ast.parse(after)), fault


def test_a_fault_is_planted_where_it_is_said(mutants, tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "HOME", tmp_path)
    code = (
        "def after(x, é, y):\n    if len(x) > 3:\n        raise ValueError(x - y)\n    return f(é, y) - x[0].sum(1)\n"
    )
    (tmp_path / "a.py").write_text(code, encoding="utf-8")
    planted = {fault.kind: fault.planted().splitlines() for fault in mutants.places("a.py")}
    assert planted.keys() == {"dropped check", "off by one", "sign", "swapped", "index", "axis"}
    assert planted["dropped check"][1] == "    if False and (len(x) > 3):"
    assert planted["off by one"][1] == "    if (len(x) >= 3):"
    last = {kind: lines[3] for kind, lines in planted.items()}
    assert last["sign"] == "    return (f(é, y) + (x[0].sum(1)))"
    assert last["swapped"] == "    return f(y, é) - x[0].sum(1)"
    assert last["index"] == "    return f(é, y) - x[1].sum(1)"
    assert last["axis"] == "    return f(é, y) - x[0].sum(0)"
