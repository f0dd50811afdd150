"""Packages whose names are imported when they are first used (PEP 562), so that importing a package costs nothing.

A package writes its imports once, below `if TYPE_CHECKING:`, where type checkers and editors read them; `attach` reads
them there too, and makes `__all__` of them. `import NAME as NAME` tells a type checker that the name is public.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

_NO_EXPORTS = ("typing", __name__)


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Map each name to its module, for every `from MODULE import NAME` at a source's top level or below an `if`."""
    return {
        alias.name: node.module
        for node in _statements(tree.body)
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _statements(node.body)


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package that imports its names when they are first used.

    >>> import chainrule.decoding
    >>> "greedy" in dir(chainrule.decoding), chainrule.decoding.greedy.__name__
    (True, 'greedy')
    """
    module = sys.modules[package]
    assert module.__file__ is not None
    imported = imported_names(ast.parse(Path(module.__file__).read_text(encoding="utf-8")))
    homes = {name: home for name, home in imported.items() if home not in _NO_EXPORTS}
    vars(module).setdefault("__all__", sorted(homes))

    class Package(ModuleType):
        def __setattr__(self, name: str, value: object) -> None:
            # Importing a submodule sets it as an attribute; a function of the same name stays what the package exports.
            if not (isinstance(value, ModuleType) and homes.get(name, package) != package):
                super().__setattr__(name, value)

        def __reduce__(self) -> tuple[Any, ...]:
            # As a plain module: functions that use it go to the processes of Ray, Dask and Spark.
            return import_module, (package,)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:
            return import_module(f"{package}.{name}")
        value = vars(module)[name] = getattr(import_module(homes[name]), name)
        return value

    module.__class__ = Package
    return get, lambda: sorted(module.__all__)
