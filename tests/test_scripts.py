"""Benchmarks and examples: what they import is there, what `make` runs needs no arguments, and the examples run."""

import ast
import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parent.parent
SCRIPTS = sorted([*HOME.glob("benchmarks/*.py"), *HOME.glob("benchmarks/peers/*.py"), *HOME.glob("examples/*.py")])
MADE = [script for script in SCRIPTS if script.name.startswith(("speed_", "quality_", "sampling.", "memory."))]


def names_of(script: Path) -> set[str]:
    """The names that a script has when it is imported, without running it."""
    found, todo = set(), list(ast.parse(script.read_text(encoding="utf-8")).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {name.asname or name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.If | ast.Try):
            todo += [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt)]
        else:
            found |= {
                part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            }
    return found


def is_module(package: str, name: str) -> bool:
    """Whether a package of ours has such a module."""
    return importlib.util.find_spec(f"{package}.{name}") is not None


def missing(script: Path) -> list[str]:
    """What a script imports from the library or from the scripts beside it, and what is not there."""
    found = []
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        beside = script.parent / f"{node.module}.py"
        if beside.exists():
            known = names_of(beside)
        elif node.module.startswith("chainrule"):
            module = importlib.import_module(node.module)
            known = {
                name.name for name in node.names if hasattr(module, name.name) or is_module(node.module, name.name)
            }
        else:
            continue
        found += [f"{node.module}.{name.name}" for name in node.names if name.name not in known]
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_what_a_script_imports_is_there(script):
    assert not missing(script)


def required_arguments(script: Path) -> list[str]:
    """Return the arguments that a script requires."""
    calls = [node for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    added = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"]
    found = []
    for call in added:
        name, given = ast.literal_eval(call.args[0]), {word.arg: ast.unparse(word.value) for word in call.keywords}
        if given.get("required") == "True" or (not name.startswith("-") and given.get("nargs") not in ("'?'", "'*'")):
            found.append(name)
    return found


@pytest.mark.parametrize("script", MADE, ids=lambda path: path.name)
def test_make_runs_a_script_without_arguments(script):
    assert not required_arguments(script)


@pytest.mark.parametrize("script", sorted(HOME.glob("benchmarks/*.py")), ids=lambda path: path.name)
def test_a_benchmark_has_help_and_a_line_in_the_readme(script):
    text, readme = script.read_text(encoding="utf-8"), (HOME / "benchmarks/README.md").read_text(encoding="utf-8")
    if "__main__" in text:
        assert "ArgumentParser(description=__doc__" in text
        assert script in MADE or f"`{script.name}`" in readme


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    ["check_module.py", "demo.py 2s", "images.py 2s", "library.py 1", "long_memory.py 2 20", "melody.py music 2",
     "sound.py 1", "tagging.py 2", "translation.py numbers 2"],
)  # fmt: skip
def test_an_example_runs(call, tmp_path):
    """`make demo-images` stopped at its picture."""
    script, *arguments = call.split()
    command = [sys.executable, str(HOME / "examples" / script), *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(HOME)}
    )
    assert not done.returncode, done.stderr


def test_required_arguments_are_found(tmp_path):
    script = tmp_path / "script.py"
    calls = ['"run"', '"file", nargs="?"', '"--data", required=True', '"--seed", type=int']
    script.write_text("\n".join(f"parser.add_argument({call})" for call in calls))
    assert required_arguments(script) == ["run", "--data"]


def test_what_is_not_there_is_found(tmp_path):
    (tmp_path / "beside.py").write_text("SIZES: dict[str, int] = {}\nA, B = 1, 2\nif A:\n    C = A\nprint(MODEL)\n")
    script = tmp_path / "script.py"
    lines = ["from beside import A, C, SIZES, MODEL", "from chainrule_app.tasks import size_schedule", "import os"]
    script.write_text("\n".join([*lines, "from chainrule.models import Seq2Seq, Sequence2"]))
    assert missing(script) == ["beside.MODEL", "chainrule.models.Sequence2"]
