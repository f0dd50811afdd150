"""The command `chainrule`: find the verb, run it, and report an error in one line and an exit status.

Nothing heavy is imported here or at the top of a verb's file: `chainrule --help` must answer at once.
"""

import os
import sys
from collections.abc import MutableMapping, Sequence
from contextlib import ExitStack, closing, redirect_stdout
from time import monotonic
from typing import Any, TextIO, cast

from cyclopts import App, CycloptsError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

from chainrule._app.cli.help import OPTION_SYNONYMS, VERB_SYNONYMS, FoldedHelp, description, suggestion, usage
from chainrule._app.cli.selection import described_verbs, is_verb, owners, select, verbs_of
from chainrule._app.cli.signature import open_run
from chainrule._app.tasks.display import Harmless, Verb, flag, shortened
from chainrule._app.tasks.task import Task
from chainrule._printing import printable

LINE_LIMIT = 299  # characters of an error: a message may quote data of any size
USER_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141  # the last two as a shell reports SIGINT and SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status.

    0: done. 1: a check failed. 2: invalid arguments or input, described in one line on standard error.
    130: stopped by Ctrl-C. The environment variable CHAINRULE_DEBUG=1 shows where an error comes from.
    """
    began = monotonic()
    if "torch" not in sys.modules:  # it reads them once
        bound_spinning(os.environ)
        os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")  # torch names each operator that mps lacks, once
    known: set[str] = set()
    try:
        status = _run(sys.argv[1:] if arguments is None else list(arguments), known, began)
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


def _run(arguments: list[str], known: set[str], began: float) -> int:
    """Run a command line that began at a time of `monotonic`; `known` becomes the flags of its verb."""
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
    name = arguments[0] if arguments else ""
    if name == "train":  # the parser takes - for an option where several files may follow
        arguments = [_STDIN if word == "-" else word for word in arguments]
    if name == "--install-completion":
        return _install_completion(app)
    task: type[Task[Any]] | None = None
    verb: Verb | None = None
    verbs: dict[str, str] = {}
    if is_verb(name):
        task, verb = select(name, arguments[1:])
        if verb is None:
            own = ", ".join(verbs_of(task))
            raise ValueError(f"{name}: a run of the task {task.name} has no such verb; it has {own}")
        app.command(verb, name=name, help=description(verb), usage=usage(name, verb))
    else:
        verbs = dict(described_verbs())
        for place, (other, line) in enumerate(verbs.items()):
            app.command(_listed, name=other, help=line, sort_key=place)
    try:
        command, bound, unbound = app.parse_args(arguments, exit_on_error=False, print_error=False)
        if command is not verb:  # help and version, which style their own text
            return command(*bound.args, **bound.kwargs) or 0
        context = {"given": frozenset(given), "began": began}
        bound.arguments.update({name: context[name] for name in unbound if name in context})
        with closing(Harmless(sys.stdout)) as out, redirect_stdout(cast(TextIO, out)), ExitStack() as stack:
            assert task is not None
            open_run(task, bound.arguments, stack)
            return command(*bound.args, **bound.kwargs) or 0
    except UnknownOptionError as error:
        flag_typed = error.token.keyword or error.token.value
        models = owners(task, flag_typed) if task is not None and name == "train" else []
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
    """`message` with flags of this verb for the names of their arguments: before its first colon, or with a `_`.

    >>> _with_flags("size: expected a multiple of num_heads, got 3", {"--size", "--num-heads"})
    '--size: expected a multiple of --num-heads, got 3'
    """

    def with_flag(word: str) -> str:
        name = word.strip("(),;:")
        return word.replace(name, flag(name)) if flag(name) in known else word

    words = message.split(" ")
    return " ".join(
        with_flag(word) if "_" in word or (place == 0 and word.endswith(":")) else word
        for place, word in enumerate(words)
    )


def _install_completion(app: App) -> int:
    """Register all verbs, with the options of the first task that has each, and install their completion."""
    for name, _ in described_verbs():
        app.command(select(name, [])[1], name=name)
    print(f"completion for the shell is in {app.install_completion()}; open another shell to use it")
    return 0


_STDIN = "/dev/stdin"


def _listed() -> None:
    """A verb in the list of all."""


def _is_expected(error: Exception) -> bool:
    """Whether a user can cause this error; it is then reported in one line, without a traceback."""
    if isinstance(error, CycloptsError | ValueError | OSError | ImportError | MemoryError):
        return True
    return type(error).__module__.split(".")[0] == "chainrule" or _is_out_of_memory(error)


def _is_out_of_memory(error: Exception) -> bool:
    # On the CPU, torch raises a RuntimeError like any other: only its message says that memory is what is missing.
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


_COSTLY = "batch-size hidden-size channels rows steps beam paths particles number"


def _one_line(error: Exception, known: set[str]) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if _is_out_of_memory(error):
        costly = [f"--{name}" for name in _COSTLY.split() if f"--{name}" in known]
        return f"out of memory: choose a smaller {' or '.join(costly) or 'model'}"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        extra = error.unused_tokens[0]
        return f"unexpected argument {extra!r}: `chainrule VERB --help` shows what a verb takes"
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
