"""Arguments common to the verbs of all tasks, flags from dataclasses, and verbs by method."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule_app.inputs import inputs_of
from chainrule_app.printing import is_url, url_of
from chainrule_app.readers.origin import STDIN
from chainrule_app.readers.outgoing import outgoing
from chainrule_app.readers.remote import local_file
from chainrule_app.readers.sources import check_path, paths_of
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


if TYPE_CHECKING:
    RunPath = Any
else:
    RunPath = Annotated[Path, Parameter(help="The run directory.")]
"""The directory of a run; `open_run` replaces it by the run."""
Device = Annotated[str, Parameter(help="Where to compute: auto, cpu, cuda or mps.")]


@dataclass(frozen=True)
class Verb:
    """A verb for one task: a function, whose signature names its arguments, and its help."""

    function: Callable[..., int | None]
    help: str


@dataclass(frozen=True)
class VerbTemplate:
    """A verb of every task that has a method."""

    make: Callable[[type[Task[Any]]], Verb]
    line: str  # in the list of all verbs
    method: str = ""  # that a task needs for the verb; empty for a verb of all tasks

    def __call__(self, task: type[Task[Any]]) -> Verb | None:
        """Return the verb for a task; None if the task lacks the method."""
        return None if self.method and not hasattr(task, self.method) else self.make(task)


def verb_for(method: str) -> Callable[[Callable[[type[Task[Any]]], Verb]], VerbTemplate]:
    """Decorate a function that makes the verb of a task as a `VerbTemplate`."""
    return lambda make: VerbTemplate(make, _first_line(make), method)


def verb(function: Callable[..., int | None], method: str = "") -> VerbTemplate:
    """Return the template of a verb that is the same for every task."""
    # The parser finds the help in the docstring.
    return VerbTemplate(lambda _: Verb(function, ""), _first_line(function), method)


def _first_line(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").partition("\n")[0]


def about(options: type, argument: str, text: str, **settings: Any) -> Parameter:
    """Return the help of an argument of a verb: of its task, which may say more, or else a text."""
    return Parameter(help=getattr(options, "ARGUMENTS", {}).get(argument, text), **settings)


_INPUTS = frozenset(("data", "file", "first", "last"))
_WRITTEN = frozenset(("out", "plot", "probabilities"))
_RUNS = frozenset(("run", "into", "folder"))


def open_run(task: type[Task[Any]], arguments: dict[str, Any], stack: ExitStack) -> None:
    """Open the run named by the argument `run`, and prepare its inputs, in place; `stack` removes temporary files."""
    local_arguments(arguments, stack)
    inputs = None
    if isinstance(run := arguments.get("run"), Path):
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


def local_arguments(arguments: dict[str, Any], stack: ExitStack) -> None:
    """Replace URLs of files, in arguments and their options, by local paths, in place.

    Files to read are copied to this machine; files to write are sent when `stack` closes without an error. Runs, and
    data of several files, are opened where they are needed.
    """
    write = None
    for name, value in arguments.items():
        if is_dataclass(value) and not isinstance(value, type):
            urls = {item.name: getattr(value, item.name) for item in fields(value)}
            read = {option: local_file(url) for option, url in urls.items() if isinstance(url, Path) and is_url(url)}
            arguments[name] = replace(value, **read) if read else value
        elif name in _RUNS or not isinstance(value, str | Path) or not is_url(value):
            continue
        elif name in _WRITTEN:
            write = write or stack.enter_context(outgoing())
            arguments[name] = write(value, name)
        elif isinstance(value, Path) or name in _INPUTS:
            arguments[name] = type(value)(local_file(value))


def _spare_sources(run: Task[Any], out: Path | None) -> None:
    """Refuse to overwrite a file that the run was trained on."""
    if out is None:
        return
    for source in filter(None, run.config.sources.values()):
        same = out.is_file() and Path(source).is_file() and out.samefile(source)
        if same or (is_url(source) and source == url_of(out)):
            raise ValueError(f"--out {out}: the run was trained on this file: give another name")
