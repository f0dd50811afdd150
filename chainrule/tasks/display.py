"""Data on a terminal: text that comes from files must not reach it as commands, yet JSON must keep it exactly."""

import json
import re
from typing import Any, TextIO

# What moves a terminal's cursor, changes its settings, or turns the order of the text around it; halves of surrogate
# pairs, which no stream takes. JSON escapes what lies below U+0020 itself.
_ORDER = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff{_ORDER}]|\r(?!\n)")
_UNSAFE_IN_JSON = re.compile(f"[\x7f-\x9f\ud800-\udfff{_ORDER}]")


class Harmless:
    """Standard output while a verb runs: what it prints of its data reaches the terminal as text alone.

    Args:
        stream: where the text goes.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._held = ""  # a carriage return, until it is known whether a line feed follows

    def write(self, text: str) -> int:
        """Write `text` as `printable` shows it."""
        whole = self._held + text
        self._held = "\r" if whole.endswith("\r") else ""
        self._stream.write(printable(whole.removesuffix("\r") if self._held else whole))
        return len(text)

    def flush(self) -> None:
        """Write through what is held back."""
        self._stream.flush()

    def close(self) -> None:
        """End the output; the stream itself stays open."""
        self._stream.write(printable(self._held))
        self._held = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def printable(text: str) -> str:
    r"""`text` with control characters escaped, line ends and tabs apart.

    >>> print(printable("\x1b[2J red\t1\n"), end="")
    \x1b[2J red	1
    """
    return _UNSAFE.sub(_escaped, text) if not text.isprintable() else text


def one_line(text: str) -> str:
    r"""`text` on one line: line ends, tabs and control characters escaped.

    >>> one_line("a\tb\n")
    'a\\tb\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == " " else _code(c) for c in text)


def shortened(text: str, width: int) -> str:
    """`text` in at most `width` characters: the middle of a longer one, which names and figures fill, is left out.

    >>> shortened("expected a number, got 1234567890: give another", 40)
    'expected a number, got  … : give another'
    """
    if len(text) <= width:
        return text
    last = (width - 3) * 2 // 5
    return f"{text[: width - 3 - last]} … {text[len(text) - last :]}"


def dump_json(record: Any) -> str:
    r"""`record` as JSON that a terminal shows harmlessly and a reader reads back exactly.

    >>> print(dump_json({"text": "é\x9b2J"}))
    {"text": "é\u009b2J"}
    """
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(record, ensure_ascii=False))


def _escaped(found: re.Match[str]) -> str:
    return _code(found[0])


def _code(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
