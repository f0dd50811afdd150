"""The text that was read, element by element, as a report shows it: with surprise, and with traces of hidden units."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from chainrule.diagnostics import Inspection
from chainrule_app.pages.page import Part, Section, marked, visible
from chainrule_app.readers.images.source import Pixels

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
    """Rows of the text."""

    name: str  # description of the source
    level: str  # char, byte, word or bpe
    rows: list[ReadRow]  # in the order of the tensors
    unknown: int = 0  # number of elements unseen in training
    note: str = ""

    @property
    def element(self) -> str:
        return {"char": "character", "byte": "byte", "word": "word", "bpe": "piece of a word"}[self.level]

    @property
    def narrow(self) -> bool:
        return self.level in ("char", "byte")


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


MOST_COLUMNS, MOST_UNITS = 400, 512
SHOWN_UNITS = 5
GATES, STATES = "YlGnBu", "PuOr"  # both keep their order for colour-blind readers
_PALE = {GATES: (0.0, 0.8), STATES: (0.12, 0.88)}  # of each, the part that is not nearly black
UNIT_HEIGHT = 14  # pixels

Values = npt.NDArray[np.float64]


class Strip(NamedTuple):
    """Heat map (units, columns), coloured by `palette`, with names at its left."""

    title: str
    labels: list[str]
    description: str
    levels: Pixels
    palette: Pixels
    height: int  # pixels on the page


class Scale(NamedTuple):
    """Colours of heat maps, from the lowest value to the highest."""

    name: str
    low: str
    high: str
    colours: list[str]


@dataclass(frozen=True)
class Traces(Part):
    """Heat maps of one layer over one row of the text."""

    layer: int
    read: ReadText
    row: int
    text: list[str]  # elements above the columns
    cut: bool
    strips: list[Strip]
    scales: list[Scale]
    macro = "traces"


def traces(inspection: Inspection, index: int, read: ReadText) -> Traces:
    lag = 0 if inspection.surprise is None else 1  # a model's state has read an element one step later
    row = _row(inspection)
    length = int(inspection.flow.lengths[row]) - lag
    columns = min(length, MOST_COLUMNS)
    gates = {
        name: np.asarray(values[row, lag : lag + columns].cpu().double()).T
        for name, values in inspection.flow.gates[index].items()
    }  # (M, T) each
    state_name, word = ("cell", "cell state c") if "cell" in gates else ("hidden", "state h")
    state = gates[state_name]
    order = np.argsort(-state.std(1), kind="stable")
    units = order[:SHOWN_UNITS].tolist()
    largest = np.abs(state).max(1, keepdims=True)
    relative = state / np.where(largest > 0, largest, 1)
    labels = [f"unit {unit} ±{largest[unit, 0]:.2g}" for unit in units]
    liveliest = relative[order[:MOST_UNITS]]
    count = f"all {len(state)}" if len(liveliest) == len(state) else f"{len(liveliest)} of {len(state)}"
    sigmoids = [name for name in inspection.layers[index].gate_histograms if name in gates]
    strips = [
        _strip(word, labels, relative[units], STATES),
        *(_strip(f"{name} gate", [f"unit {unit}" for unit in units], gates[name][units], GATES) for name in sigmoids),
        _strip(word, [f"{count} units,", "liveliest on top"], liveliest, STATES, f"{word} of {count} units"),
    ]
    scales = [Scale(word, "−largest", "largest", _stops(STATES))]
    if sigmoids:
        scales.append(Scale("gates", "0", "1", _stops(GATES)))
    text = [piece for _, piece in islice(read.rows[row].pieces(), columns)]
    return Traces(index + 1, read, row, text, columns < length, strips, scales)


def _row(inspection: Inspection) -> int:
    """Choose the longest of the rows that are finite."""
    bad, lengths = dict(inspection.flow.nonfinite), inspection.flow.lengths.tolist()
    return max((row for row in range(len(lengths)) if row not in bad), key=lengths.__getitem__)


def _strip(title: str, labels: list[str], values: Values, colours: str, description: str = "") -> Strip:
    low, high = (-1.0, 1.0) if colours == STATES else (0.0, 1.0)
    levels = np.clip((values - low) / (high - low) * 255, 0, 255).round().astype(np.uint8)
    # A strip of named units has a text line per unit, the strip of all units has none.
    height = min(240, max(60, len(values))) if description else UNIT_HEIGHT * len(labels)
    return Strip(title, labels, description or f"{title} of {len(labels)} units", levels, palette(colours), height)


def palette(colours: str) -> Pixels:
    """Return 256 colours (256, 3), none nearly black."""
    import matplotlib as mpl

    table: Any = mpl.colormaps[colours](np.linspace(*_PALE[colours], 256))
    return (table[:, :3] * 255).round().astype(np.uint8)


def _stops(colours: str) -> list[str]:
    return ["#{:02x}{:02x}{:02x}".format(*colour) for colour in palette(colours)[::15]]
