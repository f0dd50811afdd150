"""The command `chainrule`: find the verb, run it, and report an error in one line and an exit status.

Nothing heavy is imported here or at the top of a verb's file: `chainrule --help` must answer at once.
"""

import codecs
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, closing, redirect_stdout
from dataclasses import fields
from functools import partial
from inspect import Parameter, signature
from itertools import pairwise
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import Any, TextIO, cast, get_args

from cyclopts import App, UnknownCommandError, UnknownOptionError

from chainrule.option_error import PeerError, WriteOption
from chainrule.printing import printable
from chainrule_app.cli.errors import is_expected, one_line, say, unknown_option, unknown_verb
from chainrule_app.cli.exchange import compress, decompress, demo, export, import_, serve
from chainrule_app.cli.help import FoldedHelp, install_completion
from chainrule_app.cli.info import check, compare, info, report, runs
from chainrule_app.cli.signature import Verb, VerbTemplate, open_run, verb, verb_for
from chainrule_app.cli.train import run_before, scan, task_to_train, train_verb
from chainrule_app.cli.verbs import embed, evaluate, fill, inspect, interpolate, predict, reconstruct, sample, score
from chainrule_app.printing import WRITE_OPTION, counted, flag, writable
from chainrule_app.tasks import TASK_VERBS, TASKS, task_class
from chainrule_app.tasks.config import check_value, range_of
from chainrule_app.tasks.run_directory import task_of
from chainrule_app.tasks.task import Task

EMPTY = "expected the name of a file or folder, got an empty one: is a variable of the shell not set?"
USER_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141  # the last two as a shell reports SIGINT and SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    began = monotonic()
    if "torch" not in sys.modules:  # it reads them once
        bound_spinning(os.environ)
        os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")  # torch names each operator that mps lacks, once
    verb_flags: dict[str, str] = {}
    spelling = WRITE_OPTION.set(_as_flag(verb_flags))
    streams = {name: Substitution.of(getattr(sys, name), f"chainrule.{name}") for name in ("stdout", "stderr")}
    try:
        status = _run(sys.argv[1:] if arguments is None else list(arguments), verb_flags, began, streams.values())
        sys.stdout.flush()
        if lost := streams["stdout"].lost:
            print(
                f"standard output is {sys.stdout.encoding}, without {counted(lost, 'character')} of this text: "
                "printed as ?; PYTHONIOENCODING=utf-8 prints UTF-8, which a file written by --out always is",
                file=sys.stderr,
            )
        return status
    except BrokenPipeError:  # the reader, `head` for one, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails again
        return BROKEN_PIPE
    except KeyboardInterrupt as error:
        return say(str(error) or "interrupted", INTERRUPTED)
    except PeerError:
        return USER_ERROR
    except Exception as error:
        if os.environ.get("CHAINRULE_DEBUG") or not is_expected(error):
            raise
        return say(one_line(error, verb_flags, _as_flag(verb_flags)), USER_ERROR)
    finally:
        WRITE_OPTION.reset(spelling)


