"""Text of a user or a model as it may be printed: what would command a terminal is escaped, everything else stays."""

import re

# What moves a terminal's cursor or changes its settings, or overrides the order of the text around it; and halves of
# surrogate pairs, which no stream takes. Marks and joiners, such as U+200F and U+200C, are text.
OVERRIDES = "\u202a-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff{OVERRIDES}]|\r(?!\n)")
_UNSAFE_IN_LINE = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029{OVERRIDES}]")


def printable(text: str) -> str:
    r"""`text` with control characters escaped, line ends and tabs apart.

    >>> print(printable("\x1b[2J red\t1\n"), end="")
    \x1b[2J red	1
    """
    return _UNSAFE.sub(_code, text)


def one_line(text: str) -> str:
    r"""`text` on one line: line ends, tabs and control characters escaped.

    >>> one_line("a\tb\n")
    'a\\tb\\n'
    """
    return _UNSAFE_IN_LINE.sub(_code, text)


def _code(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
