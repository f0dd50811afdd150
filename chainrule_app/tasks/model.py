"""A model that a task offers: its options are the arguments of its constructor, and it must fit in memory."""

import ast
import os
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from chainrule.lazy import imported_names
from chainrule.option_error import UserError
from chainrule.ranges import Range
from chainrule_app.heavy import modes
from chainrule_app.tasks.config import CheckedOptions, options_class
from chainrule_app.tasks.run_directory import count_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from chainrule.training import Findings
    from chainrule_app.tasks.preview import Observe


REQUIRED = object()
"""The default of an argument that has none."""
_LIGHT = ("typing", "collections.abc", "chainrule.ranges")  # imported where an annotation names something of them


@dataclass(frozen=True)
class Argument:
    hint: Any  # None for annotations beyond numbers, texts, choices and ranges
    default: Any  # REQUIRED without a default
    help: str  # from the class docstring, or the nearest base class that documents it


def constructor_arguments(module: str, name: str) -> dict[str, Argument]:
    """Return the constructor arguments of a class by name, in order."""
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
    """Return the text of each argument in a docstring's Args section, as one capitalised line."""
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


_SIMPLE = (int, float, bool, str, NoneType)
_MEMBERS_HELP = "Number of models to train separately and average; time and memory grow in proportion."


class Model:
    """Model class and its options: flags, types, help, ranges and defaults come from the constructor."""

    def __init__(
        self,
        home: str | type,
        *,
        fixed: dict[str, Any] | None = None,
        planned: tuple[str, ...] = (),
        hidden: tuple[str, ...] = (),
        members: bool = False,
        **defaults: Any,
    ):
        self.module, self.name = (
            ("chainrule.models", home) if isinstance(home, str) else (home.__module__, home.__name__)
        )
        self.fixed, self.planned, self.hidden, self.defaults = fixed or {}, planned, hidden, defaults
        self.members = members

    @cached_property
    def model_class(self) -> Any:
        return getattr(import_module(self.module), self.name)

    @cached_property
    def options(self) -> type[CheckedOptions]:
        arguments = constructor_arguments(self.module, self.name)
        named = {*self.planned, *self.hidden, *self.defaults, *self.fixed}
        if unknown := named - arguments.keys() - ({"num_members"} if self.members else set()):
            raise TypeError(f"{self.name} has no argument {min(unknown)}")
        option_fields = []
        for name, argument in arguments.items():
            hint, bounds = _without_range(argument.hint)
            if name in (*self.fixed, *self.hidden) or argument.default is REQUIRED or not _is_simple(hint):
                continue
            default = self.defaults.get(name, argument.default)
            if name in self.planned:
                hint, default = hint | None, None
            metadata = {"help": argument.help, "range": bounds}
            option_fields.append((name, hint, field(default=default, metadata=metadata)))
        if self.members:
            planned = "num_members" in self.planned
            hint, default = (int | None, None) if planned else (int, 1)
            members_help = f"{_MEMBERS_HELP} By default it depends on the budget." if planned else _MEMBERS_HELP
            option_fields.append(
                ("num_members", hint, field(default=default, metadata={"help": members_help, "range": (1, 16)}))
            )
        return options_class(f"{self.name}Options", option_fields, CheckedOptions)

    def build(self, options: Any, **data_arguments: Any) -> Any:
        """Build the model from options and data arguments; an unset planned option takes the constructor's default."""
        parameters = signature(self.model_class).parameters
        chosen = {
            name: value for name, value in asdict(options).items() if not (name in self.planned and value is None)
        }
        members = chosen.pop("num_members", 1) if self.members else 1
        of_data = {name: value for name, value in data_arguments.items() if name in parameters}
        one = partial(self.model_class, **of_data, **self.fixed, **chosen)
        if members == 1:
            return one()
        from chainrule.models import Ensemble

        return Ensemble([one() for _ in range(members)])


