"""Gates and states as heat maps over the text that was read, the best units first."""

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from chainrule.diagnostics.inspection import Inspection
from chainrule.diagnostics.report.indexed_png import data_address, indexed_png
from chainrule.diagnostics.report.read_text import ReadText, visible
from chainrule.diagnostics.saturation import SIGMOIDS

MOST_COLUMNS, MOST_UNITS = 400, 512
SHOWN_UNITS = 5
GATES, STATES = "YlGnBu", "PuOr"  # both keep their order for colour-blind readers
_PALE = {GATES: (0.0, 0.8), STATES: (0.12, 0.88)}  # of each, what is not nearly black
UNIT_HEIGHT = 14  # pixels

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Columns:
    """What is drawn: one row of the text, from its first element on."""

    row: int
    elements: int
    lag: int  # a model's state has read an element one step later


def traces(inspection: Inspection, index: int, read: ReadText) -> str:
    """HTML of one layer's heat maps over one row of the text."""
    columns = _columns(inspection)
    gates = {
        name: np.asarray(values[columns.row, columns.lag : columns.lag + columns.elements].double().cpu()).T
        for name, values in inspection.flow.gates[index].items()
    }  # (M, T) each
    state_name = "cell" if "cell" in gates else "hidden"
    state = gates[state_name]
    layer = inspection.layers[index]
    areas = {unit.unit: unit.area for unit in layer.units[:SHOWN_UNITS]}
    order = np.argsort(-state.std(1), kind="stable")
    units = list(areas) or [int(unit) for unit in order[:SHOWN_UNITS]]
    largest = np.abs(state).max(1, keepdims=True)
    relative = state / np.where(largest > 0, largest, 1)
    word = {"cell": "cell state c", "hidden": "state h"}[state_name]
    text = _text(inspection, read, columns)
    labels = [
        f"unit {unit} " + (f"{areas[unit]:.2f} " if unit in areas else "") + f"±{largest[unit, 0]:.2g}"
        for unit in units
    ]
    strips = [_strip(word, labels, relative[units], (-1.0, 1.0), STATES)]
    strips += [
        _strip(f"{name} gate", [f"unit {unit}" for unit in units], gates[name][units], (0.0, 1.0), GATES)
        for name in SIGMOIDS
        if name in gates
    ]
    strips.append(_whole(word, relative[order[:MOST_UNITS]], len(state)))
    kind = "narrow" if read.narrow else "wide"
    legend = _scale(word, "−largest", "largest", STATES)
    if any(name in gates for name in SIGMOIDS):
        legend += f" {_scale('gates', '0', '1', GATES)}"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="heat maps of layer {index + 1}, scrolls sideways">'
        f'<div class="traces {kind}" style="--columns:{columns.elements}">{text}{"".join(strips)}{text}</div></div>'
        f'<p class="legend">{legend}</p><p class="note">{_explanation(inspection, index, read, columns)}</p>'
    )


def _columns(inspection: Inspection) -> _Columns:
    lag = 0 if inspection.surprise is None else 1
    bad = dict(inspection.flow.nonfinite)
    lengths = inspection.flow.lengths.tolist()
    has = inspection.has_property

    def worth(row: int) -> tuple[int, int]:
        told_apart = (
            0 if has is None else min(int(has[row, : lengths[row]].sum()), int((~has[row, : lengths[row]]).sum()))
        )
        return told_apart, lengths[row]

    row = max((row for row in range(len(lengths)) if row not in bad), key=worth)
    return _Columns(row, min(lengths[row] - lag, MOST_COLUMNS), lag)


def _text(inspection: Inspection, read: ReadText, columns: _Columns) -> str:
    has = inspection.has_property
    marked = torch.zeros(columns.elements, dtype=torch.bool) if has is None else has[columns.row]
    cells = "".join(
        f"<i{_class(mark, piece.isspace())}>{escape(visible(piece)[:24])}</i>"
        for (_, piece), mark in zip(read.rows[columns.row].pieces(), marked.tolist()[: columns.elements], strict=False)
    )
    name = "" if read.chosen is None else f"marked: {escape(visible(_short(read.chosen.name)))}"
    return f'<div class="strip"><div class="name">{name}</div><div class="text">{cells}</div></div>'


def _class(marked: bool, blank: bool) -> str:
    names = " ".join(name for name, applies in (("p", marked), ("w", blank)) if applies)
    return f' class="{names}"' if names else ""


def _strip(title: str, labels: list[str], values: Values, limits: tuple[float, float], colours: str) -> str:
    names = "".join(f"<span>{escape(label)}</span>" for label in labels)
    height = UNIT_HEIGHT * len(labels)
    return (
        f'<div class="strip"><div class="name"><em>{escape(title)}</em>{names}</div>'
        f"{_picture(values, limits, colours, height, f'{title} of {len(labels)} units')}</div>"
    )


def _whole(state: str, values: Values, size: int) -> str:
    height = min(240, max(60, len(values)))
    count = f"all {size}" if len(values) == size else f"{len(values)} of {size}"
    picture = _picture(values, (-1.0, 1.0), STATES, height, f"{state} of {count} units")
    return (
        f'<div class="strip"><div class="name"><em>{escape(state)}</em><span>{count} units,</span>'
        f"<span>liveliest on top</span></div>{picture}</div>"
    )


def _picture(values: Values, limits: tuple[float, float], colours: str, height: int, title: str) -> str:
    low, high = limits
    levels = np.clip((values - low) / (high - low) * 255, 0, 255).round().astype(np.uint8)
    address = data_address(indexed_png(levels, palette(colours)))
    alt = f"{title} over {values.shape[1]} columns of text"
    return f'<img src="{address}" alt="{escape(alt)}" style="height:{height}px">'


def palette(colours: str) -> npt.NDArray[np.uint8]:
    """256 colours (256, 3), none of them nearly black."""
    import matplotlib as mpl

    table: Any = mpl.colormaps[colours](np.linspace(*_PALE[colours], 256))
    return (table[:, :3] * 255).round().astype(np.uint8)


def _scale(name: str, low: str, high: str, colours: str) -> str:
    stops = ",".join("#{:02x}{:02x}{:02x}".format(*colour) for colour in palette(colours)[::15])
    bar = f'<span class="scale" style="background:linear-gradient(90deg,{stops})"></span>'
    return f'<span class="key">{escape(name)} {low} {bar} {high}</span>'


def _explanation(inspection: Inspection, index: int, read: ReadText, columns: _Columns) -> str:
    seen = (
        f"Row {columns.row + 1}. Each column shows the layer after it read the {escape(read.element)} above; a unit's "
        "state is shown as a part of its largest, ±."
    )
    if columns.elements < int(inspection.flow.lengths[columns.row]) - columns.lag:
        seen += f" The first {columns.elements} are shown."
    if inspection.layers[index].units and read.chosen is not None:
        return (
            f"{seen} The units are those whose state separates {_property(read)} best; the number is the area under "
            "the ROC curve, 0.5 being chance: near 1 the unit is high there, near 0 it is low."
        )
    return f"{seen} The units are those that vary most."


def _property(read: ReadText) -> str:
    assert read.chosen is not None
    name = f"<code>{escape(visible(read.chosen.name, blanks=False))}</code>"
    return f"{name} ({escape(read.chosen.meaning)})" if read.chosen.meaning else name


def _short(name: str) -> str:
    return name if len(name) <= 16 else name[:15] + "…"
