"""Signatures of verbs: arguments common to all tasks, flags made from dataclasses, and verbs by method."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from functools import cache
from inspect import cleandoc
from pathlib import Path
from shlex import join
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from cyclopts import Group, Parameter

from chainrule_app.inputs import inputs_of
from chainrule_app.readers.sources import check_path, paths_of
from chainrule_app.readers.text import STDIN
from chainrule_app.tasks import TASKS
from chainrule_app.tasks.capabilities import OPTIONS
from chainrule_app.tasks.config import MOST_SEED, options_class
from chainrule_app.tasks.display import Switch, Verb
from chainrule_app.tasks.model import argument_help
from chainrule_app.tasks.task import Task


def _refuse_flag(_: Any, words: list[str] | None) -> None:
    for word in words or ():
        if word.startswith("-") and word != STDIN:
            raise ValueError(f"unknown option {word}; for a file of that name write ./{word}")


if TYPE_CHECKING:
    Input = str
else:
    Input = Annotated[list[str], Parameter(allow_leading_hyphen=True, negative=(), validator=_refuse_flag)]
"""Paths, patterns or - for standard input; `open_run` replaces them by one path. Other leading hyphens are refused."""


def _refuse_seed(_: Any, value: int | None) -> None:
    if value is not None and not 0 <= value <= MOST_SEED:
        raise ValueError(f"expected a whole number from 0 to {MOST_SEED}, got {value}")


Seed = Annotated[int, Parameter(validator=_refuse_seed)]
"""A seed that torch takes."""


def joined_help(own: str, common: str) -> str:
    """Join the description of `own` and the arguments of both docstrings; `own` takes precedence.

    >>> print(joined_help("Score images.", '''Score.
    ...
    ...     Args:
    ...         data: The data.
    ...     '''))
    Score images.
    <BLANKLINE>
    Args:
        data: The data.
    """
    helps = argument_help(common) | argument_help(own)
    lines = [f"    {name}: {text}" for name, text in helps.items()]
    words = cleandoc(own).partition("\nArgs:\n")[0].strip()
    paragraphs = [" ".join(paragraph.split()) for paragraph in words.split("\n\n")]
    return "\n\n".join(paragraphs) + "\n\nArgs:\n" + "\n".join(lines)


@cache
def described(options: type) -> type:
    """Return a dataclass whose `help` metadata the parser can read."""
    if not any("help" in item.metadata for item in fields(options)):
        return options
    hints = get_type_hints(options, include_extras=True)
    options_fields = [
        (
            item.name,
            Annotated[hints[item.name], Parameter(help=item.metadata.get("help", ""))],
            field(default=item.default, metadata=item.metadata),
        )
        for item in fields(options)
    ]
    return options_class(options.__name__, options_fields, options)


def as_flags(options: type, group: Group | None = None) -> Any:
    """Annotate a parameter that has one flag per field of its class."""
    return Annotated[described(options), Parameter(name="*") if group is None else Parameter(name="*", group=group)]


RUN, DATA, MODEL, TRAINING = (
    Group(name, sort_key=position) for position, name in enumerate(("Run", "Data", "Model", "Training"), start=1)
)


if TYPE_CHECKING:
    TaskName = str
else:
    TaskName = Literal[tuple(TASKS)]


@dataclass(frozen=True)
class RunFlags:
    out: Path | None = None
    """Run directory; by default runs/DATA-MODEL, named for the data and the model."""
    task: TaskName | None = None
    """Task to learn; by default recognised from DATA (text, tables, images, sounds and music)."""
    budget: str | None = None
    """Wall-clock training time, such as 90s, 3m or 1h30m. The default depends on the task: 3m for a text."""
    steps: int | None = None
    """Number of weight updates; replaces the budget."""
    epochs: float | None = None
    """Number of passes over the data; replaces the budget."""
    plain: Switch = False
    """Train exactly the architecture that --model names: one network, without the counts, averaged models and other
    parts of the task's default recipe."""
    resume: Switch = False
    """Continue the run in --out with its own options; --budget, --steps or --epochs may extend it."""
    either: Annotated[bool, Parameter(name="--continue", negative=())] = False
    """Start the run in --out, or continue it if it is there: the same command for launchers that restart jobs."""
    overwrite: Switch = False
    """Replace the run in --out."""
    init: Annotated[Path | None, Parameter(name="--from")] = None
    """Run that provides the initial weights: the same model, vocabulary or schema, on new data."""
    json: Switch = False
    """Print only the closing summary, as one JSON object, on standard output."""


