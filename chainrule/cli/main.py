"""The command `chainrule`: finds the verb, runs it, and turns what goes wrong into one line and an exit status.

Nothing heavy is imported here or at the top of a verb's file: `chainrule --help` must answer at once.
"""

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from cyclopts import App, CycloptsError, UnusedCliTokensError

from chainrule.cli.check import check
from chainrule.cli.command_line import flag
from chainrule.cli.info import info
from chainrule.cli.inspect import inspect
from chainrule.cli.sample import sample
from chainrule.cli.score import score
from chainrule.cli.train import train

VERBS: dict[str, Callable[..., int | None]] = {
    "train": train,
    "sample": sample,
    "score": score,
    "inspect": inspect,
    "check": check,
    "info": info,
}
USER_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141  # the last two as a shell reports SIGINT and SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status.

    0: done. 1: a check failed. 2: something was asked for that cannot be; one line on standard error says what.
    130: stopped by Ctrl-C. The environment variable CHAINRULE_DEBUG=1 shows where an error comes from.
    """
    try:
        status = _run(sys.argv[1:] if arguments is None else list(arguments))
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
        return _say(_one_line(error), USER_ERROR)


def _run(arguments: list[str]) -> int:
    given: set[str] = set()

    def remember(app: App, commands: tuple[str, ...], arguments: Any) -> None:
        given.update(argument.name for argument in arguments if argument.tokens)

    app = App(
        name="chainrule",
        help="Exact models of text, one symbol at a time.",
        version=_version,
        version_flags=["--version"],
        config=(remember,),
    )
    for place, (name, verb) in enumerate(VERBS.items()):
        app.command(verb, name=name, sort_key=place)
    try:
        command, bound, unbound = app.parse_args(arguments, exit_on_error=False, print_error=False)
    except ValueError as error:  # the checks of the option groups name the field, the user wrote the flag
        raise ValueError(re.sub(r"^[a-z_]+(?=:)", lambda name: flag(name[0]), str(error))) from error
    if "given" in unbound:
        bound.arguments["given"] = frozenset(given)
    return command(*bound.args, **bound.kwargs) or 0


def _is_expected(error: Exception) -> bool:
    """Whether a user can cause it, so that a line is worth more than a traceback."""
    if isinstance(error, CycloptsError | ValueError | OSError | ImportError | MemoryError):
        return True
    own = type(error).__module__.split(".")[0] == "chainrule"
    return own or "can't allocate memory" in str(error) or type(error).__name__ == "OutOfMemoryError"


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError) or "llocate" in str(error):
        return "out of memory: choose a smaller --hidden-size, --batch-size, --chunk-length, --rows or --steps"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"unexpected argument {error.unused_tokens[0]!r}: `chainrule VERB --help` shows what a verb takes"
    return " ".join(str(error).split()) or type(error).__name__


def _say(line: str, status: int) -> int:
    print(f"chainrule: {line}", file=sys.stderr)
    return status


def _version() -> str:
    from chainrule import __version__

    return __version__
