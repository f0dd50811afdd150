"""Gates and states as heat maps over the text that was read, the best units first."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from chainrule._app.pages.page import Part
from chainrule._app.pages.read_text import ReadText
from chainrule.data._images.source import Pixels
from chainrule.diagnostics import Inspection
from chainrule.diagnostics._hidden_units import SIGMOIDS

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
    text: list[tuple[str, bool]]  # elements above the columns, marked if they have the chosen property
    cut: bool
    separating: bool  # units separate the property best; else they vary most
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
    areas = {unit.unit: unit.area for unit in inspection.layers[index].units[:SHOWN_UNITS]}
    order = np.argsort(-state.std(1), kind="stable")
    units = list(areas) or [int(unit) for unit in order[:SHOWN_UNITS]]
    largest = np.abs(state).max(1, keepdims=True)
    relative = state / np.where(largest > 0, largest, 1)
    labels = [
        f"unit {unit} " + (f"{areas[unit]:.2f} " if unit in areas else "") + f"±{largest[unit, 0]:.2g}"
        for unit in units
    ]
    liveliest = relative[order[:MOST_UNITS]]
    count = f"all {len(state)}" if len(liveliest) == len(state) else f"{len(liveliest)} of {len(state)}"
    sigmoids = [name for name in SIGMOIDS if name in gates]
    strips = [
        _strip(word, labels, relative[units], STATES),
        *(_strip(f"{name} gate", [f"unit {unit}" for unit in units], gates[name][units], GATES) for name in sigmoids),
        _strip(word, [f"{count} units,", "liveliest on top"], liveliest, STATES, f"{word} of {count} units"),
    ]
    scales = [Scale(word, "−largest", "largest", _stops(STATES))]
    if sigmoids:
        scales.append(Scale("gates", "0", "1", _stops(GATES)))
    has = inspection.has_property
    marked = [False] * columns if has is None else has[row].tolist()
    text = [(piece, mark) for (_, piece), mark in zip(read.rows[row].pieces(), marked[:columns], strict=False)]
    separating = bool(areas) and read.chosen is not None
    return Traces(index + 1, read, row, text, columns < length, separating, strips, scales)


def _row(inspection: Inspection) -> int:
    """Choose the finite row with most elements both with and without the property, then the longest."""
    bad, lengths, has = dict(inspection.flow.nonfinite), inspection.flow.lengths.tolist(), inspection.has_property

    def worth(row: int) -> tuple[int, int]:
        marked = torch.zeros(0, dtype=torch.bool, device="cpu") if has is None else has[row, : lengths[row]]
        return min(int(marked.sum()), int((~marked).sum())), lengths[row]

    return max((row for row in range(len(lengths)) if row not in bad), key=worth)


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
