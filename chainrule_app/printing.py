"""Texts for streams: lists of names, and what an encoding other than UTF-8, such as a Windows pipe's, lacks."""

import codecs
import io
import json
import re
from collections.abc import Iterable
from typing import TextIO

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


_ALIKE = dict(zip("−–—⁻‘’“”·•×→←⊢▁▂▃▄▅▆▇█░▒▓␣\xa0", "----''\"\"**x><|12345678.:#_ ", strict=True))

_ALIKE |= dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹₂", "01234567892", strict=True))
_ALIKE |= {"…": "...", "⋯": "...", "≤": "<=", "≥": ">=", "±": "+-", "‖": "||", "∂": "d", "√": "sqrt", "∞": "inf"}
_ALIKE |= {"α": "alpha", "β": "beta", "ε": "epsilon", "χ": "chi"}
"""ASCII for signs of our own texts; a sparkline counts from 1 to 8."""


class Substitution:
    r"""Error handler of an encoder that writes ASCII for what the encoding lacks, and never stops.

    Signs of our own texts, such as the minus sign, become their ASCII form. Other characters are data: they become
    question marks, and `lost` counts them; in JSON they are escaped, and nothing is lost.

    >>> stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    >>> substitution = Substitution.of(stream, "example")
    >>> stream.write("−1…2 é"), stream.flush(), stream.buffer.getvalue(), substitution.lost
    (6, None, b'-1...2 ?', 1)
    """

    def __init__(self) -> None:
        self.lost = 0
        self.json = False  # whether what is written is JSON

    @classmethod
    def of(cls, stream: TextIO, name: str) -> "Substitution":
        """Register a new handler by name, and let the stream use it if it encodes."""
        handler = cls()
        codecs.register_error(name, handler)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=name)
        return handler

    def __call__(self, error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        return "".join(map(self._written, error.object[error.start : error.end])), error.end

    def _written(self, character: str) -> str:
        if self.json:
            return json.dumps(character)[1:-1]
        if character not in _ALIKE:
            self.lost += 1
        return _ALIKE.get(character, "?")
