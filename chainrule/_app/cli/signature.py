"""Signatures of verbs: arguments common to all tasks, flags made from dataclasses, and verbs offered by ability."""

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

from chainrule._app.tasks import TASKS
from chainrule._app.tasks._readable import inputs_of
from chainrule._app.tasks.config import MOST_SEED, options_class
from chainrule._app.tasks.constructor import argument_help
from chainrule._app.tasks.display import Switch, Verb
from chainrule._app.tasks.task import Task
from chainrule.data._gather import paths_of
from chainrule.data._kinds import check_path
from chainrule.data._text import STDIN


def _refuse_flag(_: Any, words: list[str] | None) -> None:
    for word in words or ():
        if word.startswith("-") and word != STDIN:
            raise ValueError(f"There is no flag {word}; a file of that name is written ./{word}")


if TYPE_CHECKING:
    Input = str
else:
    Input = Annotated[list[str], Parameter(allow_leading_hyphen=True, negative=(), validator=_refuse_flag)]
"""Paths, patterns or - for standard input, of which `open_run` makes one path before the verb is called; any other word
that begins with a hyphen is refused as an unknown flag."""


def _refuse_seed(_: Any, value: int | None) -> None:
    if value is not None and not 0 <= value <= MOST_SEED:
        raise ValueError(f"expected a whole number from 0 to {MOST_SEED}, got {value}")


Seed = Annotated[int, Parameter(validator=_refuse_seed)]
"""A seed that torch takes."""


def joined_help(own: str, common: str) -> str:
    """A docstring with the description of `own` and the arguments of both; the text of `own` takes precedence.

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
    """A dataclass whose fields have `help` in their metadata, as the parser reads it; any other as it is.

    It is the same each time: where pydantic has been imported, the parser checks that defaults are instances of it.
    """
    if not any("help" in item.metadata for item in fields(options)):
        return options
    hints = get_type_hints(options, include_extras=True)
    made = [
        (
            item.name,
            Annotated[hints[item.name], Parameter(help=item.metadata.get("help", ""))],
            field(default=item.default, metadata=item.metadata),
        )
        for item in fields(options)
    ]
    return options_class(options.__name__, made, options)


def as_flags(options: type, group: Group | None = None) -> Any:
    """The annotation of a parameter that has a flag for each field of its class."""
    return Annotated[described(options), Parameter(name="*") if group is None else Parameter(name="*", group=group)]


RUN, DATA, MODEL, TRAINING = (
    Group(name, sort_key=place) for place, name in enumerate(("Run", "Data", "Model", "Training"), start=1)
)


if TYPE_CHECKING:
    TaskName = str
else:
    TaskName = Literal[tuple(TASKS)]


@dataclass(frozen=True)
class RunFlags:
    """The run directory, and the length of training."""

    out: Path | None = None
    """The run directory; a name below runs/, made of those of the data and the model, if not given."""
    task: TaskName | None = None
    """What to learn; recognised from DATA if not given, for text, tables, images and sounds."""
    budget: str | None = None
    """Wall-clock time to train for, such as 90s, 3m or 1h30m. The default depends on the task: 3m for a text."""
    steps: int | None = None
    """Weight updates to train for, in place of a budget."""
    epochs: float | None = None
    """Passes over the data to train for, in place of a budget."""
    plain: Switch = False
    """Train the architecture that --model names and nothing beside it: one network, without the counts, averaged models
    and other parts that the default recipe of the task adds."""
    resume: Switch = False
    """Go on with the run in --out, with its own options; --budget, --steps or --epochs may extend it."""
    overwrite: Switch = False
    """Replace the run in --out."""
    init: Annotated[Path | None, Parameter(name="--from")] = None
    """A run whose weights to start from: the same model, vocabulary or schema, on new data."""
    json: Switch = False
    """Print the closing summary as one JSON object, and nothing else, on standard output."""


Device = Annotated[str, Parameter(help="Where to compute: auto, cpu, cuda or mps.")]
_RUN = Annotated[Path, Parameter(help="The run directory.")]


@dataclass(frozen=True)
class Offered:
    """A verb, whatever the task.

    Args:
        body: the function that does it. Its argument `run` is the opened run, where the verb takes a path; its argument
            `options`, if it has one, is an instance of the task's class, where the verb has a flag for each field.
        ability: that a task needs for the verb.
        options: the attribute of the task that is the class of its options; empty if there are none.
        out: the attribute of the task that says whether --out is a flag; empty where it always is.
    """

    body: Callable[..., int | None]
    ability: type
    options: str
    out: str

    def __call__(self, task: type[Task[Any]]) -> Verb | None:
        """The verb for a task; None where the task lacks the ability.

        Its `run` is a path, which `open_run` opens.
        """
        if not issubclass(task, self.ability):
            return None
        optional = "run" in (self.body.__kwdefaults__ or {})
        types: dict[str, Any] = {"run": Path | None if optional else _RUN}
        if self.out and not getattr(task, self.out):
            types["out"] = Annotated[Path | None, Parameter(parse=False)]
        if not self.options:
            return with_types(self.body, types)
        options = getattr(task, self.options)
        types["options"] = as_flags(options) if fields(options) else Annotated[Any, Parameter(parse=False)]
        made = with_types(self.body, types, options=described(options)())
        made.__doc__ = joined_help(options.__doc__ or "", self.body.__doc__ or "")
        return made


def with_types(body: Verb, types: dict[str, Any], **defaults: Any) -> Verb:
    """A copy of a function with other types of some arguments, as the parser reads them, and other defaults."""
    assert isinstance(body, FunctionType)
    made = FunctionType(body.__code__, body.__globals__, body.__name__, body.__defaults__, body.__closure__)
    made.__annotations__ = body.__annotations__ | types
    made.__kwdefaults__ = (body.__kwdefaults__ or {}) | defaults
    made.__doc__ = body.__doc__
    return made


_INPUTS = frozenset(("data", "file", "files", "first", "last"))


def open_run(task: type[Task[Any]], arguments: dict[str, Any], stack: ExitStack) -> None:
    """Open the run that the argument `run` of a verb names, in place, and make its inputs files that the run reads.

    Args:
        task: its class.
        arguments: of the verb.
        stack: removes the files that were made when it is closed.

    Raises:
        ValueError, OSError: there is no such run or input, or the output would replace a file that the run was trained
            on.
    """
    run = arguments.get("run")
    if isinstance(run, RunFlags) or "given" in arguments:  # of training, which may go on without its data
        return
    inputs = None
    if isinstance(run, Path):
        arguments["run"] = task.open(run)
        _spare_sources(arguments["run"], arguments.get("out"))
        inputs = stack.enter_context(inputs_of(arguments["run"]))
    for name in _INPUTS & arguments.keys():
        words = arguments[name] or ()
        words = [words] if isinstance(words, str | Path) else words
        for path in words:
            for one in paths_of(str(path)):
                check_path(one)
        if words and isinstance(arguments[name], list):
            source = words[0] if len(words) == 1 else join(words)
            arguments[name] = source if inputs is None else inputs.path(source, name)


def _spare_sources(run: Task[Any], out: Path | None) -> None:
    """Refuse to write over a file that the run was trained on."""
    if out is None or not out.is_file():
        return
    for source in filter(None, run.config.sources.values()):
        if Path(source).is_file() and out.samefile(source):
            raise ValueError(f"--out {out}: the run was trained on this file: give another name")


def offered(ability: type, options: str = "", out: str = "") -> Callable[[Callable[..., int | None]], Offered]:
    """A decorator that makes an `Offered` of a function."""
    return lambda body: Offered(body, ability, options, out)
