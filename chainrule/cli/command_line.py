"""How things are written on the command line."""

import shlex
from collections.abc import Callable
from pathlib import Path

Verb = Callable[..., int | None]
"""What runs when a verb is typed; its signature says which arguments it takes."""


def flag(name: str) -> str:
    """The flag of a field.

    >>> flag("hidden_size")
    '--hidden-size'
    """
    return "--" + name.replace("_", "-")


def quoted(path: Path) -> str:
    """A path as a shell reads it.

    >>> quoted(Path("my run"))
    "'my run'"
    """
    return shlex.quote(str(path))


def resume_command(run: Path) -> str:
    """What to type to go on with a run."""
    return f"chainrule train --resume --out {quoted(run)}"
