"""The text that was read, element by element, as a report shows it."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field

from chainrule.diagnostics._text_properties import TextProperty

CONTINUED = "·"  # a byte of a character that an earlier byte has shown


@dataclass(frozen=True)
class ReadRow:
    text: str
    spans: list[tuple[int, int]]  # start and stop of each element

    def pieces(self) -> Iterator[tuple[str, str]]:
        """Yield the text between an element and the one before it, and the element's own text."""
        before = 0
        for start, stop in self.spans:
            yield self.text[before:start], self.text[start:stop] if stop > before else CONTINUED
            before = stop


@dataclass(frozen=True)
class ReadText:
    """Rows of the text, and the property sought in them."""

    name: str  # description of the source
    level: str  # char, byte, word or bpe
    rows: list[ReadRow]  # in the order of the tensors
    unknown: int = 0  # number of elements unseen in training
    chosen: TextProperty | None = None  # property sought in units, if any
    share: float = 0.0  # share of elements with the property
    note: str = ""
    element: str = field(init=False)

    def __post_init__(self) -> None:
        words = {"char": "character", "byte": "byte", "word": "word", "bpe": "piece of a word"}
        object.__setattr__(self, "element", words[self.level])

    @property
    def narrow(self) -> bool:
        return self.level in ("char", "byte")


def visible(text: str, *, blanks: bool = True) -> str:
    """Make control characters, lone combining marks and blanks visible."""
    return "".join(map(_visible_blank if blanks else _visible, text))


def _visible_blank(character: str) -> str:
    return "␣" if character == " " else _visible(character)


def _visible(character: str) -> str:
    kind = unicodedata.category(character)
    if character in "\n\t":
        return "↵" if character == "\n" else "⇥"
    if kind in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):  # direction marks would turn the page's own text round
        return f"⟨{ord(character):x}⟩"
    return f"◌{character}" if kind[0] == "M" else character
