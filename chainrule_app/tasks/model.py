"""A model that a task offers: its options are the arguments of its constructor, and its speed is measured."""

import ast
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from chainrule.lazy import imported_names
from chainrule.ranges import Range
from chainrule_app.tasks.config import CheckedOptions, OptimisationOptions, RunConfig, options_class
from chainrule_app.tasks.display import counted, progress_bars

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from chainrule import TrainableModel
    from chainrule.training import Batch, Findings
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


def seconds_to_measure(budget: float) -> float:
    """Return the seconds to measure speed: 2% of a budget up to 2 s; 1% up to 10 s for a long one.

    >>> [seconds_to_measure(budget) for budget in (30, 180, 600, 3600)]
    [0.6, 2.0, 6.0, 10.0]
    """
    return max(min(2.0, 0.02 * budget), min(10.0, 0.01 * budget))


@dataclass
class Timed:
    """A network that was timed, as new, and its optimiser."""

    network: Any
    optimiser: "Optimizer"
    identity: tuple[Any, ...]  # `Task.network_identity` of its run
    steps_per_second: float
    elements: int  # of the batch that was timed

    @property
    def elements_per_second(self) -> float:
        return self.steps_per_second * self.elements


class Planned(NamedTuple):
    """The config of a planned run, and the network that was timed last for it."""

    config: RunConfig
    timed: Timed | None = None


def time_network(run: Any, batch: "Batch", seconds: float) -> Timed:
    """Build the network of a run, a `Task`, and time its training steps for about `seconds`."""
    from chainrule.training import make_optimiser
    from chainrule.training._batch import count_elements

    training = replace(run.training, device=str(run.device(run.training.device)))
    network = run.new_network(training.seed).to(training.device)
    optimiser = make_optimiser(network, 0.0, 0.0, training.optimiser)
    rate = step_rate(network, optimiser, batch, training, seconds)
    return Timed(network, optimiser, run.network_identity, rate, count_elements(batch))


def step_rate(
    model: "TrainableModel", optimiser: "Optimizer", batch: "Batch", training: OptimisationOptions, seconds: float
) -> float:
    """Measure training steps per second of a model, computed as in its training; a terminal shows that it goes on."""
    from chainrule.training import choose_computation
    from chainrule.training._parallel import choose_device
    from chainrule.training._speed import steps_per_second

    device = choose_device(training.device)
    way, _ = choose_computation(
        model, batch, device, threads=training.threads, precision=training.precision, backend=training.backend
    )
    weights = sum(weight.numel() for weight in model.parameters())
    with progress_bars() as begin:
        begin(None, f"timing training steps of {counted(weights, 'weight')}")
        return steps_per_second(model, optimiser, batch, way, seconds, device)


def share_of(name: str, description: str) -> "Observe":
    """Observe the companion's weight in a `CalibratedMixture`."""

    def share(trained: Any) -> "Findings":
        from chainrule.training import Findings

        value = float(trained.share)
        return Findings({f"share_of_{name}": value}, f"{description}: {value:.0%} of the mean")

    return share
