"""Errors about options: the name, the text and the remedy are data, and each client writes the names in its own way.

A program that calls Python sees `batch_size`, a user of the command line `--batch-size`.
"""

from collections.abc import Callable
from typing import Any

WriteOption = Callable[[str, Any], str]
"""A function that writes an option, by its name and the value to give it; None for an option without a value."""
_BEGIN, _VALUE, _END = "\ufdd0", "\ufdd1", "\ufdd2"  # noncharacters: Unicode reserves them for use inside a program
_SWITCHED = {"True": True, "False": False}


def option(name: str, value: Any = None) -> str:
    """Refer to an option, or to an option with a value, in the text or the remedy of a `UserError`.

    >>> str(UserError("rows.csv: no header", f"pass {option('header', 'no')}"))
    'rows.csv: no header: pass header="no"'
    """
    return f"{_BEGIN}{name}{_END}" if value is None else f"{_BEGIN}{name}{_VALUE}{value}{_END}"


def as_keyword(name: str, value: Any = None) -> str:
    """Write an option as a keyword argument.

    >>> as_keyword("batch_size"), as_keyword("min_count", "2"), as_keyword("labels", False), as_keyword("level", "word")
    ('batch_size', 'min_count=2', 'labels=False', 'level="word"')
    """
    if value is None:
        return name
    if isinstance(value, bool) or value.isdecimal():
        return f"{name}={value}"
    return f"{name}={value!r}" if '"' in value else f'{name}="{value}"'


class UserError(ValueError):
    """A mistake in data or options, whose text and remedy may refer to options by `option`."""

    def __init__(self, text: str, remedy: str = ""):
        super().__init__(text, remedy)
        self.text, self.remedy = text, remedy

    def __str__(self) -> str:
        return self.written(as_keyword)

    def written(self, write: WriteOption) -> str:
        """Return the message, its options written by a function."""
        return written(": ".join(filter(None, [self.text, self.remedy])), write)


class OptionError(UserError):
    """A wrong value of an option, or options that contradict each other.

    >>> error = OptionError("n_best", f"expected 1 to {option('beam')}, 5, got 7")
    >>> str(error), error.written(lambda name, value: "--" + name.replace("_", "-"))
    ('n_best: expected 1 to beam, 5, got 7', '--n-best: expected 1 to --beam, 5, got 7')
    """

    def __init__(self, name: str, text: str, remedy: str = ""):
        super().__init__(text, remedy)
        self.name = name
        self.args = (name, text, remedy)  # so that it can be pickled

    def written(self, write: WriteOption) -> str:
        return f"{write(self.name, None)}: {super().written(write)}"


class TakenError(OptionError, FileExistsError):
    """An option that names a file or folder to write, where there is something already."""


class MissingError(UserError, FileNotFoundError):
    """A file or folder that is not there."""


def raw_text(error: Exception) -> str:
    """Return the text of an error for the text of a `UserError`: its references to options stay references."""
    return error.written(option) if isinstance(error, UserError) else str(error)


def written(text: str, write: WriteOption) -> str:
    """Write the references to options in a text.

    >>> written(f"use {option('level', 'word')} or {option('labels', False)}", as_keyword)
    'use level="word" or labels=False'
    """
    head, *parts = text.split(_BEGIN)
    pieces = [head]
    for part in parts:
        reference, _, rest = part.partition(_END)
        name, _, value = reference.partition(_VALUE)
        pieces += [write(name, _SWITCHED.get(value, value) if _VALUE in reference else None), rest]
    return "".join(pieces)
