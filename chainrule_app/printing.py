"""Texts for streams: what can be written, and lists of names."""

import re
from collections.abc import Iterable

_UNWRITABLE = re.compile("[\ud800-\udfff]")


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
