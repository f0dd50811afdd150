"""How things are written on the command line."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

Switch = Annotated[bool, Parameter(negative=())]
"""A flag without a value and without a --no- form."""
Verb = Callable[..., int | None]
"""What runs when a verb is typed; its signature says which arguments it takes."""


def flag(name: str) -> str:
    """The flag of a field.

    >>> flag("hidden_size")
    '--hidden-size'
    """
    return "--" + name.replace("_", "-")


def flags_of(values: Mapping[str, Any]) -> str:
    """Options as they are typed.

    >>> flags_of({"hidden_size": 64, "dropout": 0.1, "tie_weights": False})
    '--hidden-size 64 --dropout 0.1 --no-tie-weights'
    """
    return " ".join(_written(name, value) for name, value in values.items())


def _written(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return flag(name if value else f"no_{name}")
    return f"{flag(name)} {value:g}" if isinstance(value, float) else f"{flag(name)} {value}"


def quoted(path: Path) -> str:
    """A path as a shell reads it.

    >>> quoted(Path("my run"))
    "'my run'"
    """
    return shlex.quote(str(path))


def resume_command(run: Path) -> str:
    """What to type to go on with a run."""
    return f"chainrule train --resume --out {quoted(run)}"


def size_of(size: float) -> str:
    """Bytes in a unit that keeps them short.

    >>> size_of(1234567)
    '1.23 MB'
    """
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
