"""The application, examples and pages take public names alone, and there are not too many of them."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import chainrule
import chainrule_app

HOME = Path(chainrule.__file__).parent
ROOT = HOME.parent
ROOMS = [path.parent.name for path in sorted(HOME.glob("*/__init__.py")) if not path.parent.name.startswith("_")]
PACKAGES = ["chainrule", *(f"chainrule.{room}" for room in ROOMS), "chainrule.data.synthetic"]
MOST_NAMES = {"chainrule": 200, "chainrule_app": 24}
OPEN_MODULES = {
    "devices",
    "figures",
    "files",
    "lazy",
    "modes",
    "option_error",
    "peers",
    "printing",
    "ranges",
    "state",
    "tensor_files",
    "typed_json",
}  # modules of the library that are public themselves
# Kernels that a benchmark measures, and names therefore; the application needs none.
MEASURED = {"kernels._cached_steps"}


def private_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "chainrule":
            for name in node.names:
                parts = f"{node.module}.{name.name}".split(".")[1:]
                first = next((place for place, part in enumerate(parts) if re.match("_(?!_)", part)), None)
                if first is not None:
                    yield ".".join(parts[: first + 1])


def test_the_public_names_fit_in_the_head():
    names = {name for package in PACKAGES for name in import_module(package).__all__}
    assert len(names - {*ROOMS, "__version__", *chainrule.APPLICATION}) <= MOST_NAMES["chainrule"]
    assert len(chainrule_app.__all__) <= MOST_NAMES["chainrule_app"]


def test_modules_that_are_not_public_say_so():
    open_modules = {path.stem for room in ROOMS for path in (HOME / room).glob("*.py")} - {"__init__"}
    assert {name for name in open_modules if not name.startswith("_")} == set()
    assert {path.stem for path in HOME.glob("*.py") if not path.stem.startswith("_")} == OPEN_MODULES


def test_pages_show_public_names_alone():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    lines = [
        (page.name, line)
        for page in pages
        if "_build" not in page.parts
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.match(r"\s*(>>> )?(from|import) chainrule\b.*(\.| import )_", line)
    ]
    assert not lines


def imported_when_run(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            yield from [name.name for name in node.names]


def test_kernels_know_arrays_and_plain_functions_alone():
    found = {
        (path.name, name)
        for path in (HOME / "kernels").glob("*.py")
        for name in imported_when_run(path)
        if name.startswith("chainrule.") and name.split(".")[1] not in ("kernels", "state")
    }
    assert not found  # heads, layers and models hand over what a kernel needs of them


def test_the_application_benchmarks_and_examples_take_public_names_alone():
    found = {
        home: {name for path in (ROOT / home).rglob("*.py") for name in private_imports(path)}
        for home in ("chainrule_app", "benchmarks", "examples")
    }
    assert found == {"chainrule_app": set(), "benchmarks": MEASURED, "examples": set()}


def test_names_imported_from_public_packages_are_public():
    """Type checkers take any name from a package with `__getattr__`, and call it Any."""
    found = set()
    for path in (path for home in ("chainrule_app", "benchmarks", "examples") for path in (ROOT / home).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in PACKAGES:
                public = {*import_module(node.module).__all__, *OPEN_MODULES}
                names = {name.name for name in node.names if not name.name.startswith("_")}
                found |= {(path.name, f"{node.module}.{name}") for name in names - public}
    assert not found
