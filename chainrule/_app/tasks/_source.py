"""A file of data that a task is trained on."""

from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """A file of data that `chainrule train` takes."""

    help: str
    flag: str = "DATA"  # that names it; "DATA" is the positional argument
    alias: str = ""  # a flag that may name it in place of DATA, if there is one
    alias_help: str = ""
    needed: str = ""  # the data in it, for the error where it is missing; empty where it may be left out

    def is_given(self, given: frozenset[str]) -> bool:
        """Whether the user named it; `given` flags are typed."""
        return self.flag in given or self.alias in given


def run_word(source: str) -> str:
    """The name that a run directory takes from the data it is named after.

    >>> run_word("logs/access.log.gz"), run_word("logs/*.gz"), run_word("-"), run_word("a.txt b.txt")
    ('access.log', 'logs', 'standard-input', 'a.txt-b')
    """
    if source == "-":
        return "standard-input"
    path = Path(source)
    if any(sign in source for sign in "*?[") and not path.exists():
        path = Path(*takewhile(lambda part: not any(sign in part for sign in "*?["), path.parts))
    name = path.resolve().name if path.name in ("", ".", "..") else path.name
    stem = name if path.is_dir() else Path(name).stem
    return "".join(sign if sign.isalnum() or sign in "._-+" else "-" for sign in stem) or "data"