def _run(arguments: list[str], verb_flags: dict[str, str], began: float, streams: "Iterable[Substitution]") -> int:
    """Run a command line that started at `began`; adds the flag of each option of its verb to `verb_flags`."""
    given: set[str] = set()
    files: set[str] = set()  # flags of sources, which may be patterns

    def refuse_empty_paths(app: App, commands: tuple[str, ...], arguments: Any) -> None:
        for argument in arguments:
            if any(not token.value for token in argument.tokens) and (
                argument.name in files or Path in (argument.hint, *get_args(argument.hint))
            ):
                raise ValueError(f"{argument.name}: {EMPTY}")

    def remember(app: App, commands: tuple[str, ...], arguments: Any) -> None:
        given.update(argument.field_info.name for argument in arguments if argument.tokens)
        verb_flags.update((argument.field_info.name, argument.name) for argument in arguments)

    app = App(
        name="chainrule",
        help="Exact models of sequences, one element at a time: text, tables, images, sound, music, and their labels.",
        help_format="plaintext",  # Markdown would take <unk> for a tag and drop it
        help_formatter=FoldedHelp(),
        version=_version,
        version_flags=["--version"],
        config=(refuse_empty_paths, remember),
    )
    if any(not word and not before.startswith("-") for before, word in pairwise(["", *arguments])):
        raise ValueError(EMPTY)
    name = arguments[0] if arguments else ""
    if name == "train":  # the parser takes - for an option where several files may follow
        arguments = [_STDIN if word == "-" else word for word in arguments]
    if name == "--install-completion":
        for other, _ in described_verbs():  # with the options of the first task that has each
            template = select(other, [])[1]
            assert template is not None
            app.command(template.function, name=other)
        return install_completion(app)
    task: type[Task[Any]] | None = None
    verb: Verb | None = None
    verbs: dict[str, str] = {}
    if is_verb(name):
        task, verb = select(name, arguments[1:])
        if verb is None:
            own = ", ".join(verbs_of(task))
            raise ValueError(f"{name}: not a verb of the task {task.name}, which has {own}")
        files.update(source.flag for source in task.SOURCES.values() if source.flag)
        app.command(verb.function, name=name, help=verb.help or None, usage=usage(name, verb.function))
    else:
        verbs = dict(described_verbs())
        for index, (other, line) in enumerate(verbs.items()):
            app.command(_listed, name=other, help=line, sort_key=index)
    try:
        command, bound, unbound = app.parse_args(arguments, exit_on_error=False, print_error=False)
        if verb is None or command is not verb.function:  # help and version, which style their own text
            return command(*bound.args, **bound.kwargs) or 0
        context = {"given": frozenset(given), "began": began}
        bound.arguments.update({name: context[name] for name in unbound if name in context})
        for stream in streams:
            stream.json = "json" in given
        with closing(SafeOutput(sys.stdout)) as out, redirect_stdout(cast(TextIO, out)), ExitStack() as stack:
            assert task is not None
            check_arguments(command, bound.arguments)
            if name != "train":  # which may go on without its data
                open_run(task, bound.arguments, stack)
            return command(*bound.args, **bound.kwargs) or 0
    except UnknownOptionError as error:
        raise unknown_option(error, partial(owners, task) if task is not None and name == "train" else None) from None
    except UnknownCommandError:
        raise unknown_verb(arguments[0], verbs) from None


def _as_flag(verb_flags: Mapping[str, str]) -> WriteOption:
    """Return a function that writes options as flags, by the flag of each option of a verb.

    >>> write = _as_flag({"values": "--with", "data": "DATA"})
    >>> write("values", "draw"), write("data", None), write("labels", False), write("overwrite", True)
    ('--with draw', 'DATA', '--no-labels', '--overwrite')
    """

    def write(name: str, value: Any) -> str:
        if isinstance(value, bool):
            return flag(name if value else f"no_{name}")
        own = verb_flags.get(name) or flag(name)
        return own if value is None else f"{own} {quote(value)}"

    return write


_STDIN = "/dev/stdin"


def _listed() -> None:
    """Stand for a verb in the list of all verbs."""


BOUNDED = {
    "GOMP_SPINCOUNT": "3000",  # GNU, in torch's wheels for Linux: rounds of waiting, 300,000 if not set
    "KMP_BLOCKTIME": "1",  # Intel and LLVM, in other builds of torch: milliseconds, 200 if not set
}
ASKED = ("OMP_WAIT_POLICY", *BOUNDED)


def bound_spinning(environment: MutableMapping[str, str]) -> None:
    """Let waiting threads sleep early, unless the user has configured how they wait."""
    if not any(name in environment for name in ASKED):
        environment.update(BOUNDED)


def _version() -> str:
    from chainrule import __version__

    return __version__


def usage(name: str, function: Callable[..., Any]) -> str:
    words = [f"Usage: chainrule {name} [OPTIONS]"]
    for argument in signature(function).parameters.values():
        if argument.kind is Parameter.VAR_POSITIONAL:
            words.append(f"{argument.name.upper()}...")
        elif argument.kind is Parameter.POSITIONAL_ONLY:
            label = argument.name.upper()
            required = any(
                getattr(extra, "required", False) for extra in getattr(argument.annotation, "__metadata__", ())
            )
            words.append(label if required or argument.default is Parameter.empty else f"[{label}]")
    return " ".join(words) + "\n"


VERBS: dict[str, VerbTemplate] = {
    "train": verb_for("")(train_verb),
    "sample": sample,
    "score": score,
    "fill": fill,
    "inspect": inspect,
    "check": verb(check),
    "info": verb(info),
    "report": verb(report),
    "runs": verb(runs),
    "compare": verb(compare),
    "serve": verb(serve),
    "demo": verb(demo),
    "embed": embed,
    "reconstruct": reconstruct,
    "interpolate": interpolate,
    "evaluate": evaluate,
    "compress": verb(compress, "codec"),
    "decompress": verb(decompress, "codec"),
    "export": verb(export),
    "import": verb(import_),
}
"""All verbs except predictions, which are named after their tasks."""


