"""The plan of the house: which way imports point, no circles, and the limits on size that CONTRIBUTING.md names."""

import ast
from functools import cache
from pathlib import Path

import pytest

import chainrule

HOME = Path(chainrule.__file__).parent
MODULES = {
    ".".join(("chainrule", *path.relative_to(HOME).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in HOME.rglob("*.py")
}
# A room may import itself and those after it; what is in none of the rooms (base, state, ranges, ...) is for all.
ROOMS = [
    "_app.cli",
    "interchange",
    "_app.tasks",
    "_app.pages",
    "diagnostics",
    "testing",
    "coding",
    "training",
    "metrics",
    "decoding",
    "data",
    "models",
    "layers",
    "heads",
]
# What the order of the rooms would allow.
FORBIDDEN = [("decoding", "models"), ("training", "models"), ("coding", "models")]
# Parts that few need, and who imports them, inside a function.
OPTIONAL = {
    "chainrule.coding.adaptive": {"chainrule_app.tasks.compression"},
    "chainrule.coding._portable": {"chainrule.coding._container"},
    "chainrule_app.readers.music": {
        "chainrule_app.heavy",
        "chainrule_app.inputs",
        "chainrule_app.tasks.music.task",
        "chainrule.data",
    },
    "chainrule_app.exchange": {"chainrule", "chainrule_app.cli.exchange", "chainrule_app.run"},
    "chainrule.data.synthetic": set(),
    "chainrule.models.rare": set(),
}


@cache
def imported(module: str, *, at_run_time: bool) -> list[str]:
    """The modules of ours that a module imports; only when it is imported itself if `at_run_time`."""
    found: list[str] = []
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if at_run_time and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if at_run_time and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            todo += node.orelse
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("chainrule"):
            for name in node.names:
                part = f"{node.module}.{name.name}"
                found.append(part if part in MODULES else node.module)
    return found


def room(module: str) -> str:
    parts = module.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["_app"] else 1])


def test_no_modules_import_each_other_in_a_circle():
    edges = {module: set(imported(module, at_run_time=True)) - {module} for module in MODULES}
    while edges:
        free = [module for module, needed in edges.items() if not needed & edges.keys()]
        assert free, f"in circles: {sorted(edges)}"
        for module in free:
            del edges[module]


@pytest.mark.parametrize("place", range(len(ROOMS)))
def test_imports_point_one_way(place):
    later = set(ROOMS[place:]) | {""}
    found = {
        (module, needed)
        for module in MODULES
        if room(module) == ROOMS[place]
        for needed in imported(module, at_run_time=True)
        if room(needed) in ROOMS and room(needed) not in later
    }
    assert not found


@pytest.mark.parametrize(("who", "whom"), FORBIDDEN)
def test_what_must_not_know_of_another_does_not(who, whom):
    found = {
        (module, needed)
        for module in MODULES
        if room(module) == who
        for needed in imported(module, at_run_time=True)
        if room(needed) == whom
    }
    assert not found


@pytest.mark.parametrize("part", OPTIONAL)
def test_optional_parts_are_imported_by_their_own_callers_alone_when_they_are_called(part):
    def inside(module):
        return module == part or module.startswith(f"{part}.")

    others = [module for module in MODULES if not inside(module)]
    assert any(map(inside, MODULES))
    assert not [module for module in others if any(map(inside, imported(module, at_run_time=True)))]
    callers = {module for module in others if any(map(inside, imported(module, at_run_time=False)))}
    assert callers == OPTIONAL[part]


def test_files_are_of_readable_size():
    long = {name: lines for name, path in MODULES.items() if (lines := len(path.read_text().splitlines())) > 400}
    assert not long
