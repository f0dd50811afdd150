"""Texts for streams: what can be written, options as their user writes them, and lists of names."""

import re
from collections.abc import Iterable
from contextvars import ContextVar

from chainrule.option_error import WriteOption, as_keyword

_UNWRITABLE = re.compile("[\ud800-\udfff]")


WRITE_OPTION: ContextVar[WriteOption] = ContextVar("WRITE_OPTION", default=as_keyword)
"""How notes write options: as keyword arguments, but as flags in a command line."""


def spelled(name: str, value: str | None = None) -> str:
    """Write an option for a note as its user does; errors refer to one by `chainrule.option_error.option`.

    >>> spelled("max_length"), spelled("fit", "crop")
    ('max_length', 'fit="crop"')
    """
    return WRITE_OPTION.get()(name, value)


def writable(text: str) -> str:
    r"""`text` as it is, but for halves of surrogate pairs.

    >>> writable("\ud800\u200f") == "\\ud800\u200f"
    True
    """
    return _UNWRITABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def listed(names: Iterable[str], width: int = 200) -> str:
    """Join as many whole names as fit into `width` characters, at least one, and count the others.

    >>> listed(["churn", "label", "age"], 14), listed(["churn", "label"])
    ('churn, label and 1 more', 'churn, label')
    """
    names, shown = list(names), 0
    while shown < len(names) and (not shown or len(", ".join(names[: shown + 1])) <= width):
        shown += 1
    more = f" and {len(names) - shown} more" if shown < len(names) else ""
    return ", ".join(names[:shown]) + more
