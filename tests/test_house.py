"""The plan of the house: two packages, which way imports point, no circles, and files of readable size."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import chainrule
import chainrule_app

LIBRARY, APPLICATION = Path(chainrule.__file__).parent, Path(chainrule_app.__file__).parent
MODULES = {
    ".".join((home.name, *path.relative_to(home).with_suffix("").parts)).removesuffix(".__init__"): path
    for home in (LIBRARY, APPLICATION)
    for path in home.rglob("*.py")
}
# A room may import itself and those after it; what is in none of the rooms (base, state, ranges, ...) is for all.
ROOMS = [
    "chainrule_app.cli",
    "chainrule_app.exchange",
    "chainrule_app.tasks",
    "chainrule_app.pages",
    "chainrule_app.readers",
    "chainrule.diagnostics",
    "chainrule.testing",
    "chainrule.coding",
    "chainrule.training",
    "chainrule.metrics",
    "chainrule.decoding",
    "chainrule.data",
    "chainrule.models",
    "chainrule.layers",
    "chainrule.heads",
    "chainrule.kernels",
]
# What the order of the rooms would allow.
FORBIDDEN = [("decoding", "models"), ("training", "models"), ("coding", "models"), ("data", "models")]
# Layers call a head for its parameters, and kernels know arrays, states and the functions that they are given.
# Parts that few need, and who imports them, inside a function.
OPTIONAL = {
    "chainrule_app.readers.music": {
        "chainrule_app",
        "chainrule_app.heavy",
        "chainrule_app.tasks.music.task",
        "chainrule_app.tasks.output",
    },
    "chainrule_app.exchange": {"chainrule_app", "chainrule_app.cli.exchange", "chainrule_app.run"},
    "chainrule.data.synthetic": set(),
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


def top_level(module: str, *, for_types: bool) -> set[str]:
    """The modules that a module imports at its top, those for type checking included if asked for."""
    found = set()
    for node in ast.parse(MODULES[module].read_text(encoding="utf-8")).body:
        checking = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for part in node.body if checking and for_types else [node]:
            if isinstance(part, ast.ImportFrom) and (part.module or "").startswith("chainrule"):
                names = [f"{part.module}.{name.name}" for name in part.names]
                found |= {name if name in MODULES else str(part.module) for name in names} & MODULES.keys()
    return found


def room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def test_the_library_never_imports_the_application():
    found = {
        (module, needed)
        for module in MODULES
        if module.split(".")[0] == "chainrule"
        for needed in imported(module, at_run_time=False)
        if needed.split(".")[0] == "chainrule_app"
    }
    assert not found


@pytest.mark.parametrize("at_run_time", [True, False])
def test_no_modules_import_each_other_in_a_circle(at_run_time):
    edges = {module: {*top_level(module, for_types=not at_run_time)} - {module} for module in MODULES}
    while edges:
        free = [module for module, needed in edges.items() if not needed & edges.keys()]
        assert free, f"in circles: {sorted(edges)}"
        for module in free:
            del edges[module]


@pytest.mark.parametrize("place", range(len(ROOMS)))
def test_imports_point_one_way(place):
    later = {*ROOMS[place:]}
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
        if room(module) == f"chainrule.{who}"
        for needed in imported(module, at_run_time=True)
        if room(needed) == f"chainrule.{whom}"
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


def test_every_module_has_a_use():
    """A module that nothing imports and no user is told of was left behind."""
    used = {needed for module in MODULES for needed in imported(module, at_run_time=False) if needed != module}
    left = {module for module, path in MODULES.items() if path.stem not in ("__init__", "__main__")} - used
    entries = {"chainrule_app.cli.main", "chainrule_app.sklearn", "chainrule_app.statsforecast"}
    assert left <= entries


def test_files_are_of_readable_size():
    long = {name: lines for name, path in MODULES.items() if (lines := len(path.read_text().splitlines())) > 400}
    assert not long


def test_names_of_files_are_portable():
    """A file that a slip of the hand wrote into the repository (`s` in a pager) is named after what was typed."""
    repository = Path(__file__).parents[1]
    found = [path for path in repository.iterdir() if not path.name.startswith(".")]
    found += [path for place in found if place.is_dir() for path in place.rglob("*")]
    assert len(found) > 1000
    assert [str(path) for path in found if not re.fullmatch(r"[A-Za-z0-9_.-]+", path.name)] == []
