"""The report of an inspection: one HTML page that needs nothing else, neither a network nor scripts."""

import math

from markupsafe import Markup
from torch import Tensor

from chainrule.diagnostics.clipping import Clipping
from chainrule.diagnostics.inspection import Inspection, LayerInspection
from chainrule.diagnostics.report.layer_figures import layer_table
from chainrule.diagnostics.report.page import Content, Group, Section, Table, Terms, Text
from chainrule.diagnostics.report.plots import clipping_plot, layer_plots
from chainrule.diagnostics.report.read_text import ReadText
from chainrule.diagnostics.report.render import marked
from chainrule.diagnostics.report.rules import RULES
from chainrule.diagnostics.report.surprise_text import surprise_section
from chainrule.diagnostics.report.traces import traces


def recurrence_sections(inspection: Inspection, read: ReadText, clipping: Clipping | None = None) -> list[Content]:
    """Sections of a page.

    Args:
        inspection: of a model's recurrence on the rows of `read`.
        read: the text, row for row.
        clipping: of the training; `None` where it is unknown.

    Raises:
        ImportError: matplotlib is missing.
    """
    layers, several = inspection.layers, len(inspection.layers) > 1
    given = dict.fromkeys(layer.verdict.rule for layer in layers)
    table = layer_table(inspection)
    parts: list[Content] = [
        *map(Text, remarks(inspection, read)),
        *(
            Text(marked('<a href="#layer-{0}">Layer {0}</a>: {1}', number, _verdict(layer)), "verdict")
            for number, layer in enumerate(layers, 1)
        ),
        Table(
            ["", *(f"layer {number}" for number in range(1, len(layers) + 1))],
            [[figure.name, *values] for figure, values in table],
            "figures of the layers",
            named=True,
        ),
        Text(marked('<a href="#figures">What these mean</a>')),
    ]
    for index, layer in enumerate(layers):
        shown: list[Content] = [
            *([Text(_verdict(layer), "verdict")] if several else []),
            Group("plots", layer_plots(inspection, index)),
            marked("<h3>{} over the text</h3>", "Gates and state" if layer.gate_means else "State"),
            traces(inspection, index, read),
        ]
        name = f"layer-{index + 1}"
        parts.append(Section(f"Layer {index + 1}: {layer.description}, {layer.hidden_size} units", shown, name))
    clipped: list[Content] = ["No step of training is recorded."]
    if clipping is not None:
        clipped = [clipping.sentence(), clipping_plot(clipping)]
    parts.append(Section("Clipping in training", clipped, "clipping"))
    if inspection.surprise is not None:
        parts.append(surprise_section(inspection.surprise, read, inspection.flow.lengths))
    terms = FIGURES | {figure.name: figure.meaning for figure, _ in table}
    norms = "Norms are Euclidean and spectral, on logarithmic axes"
    words = f"{norms}; curves are means over rows, by the distance to the row's last step."
    parts.append(Section("What the figures mean", [words, Terms(terms)], "figures"))
    words = "The first that applies, in the order of the documentation; those of this model come first here."
    rules = {name: RULES[name] for name in [*given, *(name for name in RULES if name not in given)]}
    told = {name: f"Given to {rule.condition}. {rule.meaning} {rule.remedy}" for name, rule in rules.items()}
    parts.append(Section("Rules of the verdicts", [words, Terms(told, linked=True)], "rules"))
    return parts


FIGURES = {
    "‖δ‖": "the norm of δ_t = ∂L/∂h_t: everything of the loss that reaches the state h_t, through all later steps",
    "‖g‖": "the part of it that arrives at step t itself: from the loss, below the top layer from the layer above",
    "influence": "how far changing an input moves the state k steps later, mean, as a part of its largest; by change "
    "it cannot be told from rounding below about 10⁻⁶",
}


def _verdict(layer: LayerInspection) -> Markup:
    return marked('{0}. <a href="#rule-{1}">rule: {1}</a>', layer.verdict.sentence, layer.verdict.rule)


def reading_line(read: ReadText, lengths: Tensor, bits: float) -> str:
    """The text that was read, and how surprising it was.

    Args:
        read: the text.
        lengths: (B,) elements of its rows.
        bits: per element; NaN where they are unknown.
    """
    rows, count, longest = len(lengths), int(lengths.sum()), int(lengths.max())
    each = f"{longest}" if rows * longest == count else f"up to {longest}"
    elements = "pieces of words" if read.level == "bpe" else f"{read.element}s"
    shape = f"{rows} row{'s' * (rows != 1)} of {each}, {count:,} {elements}"
    return f"{read.name}: {shape}" + ("" if math.isnan(bits) else f", {bits:.3f} bits each")


def mean_surprise(inspection: Inspection) -> float:
    """Bits per element over the rows that are finite; NaN for a bare layer."""
    if inspection.surprise is None:
        return math.nan
    total, count = 0.0, 0
    for row, length in enumerate(inspection.flow.lengths.tolist()):
        bits: Tensor = inspection.surprise[row, :length].double()
        if bits.isfinite().all():
            total, count = total + float(bits.sum()), count + length
    return total / count if count else math.nan


def remarks(inspection: Inspection, read: ReadText) -> list[str]:
    """Remarks on the figures: unknown symbols, rows left out, the property."""
    lines = []
    if read.unknown:
        lines.append(f"{read.unknown} of the {read.element}s were never seen in training and are read as unknown.")
    for row, step in inspection.flow.nonfinite:
        lines.append(f"Row {row + 1} is left out of all means: not finite from step {step + 1} on.")
    if read.note:
        lines.append(read.note)
    return lines