def _without_range(hint: Any) -> tuple[Any, tuple[float, float] | None]:
    """Split a type from its range, also inside a union with None."""
    if get_origin(hint) is Annotated:
        ranges = [extra for extra in hint.__metadata__ if isinstance(extra, Range)]
        return get_args(hint)[0], (ranges[0].low, ranges[0].high) if ranges else None
    if get_origin(hint) in (UnionType, Union):
        parts = [_without_range(part) for part in get_args(hint)]
        bounds = next((bounds for _, bounds in parts if bounds is not None), None)
        plain = parts[0][0]
        for part, _ in parts[1:]:
            plain = plain | part
        return plain, bounds
    return hint, None


def _is_simple(hint: Any) -> bool:
    if get_origin(hint) in (UnionType, Union):
        return all(map(_is_simple, get_args(hint)))
    return hint in _SIMPLE or get_origin(hint) is Literal


def check_size(
    build: "Callable[[], nn.Module]", config: Path, weights: Path | None, *, least: int = 0, confirm: str = ""
) -> int:
    """Count the weights; refuse options of a larger model than the weights file, or than memory allows."""
    if weights is None:
        needed = least if least > memory() // _TRAINED else count_built(build, most=memory())
        check_memory(needed, f"{config}: its options", "restore it from a copy")
        if confirm and needed > _UNCONFIRMED:
            raise UserError(
                f"{config}: nothing is trained yet, and its options make a model of {needed:,} weights",
                f"restore it from a copy, or confirm it with {confirm}",
            )
        return needed
    there = count_weights(weights)
    needed = least if there < least else count_built(build, most=there)
    if there < needed:
        raise ValueError(
            f"{weights}: holds {there} numbers, but {config.name} and the data describe a model of at least "
            f"{needed}: one of the files was changed or comes from another run"
        )
    return needed


def count_built(build: "Callable[[], nn.Module]", most: int) -> int:
    """Count the weights of a model built on the meta device; stop at many more than `most`."""
    _watch_weights()
    counter = _Counter(_OFTEN * most)
    token = _counter.set(counter)
    try:
        with modes.unfilled():
            return sum(weight.numel() for weight in build().parameters())
    except _TooManyError:
        return counter.count
    finally:
        _counter.reset(token)


@dataclass
class _Counter:
    most: int
    count: int = 0


_counter: ContextVar[_Counter | None] = ContextVar("_counter", default=None)  # of the model that this thread counts


@cache
def _watch_weights() -> None:
    """Count every weight that is registered while a thread counts.

    The hook stays: torch calls it for modules of all threads, and fails in those where it comes or goes meanwhile.
    """
    from torch.nn.modules.module import register_module_parameter_registration_hook

    register_module_parameter_registration_hook(_count_weight)


def _count_weight(module: "nn.Module", name: str, weight: "nn.Parameter | None") -> None:
    counter = _counter.get()
    if counter is None or weight is None:
        return
    counter.count += weight.numel()
    if counter.count > counter.most:
        raise _TooManyError


_UNCONFIRMED = 1 << 25  # weights, which take 0.8 GB to train
_OFTEN = 4  # times that a weight may be registered: shared by layers, or replaced


class _TooManyError(Exception):
    """A model has more weights than it may have."""


_TRAINED = 24  # bytes a weight: itself, its gradient, two moments of AdamW, and a masked copy with its gradient
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def check_memory(weights: int, what: str, remedy: str) -> None:
    """Refuse a model that takes more memory to train than there is."""
    needed, there = weights * _TRAINED, memory()
    if needed > there:
        raise UserError(
            f"{what} make a model of {weights:,} weights, which takes about {needed / 2**30:,.0f} GiB to train, more "
            f"than the {there / 2**30:,.0f} GiB of this machine",
            remedy,
        )


def memory() -> int:
    """Return the bytes of memory that this process may use, in its container."""
    limits = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in map(Path, _LIMITS):
        if path.is_file() and (limit := path.read_text(encoding="utf-8").strip()).isdecimal():
            limits.append(int(limit))
    return min(limits, default=1 << 62)


def share_of(name: str, description: str) -> "Observe":
    """Observe the companion's weight in a `CalibratedMixture`."""

    def share(trained: Any) -> "Findings":
        from chainrule.training import Findings

        value = float(trained.share)
        return Findings({f"share_of_{name}": value}, f"{description}: {value:.0%} of the mean")

    return share