Device = Annotated[str, Parameter(help="Where to compute: auto, cpu, cuda or mps.")]
_RUN = Annotated[Path, Parameter(help="The run directory.")]
_UNPARSED = Annotated[Path | None, Parameter(parse=False)]


@dataclass(frozen=True)
class VerbTemplate:
    """Verb that any task with a method has."""

    body: Callable[..., int | None]
    method: str  # that a task needs for the verb; empty for a verb of all tasks

    def __call__(self, task: type[Task[Any]]) -> Verb | None:
        """Return the verb for a task; None if the task lacks the method."""
        if self.method and not hasattr(task, self.method):
            return None
        optional = "run" in (self.body.__kwdefaults__ or {})
        types: dict[str, Any] = {}
        if "run" in self.body.__annotations__:
            types["run"] = Path | None if optional else _RUN
        if self.method == "inspect" and not task.writes_page:
            types["out"] = _UNPARSED
        if self.method == "predict" and not task.plots:
            types["plot"] = _UNPARSED
        if self.method not in OPTIONS:
            return with_types(self.body, types)
        if continues := self.method == "predict" and task.continues:
            types["file"] = Input | None
        options = getattr(task, OPTIONS[self.method])
        types["options"] = as_flags(options) if fields(options) else Annotated[Any, Parameter(parse=False)]
        verb = with_types(self.body, types, options=described(options)())
        if continues:
            verb.__defaults__ = (None,)
        verb.__doc__ = joined_help(options.__doc__ or "", self.body.__doc__ or "")
        return verb


def with_types(body: Verb, types: dict[str, Any], **defaults: Any) -> Verb:
    """Copy a function, with other argument types for the parser and other defaults."""
    assert isinstance(body, FunctionType)
    function = FunctionType(body.__code__, body.__globals__, body.__name__, body.__defaults__, body.__closure__)
    function.__annotations__ = body.__annotations__ | types
    function.__kwdefaults__ = (body.__kwdefaults__ or {}) | defaults
    function.__doc__ = body.__doc__
    return function


_INPUTS = frozenset(("data", "file", "first", "last"))


def open_run(task: type[Task[Any]], arguments: dict[str, Any], stack: ExitStack) -> None:
    """Open the run named by the argument `run`, and prepare its inputs, in place; `stack` removes temporary files."""
    run = arguments.get("run")
    if isinstance(run, RunFlags) or "explicit_flags" in arguments:  # of training, which may go on without its data
        return
    inputs = None
    if isinstance(run, Path):
        arguments["run"] = task.open(run)
        _spare_sources(arguments["run"], arguments.get("out"))
        inputs = stack.enter_context(inputs_of(arguments["run"], answers="file" not in arguments))
    for name in _INPUTS & arguments.keys():
        words = arguments[name] or ()
        words = [words] if isinstance(words, str | Path) else words
        for path in words:
            for one in paths_of(str(path)):
                check_path(one)
        if words and task.several and name == "file":
            arguments[name] = [one for path in words for one in paths_of(str(path))]
        elif words and isinstance(arguments[name], list):
            source = words[0] if len(words) == 1 else join(words)
            arguments[name] = source if inputs is None else inputs.source(source, name)


def _spare_sources(run: Task[Any], out: Path | None) -> None:
    """Refuse to overwrite a file that the run was trained on."""
    if out is None or not out.is_file():
        return
    for source in filter(None, run.config.sources.values()):
        if Path(source).is_file() and out.samefile(source):
            raise ValueError(f"--out {out}: the run was trained on this file: give another name")


def verb_for(method: str = "") -> Callable[[Callable[..., int | None]], VerbTemplate]:
    """Decorate a function as a `VerbTemplate`."""
    return lambda body: VerbTemplate(body, method)
