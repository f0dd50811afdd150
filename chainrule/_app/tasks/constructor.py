"""The arguments of a model's constructor, read from its source: its options are known without importing torch."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc
from pathlib import Path
from typing import Any

from chainrule._lazy import imported_names

REQUIRED = object()
"""The default of an argument that has none."""
_LIGHT = ("typing", "collections.abc", "chainrule._ranges")  # imported where an annotation names something of them


@dataclass(frozen=True)
class Argument:
    hint: Any  # None for annotations beyond numbers, texts, choices and ranges
    default: Any  # REQUIRED without a default
    help: str  # from the class docstring, or the nearest base class that documents it


def constructor_arguments(module: str, name: str) -> dict[str, Argument]:
    """Return the constructor arguments of a class by name, in order.

    >>> constructor_arguments("chainrule.models", "SentenceVAE")["kl_warmup"].default
    0.3
    """
    lineage = list(_lineage(_scope(module), name))
    if not lineage:
        raise TypeError(f"{module}: expected a class {name}, found none: export it there")
    helps: dict[str, str] = {}
    for _, node in reversed(lineage):
        helps |= argument_help(ast.get_docstring(node) or "")
    scope, init = next(
        (scope, statement.args)
        for scope, node in lineage
        for statement in node.body
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__"
    )
    positional = [*init.posonlyargs, *init.args][1:]  # without self
    defaults = [None] * (len(positional) - len(init.defaults)) + init.defaults
    parts = [*zip(positional, defaults, strict=True), *zip(init.kwonlyargs, init.kw_defaults, strict=True)]
    arguments = {
        part.arg: (scope.hint(part.annotation), REQUIRED if default is None else scope.evaluate(default))
        for part, default in parts
    }
    if init.kwarg is not None and isinstance(init.kwarg.annotation, ast.Subscript):
        keys = init.kwarg.annotation.slice
        assert isinstance(keys, ast.Name)
        for home, node in reversed(list(_lineage(scope, keys.id))):
            for key in node.body:
                if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name):
                    arguments[key.target.id] = home.hint(key.annotation), _attribute(lineage, key.target.id)
    return {name: Argument(hint, default, helps.get(name, "")) for name, (hint, default) in arguments.items()}


class _Scope(dict[str, Any]):
    """Names of a module for evaluating annotations, each read from the source on demand."""

    def __init__(self, module: str):
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        self.imports = imported_names(tree)
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.assigned = dict(_assignments(tree.body))

    def __missing__(self, name: str) -> Any:
        if name in self.assigned:
            return self.evaluate(self.assigned[name])
        home = self.imports.get(name, "")
        if home in _LIGHT:
            return getattr(import_module(home), name)
        if home.startswith("chainrule."):
            return _scope(home)[name]
        raise KeyError(name)  # Python takes it for a builtin, or raises NameError

    def evaluate(self, node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "<source>", "eval"), {}, self)  # noqa: S307  our own source

    def hint(self, node: ast.expr | None) -> Any:
        try:
            return None if node is None else self.evaluate(node)
        except NameError:  # such as a tensor or another model
            return None


_scope = cache(_Scope)


def _assignments(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _lineage(scope: _Scope, name: str) -> Iterator[tuple[_Scope, ast.ClassDef]]:
    """Yield a class and its base classes in this library, each with the scope of its module."""
    if name in scope.classes:
        node = scope.classes[name]
        yield scope, node
        for base in node.bases:
            base = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(base, ast.Name):
                yield from _lineage(scope, base.id)
    elif scope.imports.get(name, "").startswith("chainrule."):
        yield from _lineage(_scope(scope.imports[name]), name)


def _attribute(lineage: list[tuple[_Scope, ast.ClassDef]], name: str) -> Any:
    return next(
        scope.evaluate(value) for scope, node in lineage for key, value in _assignments(node.body) if key == name
    )


def argument_help(docstring: str) -> dict[str, str]:
    """Return the text of each argument in a docstring's Args section, as one capitalised line.

    >>> from chainrule.layers import CausalConv1d
    >>> argument_help(CausalConv1d.__doc__)["dilation"]
    'd steps from tap to tap.'
    """
    _, _, section = cleandoc(docstring).partition("\nArgs:\n")
    helps: dict[str, list[str]] = {}
    names: list[str] = []
    for line in section.splitlines():
        if line and not line.startswith(" "):
            break
        before, colon, text = line[4:].partition(": ")
        if colon and all(name.isidentifier() for name in before.split(", ")):
            names = before.split(", ")
            helps |= {name: [text] for name in names}
        elif line.strip():
            for name in names:
                helps[name].append(line.strip())
    return {name: _as_help(" ".join(lines)) for name, lines in helps.items()}


def _as_help(text: str) -> str:
    text = text.replace(":math:", "").replace("`", "")
    symbol = not (text[1:2].isalnum() or text.startswith("a "))  # such as ε: a capital is another
    return text if symbol else text[:1].upper() + text[1:]
