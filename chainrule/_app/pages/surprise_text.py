"""The text that was read, each element with its surprise in bits and a colour for it."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from chainrule._app.pages.page import Part, Section, marked
from chainrule._app.pages.read_text import ReadText, visible

LEVELS = 10  # the darkest; page.css has a class for each
MOST_ELEMENTS = 8000  # shown of a very long text, to keep the page small


class Element(NamedTuple):
    """Element of the text: the text before it, its own, and its line end."""

    before: str
    text: str
    level: int
    bits: str
    ending: str


@dataclass(frozen=True)
class Row:
    """Row of the text, and its mean bits per element."""

    mean: float
    elements: list[Element]


@dataclass(frozen=True)
class SurpriseText(Part):
    """Visible rows; the darkest colour is for `top` bits or more."""

    rows: list[Row]
    element: str  # such as character
    hidden: int = 0
    top: int = 0
    levels: int = LEVELS
    macro = "surprise"


def surprise_section(surprise: Tensor, read: ReadText, lengths: Tensor) -> Section:
    words = marked(
        "<p>Each {} is coloured by −log<sub>2</sub> of the probability that the model gave it, in bits. A row begins "
        "without any past, so that its first elements surprise more.</p>",
        read.element,
    )
    return Section("Surprise", [words, surprise_text(surprise, read, lengths)], "surprise")


def surprise_text(surprise: Tensor, read: ReadText, lengths: Tensor) -> SurpriseText:
    """Colour each element of the rows by its surprise (B, T), bits; no rows if none is finite."""
    real = [surprise[row, : int(length)] for row, length in enumerate(lengths.tolist())]
    finite = sorted(bits for row in real for bits in row.tolist() if math.isfinite(bits))
    if not finite:
        return SurpriseText([], read.element)
    top = max(4, math.ceil(finite[int(0.98 * (len(finite) - 1))]))
    left, rows = MOST_ELEMENTS, []
    for row, bits in zip(read.rows, real, strict=True):
        if left <= 0:
            break
        elements = [
            _element(before, piece, value, top, read.narrow)
            for (before, piece), value in zip(row.pieces(), bits.tolist()[:left], strict=False)
        ]
        left -= len(elements)
        rows.append(Row(float(bits.mean()), elements))
    return SurpriseText(rows, read.element, len(read.rows) - len(rows), top)


def _element(before: str, piece: str, bits: float, top: int, narrow: bool) -> Element:
    finite = math.isfinite(bits)
    level = min(LEVELS, round(LEVELS * bits / top)) if finite else LEVELS
    text = visible(piece, blanks=piece.isspace() and not narrow)
    return Element(before, text, level, f"{bits:.1f}" if finite else "∞", "\n" * piece.count("\n"))
