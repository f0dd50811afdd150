"""The command `chainrule`: find the verb, run it, and report an error in one line and an exit status.

Nothing heavy is imported here or at the top of a verb's file: `chainrule --help` must answer at once.
"""

import os
import re
import sys
from collections.abc import MutableMapping, Sequence
from contextlib import closing, redirect_stdout
from typing import Any, TextIO, cast

from cyclopts import App, CycloptsError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

from chainrule.cli.help import OPTION_SYNONYMS, VERB_SYNONYMS, FoldedHelp, description, suggestion, usage
from chainrule.cli.stages import VERBS, all_verbs, owners, verb_asked_for, verbs_of
from chainrule.cli.train import note_start
from chainrule.printing import printable
from chainrule.tasks.abilities import Predicts
from chainrule.tasks.display import Harmless, Verb, flag, shortened
from chainrule.tasks.task import Task

LINE_LIMIT = 299  # characters of an error: a message may quote data of any size
USER_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141  # the last two as a shell reports SIGINT and SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status.

    0: done. 1: a check failed. 2: invalid arguments or input, described in one line on standard error.
    130: stopped by Ctrl-C. The environment variable CHAINRULE_DEBUG=1 shows where an error comes from.
    """
    note_start()
    if "torch" not in sys.modules:  # it reads them once
        bound_spinning(os.environ)
    known: set[str] = set()
    try:
        status = _run(sys.argv[1:] if arguments is None else list(arguments), known)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, `head` for one, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails again
        return BROKEN_PIPE
    except KeyboardInterrupt as error:
        return _say(str(error) or "interrupted", INTERRUPTED)
    except Exception as error:
        if os.environ.get("CHAINRULE_DEBUG") or not _is_expected(error):
            raise
        return _say(_one_line(error, known), USER_ERROR)


def _run(arguments: list[str], known: set[str]) -> int:
    """Run a command line; `known` becomes the flags of its verb."""
    given: set[str] = set()

    def remember(app: App, commands: tuple[str, ...], arguments: Any) -> None:
        given.update(argument.name for argument in arguments if argument.tokens)
        known.update(argument.name for argument in arguments)

    app = App(
        name="chainrule",
        help="Exact models of sequences, one element at a time: text, tables, images, sound, and labels of them.",
        help_format="plaintext",  # Markdown would take <unk> for a tag and drop it
        help_formatter=FoldedHelp(),
        version=_version,
        version_flags=["--version"],
        config=(remember,),
    )
    verbs = _verbs(arguments)
    for place, (name, verb) in enumerate(verbs.items()):
        shown = usage(name, verb) if arguments[:1] == [name] else None
        app.command(verb, name=name, sort_key=place, help=description(verb), usage=shown)
    try:
        command, bound, unbound = app.parse_args(arguments, exit_on_error=False, print_error=False)
        if "given" in unbound:
            bound.arguments["given"] = frozenset(given)
        if command not in verbs.values():  # help and version, which style their own text
            return command(*bound.args, **bound.kwargs) or 0
        with closing(Harmless(sys.stdout)) as out, redirect_stdout(cast(TextIO, out)):
            return command(*bound.args, **bound.kwargs) or 0
    except UnknownOptionError as error:
        flag_typed = error.token.keyword or error.token.value
        models = owners(flag_typed, arguments[1:]) if arguments[0] == "train" else []
        if not models:
            flag_typed = (flag_typed or "").partition("=")[0]
            names = [name for argument in error.argument_collection if argument.parse for name in argument.names]
            near = suggestion(flag_typed, [*names, "--help", "--version"], OPTION_SYNONYMS)
            raise ValueError(f"Unknown option: {flag_typed}.{near}") from None
        raise ValueError(
            f"{flag_typed}: an option of {', '.join(models)}, not of this model: "
            f"leave it out, or take --model {models[0]}"
        ) from None
    except UnknownCommandError:
        near = suggestion(arguments[0], verbs, VERB_SYNONYMS)
        raise ValueError(
            f'Unknown command "{arguments[0]}".{near} `chainrule --help` lists all: {", ".join(verbs)}'
        ) from None
    except ValueError as error:  # the library names the argument, the user wrote the flag
        if isinstance(error, CycloptsError):
            raise
        raise ValueError(_with_flags(shortened(str(error), 4 * LINE_LIMIT), known)) from error


def _with_flags(message: str, known: set[str]) -> str:
    """`message` with the flags of this verb in place of the names of their arguments."""

    def flag_of(name: re.Match[str]) -> str:
        return flag(name[0]) if flag(name[0]) in known else name[0]

    message = re.sub(r"^[a-z_]+(?=:)", flag_of, message)
    return re.sub(r"(?<![\w./'\"-])[a-z]+(?:_[a-z]+)+(?![\w./'\"])", flag_of, message)


def _verbs(arguments: list[str]) -> dict[str, Verb]:
    """All verbs. The verb of this command line gets the options of the task that its other arguments select.

    Raises:
        ValueError: that task has no such verb.
    """
    name = arguments[0] if arguments else ""
    shown = all_verbs()
    verbs = {other: _placeholder(other, task) for other, task in shown.items()}
    if name in shown:
        task, verb = verb_asked_for(name, arguments[1:])
        if verb is None:
            raise ValueError(
                f"{name}: a run of the task {task.name} has no such verb; it has {', '.join(verbs_of(task))}"
            )
        verbs[name] = verb
    return verbs


def _placeholder(name: str, task: type[Task[Any]]) -> Verb:
    """A verb in the list of all: only its name and a line about it are read."""

    def verb() -> None: ...

    found = VERBS.get(name) or (issubclass(task, Predicts) and task.Prediction)
    verb.__doc__ = (getattr(found, "body", found).__doc__ or "").partition("\n")[0]
    return verb


def _is_expected(error: Exception) -> bool:
    """Whether a user can cause this error; it is then reported in one line, without a traceback."""
    if isinstance(error, CycloptsError | ValueError | OSError | ImportError | MemoryError):
        return True
    own = type(error).__module__.split(".")[0] == "chainrule"
    return own or "can't allocate memory" in str(error) or type(error).__name__ == "OutOfMemoryError"


_COSTLY = "batch-size hidden-size channels rows steps beam paths particles number"


def _one_line(error: Exception, known: set[str]) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError) or "llocate" in str(error):
        costly = [f"--{name}" for name in _COSTLY.split() if f"--{name}" in known]
        return f"out of memory: choose a smaller {' or '.join(costly) or 'model'}"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"unexpected argument {error.unused_tokens[0]!r}: `chainrule VERB --help` shows what a verb takes"
    return " ".join(str(error).split()) or type(error).__name__


def _say(line: str, status: int) -> int:
    print(shortened(f"chainrule: {printable(line)}", LINE_LIMIT), file=sys.stderr)
    return status


BOUNDED = {
    "GOMP_SPINCOUNT": "3000",  # GNU, in torch's wheels for Linux: rounds of waiting, 300,000 if not set
    "KMP_BLOCKTIME": "1",  # Intel and LLVM, in other builds of torch: milliseconds, 200 if not set
}
ASKED = ("OMP_WAIT_POLICY", *BOUNDED)


def bound_spinning(environment: MutableMapping[str, str]) -> None:
    """Let a waiting thread sleep soon, unless the user has said how it waits.

    A training step makes its threads wait for one another some thousand times. By default each waits for milliseconds
    in a loop, as long as the scheduler lets it. With another process on the machine, two threads may have to share a
    core, and each wait then lasts until the waiting one is interrupted: a step takes seconds. A short loop keeps the
    speed of an idle machine, where the others arrive within microseconds, and leaves the core to them on a busy one.

    Args:
        environment: the variables of this process, changed in place.
    """
    if not any(name in environment for name in ASKED):
        environment.update(BOUNDED)


def _version() -> str:
    from chainrule import __version__

    return __version__
