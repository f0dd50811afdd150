"""Packages import their names when they are first used."""

import ast
import pickle
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import chainrule
from chainrule.lazy import imported_names

PACKAGES = [
    name
    for name in (
        "chainrule",
        *(module.name for module in walk_packages(chainrule.__path__, "chainrule.") if module.ispkg),
    )
    if "__dir__ = attach(__name__)" in Path(import_module(name).__file__).read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_exported_name_is_imported_when_it_is_used(name):
    package = import_module(name)
    imported = imported_names(ast.parse(Path(package.__file__).read_text(encoding="utf-8")))
    exported = set(package.__all__) - {"__version__"} - (set(chainrule.APPLICATION) if name == "chainrule" else set())
    assert exported == {name for name, home in imported.items() if home.startswith("chainrule") and name != "attach"}
    assert dir(package) == sorted(package.__all__)
    for one in package.__all__:
        assert getattr(package, one) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing


def test_packages_are_pickled_by_their_names():
    """Engines pickle a function with the packages that it uses; a replica of Ray Serve could not use `chainrule`."""
    for package in (chainrule, chainrule.layers):
        assert pickle.loads(pickle.dumps(package)) is package  # noqa: S301  ours