def is_verb(name: str) -> bool:
    return name in VERBS or name in TASK_VERBS


def verb_of(task: type[Task[Any]], name: str) -> Verb | None:
    if name == _predicting(task):
        return predict(task)
    return VERBS[name](task) if name in VERBS else None


def verbs_of(task: type[Task[Any]]) -> list[str]:
    return [name for name in (*VERBS, _predicting(task)) if verb_of(task, name) is not None]


def _predicting(task: type[Task[Any]]) -> str:
    """Return the name of a task's prediction verb; empty if it predicts nothing."""
    return task.verb or task.name if hasattr(task, "predict") else ""


def described_verbs() -> Iterator[tuple[str, str]]:
    """Yield every verb with its line in the list of all verbs."""
    for name, template in VERBS.items():
        yield name, template.line
    yield from TASK_VERBS.items()


def select(name: str, arguments: Sequence[str]) -> tuple[type[Task[Any]], Verb | None]:
    """Return the task that the arguments refer to, and its verb; None if the task lacks the verb."""
    line = scan(arguments)
    if name == "train":
        task = TASKS[task_to_train(line)]()
        model = line.flags.get("--model") or run_before(line)[1]
        return task, train_verb(task, model if model in task.MODELS else "")
    runs = [*line.words, *line.unsure]
    name_of_run = next((name_of_run for run in runs if (name_of_run := task_of(Path(run))) in TASKS), None)
    tasks = map(task_class, TASKS if name_of_run is None else [name_of_run])
    return next(
        ((task, found) for task in tasks if (found := verb_of(task, name))), (task_class(name_of_run or "text"), None)
    )


def owners(task: type[Task[Any]], flag: str) -> list[str]:
    """List the models of a task that have an option."""
    option = flag.replace("--no-", "--", 1)[2:].replace("-", "_")
    return [
        name
        for name, model in task.MODELS.items()
        if any(item.name == option for item in fields(cast(Any, model.options)))
    ]


def check_arguments(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Check arguments of a verb, whose annotations have ranges as those of options do."""
    for name, value in arguments.items():
        if range_of(hint := function.__annotations__.get(name)) is not None:
            check_value(name, hint, value)


class SafeOutput:
    """Standard output that sends data to a terminal as harmless text."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._shown = printable if stream.isatty() else writable
        self._held = ""  # a carriage return, until it is known whether a line feed follows

    def write(self, text: str) -> int:
        whole = self._held + text
        self._held = "\r" if whole.endswith("\r") else ""
        self._stream.write(self._shown(whole.removesuffix("\r") if self._held else whole))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """End the output; the stream itself stays open."""
        self._stream.write(self._shown(self._held))
        self._held = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_ALIKE = dict(zip("−–—⁻‘’“”·•×→←⊢▁▂▃▄▅▆▇█░▒▓␣\xa0", "----''\"\"**x><|12345678.:#_ ", strict=True))
_ALIKE |= dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹₂", "01234567892", strict=True))
_ALIKE |= {"…": "...", "⋯": "...", "≤": "<=", "≥": ">=", "±": "+-", "‖": "||", "∂": "d", "√": "sqrt", "∞": "inf"}
_ALIKE |= {"α": "alpha", "β": "beta", "ε": "epsilon", "χ": "chi"}
"""ASCII for signs of our own texts; a sparkline counts from 1 to 8."""


class Substitution:
    r"""Error handler of an encoder that writes ASCII for what the encoding lacks, and never stops.

    Signs of our own texts, such as the minus sign, become their ASCII form. Other characters are data: they become
    question marks, and `lost` counts them; in JSON they are escaped, and nothing is lost.

    >>> stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    >>> substitution = Substitution.of(stream, "example")
    >>> stream.write("−1…2 é"), stream.flush(), stream.buffer.getvalue(), substitution.lost
    (6, None, b'-1...2 ?', 1)
    """

    def __init__(self) -> None:
        self.lost = 0
        self.json = False  # whether what is written is JSON

    @classmethod
    def of(cls, stream: TextIO, name: str) -> "Substitution":
        """Register a new handler by name, and let the stream use it if it encodes."""
        handler = cls()
        codecs.register_error(name, handler)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=name)
        return handler

    def __call__(self, error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        return "".join(map(self._written, error.object[error.start : error.end])), error.end

    def _written(self, character: str) -> str:
        if self.json:
            return json.dumps(character)[1:-1]
        if character not in _ALIKE:
            self.lost += 1
        return _ALIKE.get(character, "?")
