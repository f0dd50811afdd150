"""The report of an inspection: one HTML page that needs nothing else, neither a network nor scripts."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup
from torch import Tensor

from chainrule.diagnostics import Inspection, LayerInspection
from chainrule.figures import superscript
from chainrule_app.pages.clipping import Clipping
from chainrule_app.pages.page import Content, Group, Section, Table, Terms, Text, marked
from chainrule_app.pages.plots import clipping_plot, layer_plots
from chainrule_app.pages.read_text import ReadText, surprise_section, traces


@dataclass(frozen=True)
class Rule:
    """Condition of a verdict, its meaning, and a remedy."""

    condition: str
    meaning: str
    remedy: str


RULES = {
    "dead-units": Rule(
        f"more than {LayerInspection.DEAD:.0%} of the ReLU units are zero at every element read",
        "No gradient passes through such a unit, so training cannot bring it back.",
        "Lower the learning rate and train again; or use tanh, or a cell with gates.",
    ),
    "no-gradient": Rule(
        "‖δ‖ is zero at every single loss",
        "A layer above is dead, or the loss is as low as it can be: the model is certain of every element, or a bare "
        "layer's output is zero.",
        "Where a layer is dead, lower the learning rate and train again; else read other data.",
    ),
    "explodes": Rule(
        f"‖δ‖ of single losses grows more than {LayerInspection.EXPLOSION:g}-fold on its way back, or overflows",
        "A few early steps then decide the direction of the update, and the loss may jump.",
        "Clip the gradient (--clip-norm 1) and lower the learning rate; a plain RNN: use an LSTM or GRU.",
    ),
    "saturated": Rule(
        f"a plain RNN whose nonlinearity is flat, its slope under {LayerInspection.FLAT:.0%} of the largest, at "
        f"more than {LayerInspection.SATURATED:.0%} of all values",
        "Where f is flat, D_t is near zero, and J_t = D_t W_hh with it.",
        "Lower the learning rate, or start with smaller input weights; or use an LSTM.",
    ),
    "carries": Rule(
        f"‖δ‖ never stays under {LayerInspection.VANISHED:.0%} of its value at the loss, over all the steps read",
        "Nothing hinders learning at these distances.",
        "None needed; read further back with --steps to find where it ends.",
    ),
    "forget-gate-learned": Rule(
        f"an LSTM of chainrule, whose forget gate began with a bias of 1, at {LayerInspection.BEGUN_FORGET:g}, and is "
        f"below {LayerInspection.MOVED_FORGET:g} on average now",
        "Training shut the gate: within a chunk, older memory did not help to predict.",
        "None needed if the text asks for no more memory than this; else train on longer chunks (--chunk-length).",
    ),
    "forget-gate-low": Rule(
        f"an LSTM whose forget gate is below {LayerInspection.OPEN_FORGET:g} on average, and did not begin open",
        "Each step keeps that part of the cell: 0.5 leaves a thousandth after ten steps.",
        "Raise the forget gate's bias to 1 or more before training (Gers et al. 2000, Jozefowicz et al. 2015). If the "
        "text asks for no more memory than this, there is nothing to mend.",
    ),
    "update-gate-low": Rule(
        f"a GRU whose update gate is below {LayerInspection.OPEN_UPDATE:g} on average",
        "The update gate keeps the old state: low, it rewrites the state at every step.",
        "Raise the update gate's bias to 1 or more before training. If the text asks for no more memory than this, "
        "there is nothing to mend.",
    ),
    "contracts": Rule(
        "a plain RNN in which the largest slope of f times the spectral norm of W_hh is below 1",
        "Every step then shrinks every gradient: decay is certain, whatever the data.",
        "Start W_hh orthogonal (as chainrule does) and lower the weight decay; or use an LSTM.",
    ),
    "vanishes": Rule(
        "a plain RNN to which no rule above applies",
        "The product of the Jacobians falls although no single one must.",
        "If the data reaches back further, use an LSTM or GRU.",
    ),
    "fades": Rule(
        "an LSTM or GRU to which no rule above applies: its gates are open, and the gradient fades nonetheless",
        "Earlier inputs were not worth keeping, or were never within one chunk of training.",
        "Train on longer chunks (--chunk-length) if the data reaches back further.",
    ),
}


def recurrence_sections(inspection: Inspection, read: ReadText, clipping: Clipping | None = None) -> list[Content]:
    layers, several = inspection.layers, len(inspection.layers) > 1
    rule_names = dict.fromkeys(layer.verdict.rule for layer in layers)
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
        Text(marked('<a href="#figures">Meaning of the figures</a>')),
    ]
    for index, layer in enumerate(layers):
        exhibits: list[Content] = [
            *([Text(_verdict(layer), "verdict")] if several else []),
            Group("plots", layer_plots(inspection, index)),
            marked("<h3>{} over the text</h3>", "Gates and state" if layer.gate_means else "State"),
            traces(inspection, index, read),
        ]
        name = f"layer-{index + 1}"
        parts.append(Section(f"Layer {index + 1}: {layer.description}, {layer.hidden_size} units", exhibits, name))
    clipped: list[Content] = ["No step of training is recorded."]
    if clipping is not None:
        clipped = [clipping.sentence(), clipping_plot(clipping)]
    parts.append(Section("Clipping in training", clipped, "clipping"))
    if inspection.surprise is not None:
        parts.append(surprise_section(inspection.surprise, read, inspection.flow.lengths))
    terms = FIGURES | {figure.name: figure.meaning for figure, _ in table}
    norms = "Norms are Euclidean and spectral, on logarithmic axes"
    words = f"{norms}; curves are means over rows, by the distance to the row's last step."
    parts.append(Section("Meaning of the figures", [words, Terms(terms)], "figures"))
    words = "The first rule that applies wins, in the order of the documentation. The rules of this model come first."
    rules = {name: RULES[name] for name in [*rule_names, *(name for name in RULES if name not in rule_names)]}
    definitions = {name: f"Given to {rule.condition}. {rule.meaning} {rule.remedy}" for name, rule in rules.items()}
    parts.append(Section("Rules of the verdicts", [words, Terms(definitions, linked=True)], "rules"))
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
    """Describe the text, its shape and its mean surprise (`bits` per element; NaN if unknown)."""
    rows, count, longest = len(lengths), int(lengths.sum()), int(lengths.max())
    each = f"{longest}" if rows * longest == count else f"up to {longest}"
    elements = "pieces of words" if read.level == "bpe" else f"{read.element}s"
    shape = f"{rows} row{'s' * (rows != 1)} of {each}, {count:,} {elements}"
    return f"{read.name}: {shape}" + ("" if math.isnan(bits) else f", {bits:.3f} bits each")


def mean_surprise(inspection: Inspection) -> float:
    """Average bits per element over the finite rows; NaN for a bare layer."""
    if inspection.surprise is None:
        return math.nan
    total, count = 0.0, 0
    for row, length in enumerate(inspection.flow.lengths.tolist()):
        bits: Tensor = inspection.surprise[row, :length].double()
        if bits.isfinite().all():
            total, count = total + float(bits.sum()), count + length
    return total / count if count else math.nan


def remarks(inspection: Inspection, read: ReadText) -> list[str]:
    """List remarks: unknown symbols, rows left out."""
    lines = []
    if read.unknown:
        lines.append(f"{read.unknown} of the {read.element}s were never seen in training and are read as unknown.")
    for row, step in inspection.flow.nonfinite:
        lines.append(f"Row {row + 1} is left out of all means: not finite from step {step + 1} on.")
    if read.note:
        lines.append(read.note)
    return lines


@dataclass(frozen=True)
class LayerFigure:
    name: str
    meaning: str
    value: Callable[[LayerInspection], str]  # formatted value; empty if the layer has none


def _of_gate(gate: str) -> LayerFigure:
    def value(layer: LayerInspection) -> str:
        if gate not in layer.gate_means:
            return ""
        return f"{layer.gate_means[gate]:.2f}, {layer.saturation[gate]:.0%} flat"

    meaning = "its mean over elements and units, and how much of it is flat: slope under a tenth of the largest"
    return LayerFigure(f"{gate} gate", meaning, value)


LAYER_FIGURES = [
    LayerFigure("cell", "the kind of layer and its units", lambda layer: f"{layer.description}, {layer.hidden_size}"),
    LayerFigure(
        "gradient reach",
        "steps back from a single loss, of several in each row, after which ‖δ‖ stays under 1% of its value at the "
        "loss; in an LSTM the gradient of the cell, ‖∂L/∂c‖, must have gone too",
        lambda layer: _steps(layer.reach, layer.delta_single),
    ),
    LayerFigure(
        "gradient growth",
        "the largest ‖δ‖ on the way back, relative to its value at the loss",
        lambda layer: "none" if math.isnan(layer.growth) else f"×{layer.growth:.3g}".replace("inf", "∞"),
    ),
    LayerFigure(
        "memory, by gradients",
        "steps after which an input's influence on the state stays under 1% of its largest, by the derivatives of all "
        "steps",
        lambda layer: _steps(layer.memory_length, layer.delta_last),
    ),
    LayerFigure(
        "memory, by change",
        "the same by changing the input and reading on; equal where the recurrence is linear",
        lambda layer: _steps(layer.memory_length_perturbed, layer.delta_last),
    ),
    LayerFigure(
        "‖J‖ of one step",
        "the spectral norm of J_t = ∂s_t/∂s_{t−1} along the text, mean; s is h, for an LSTM h and c together",
        lambda layer: f"{float(layer.jacobian_norm.nanmean()):.3g}",
    ),
    LayerFigure(
        "‖J⋯J‖ of all steps",
        "the spectral norm of the product of the Jacobians of the longest row",
        lambda layer: _short(_furthest(layer.product_norm)),
    ),
    LayerFigure(
        "bound of ‖J⋯J‖",
        "its upper bound from norms alone: the product of ‖D_t‖‖W_hh‖, with the path past W_hh where there are gates",
        lambda layer: _short(_furthest(layer.bound)),
    ),
    LayerFigure(
        "spectral norm of W_hh",
        "its largest singular value, all gates together",
        lambda layer: f"{layer.spectral_norm:.3g}",
    ),
    LayerFigure(
        "spectral radius",
        "the largest |eigenvalue| of W_hh; where there are gates, of the candidate's part",
        lambda layer: f"{layer.spectral_radius:.3g}",
    ),
    *map(_of_gate, ("input", "forget", "output", "reset", "update")),
    LayerFigure(
        "nonlinearity flat",
        "the share of all values of the candidate's tanh, or of a plain RNN's f, at which the slope is under a tenth "
        "of the largest",
        lambda layer: next(
            (f"{layer.saturation[name]:.0%}" for name in ("candidate", "hidden") if name in layer.saturation), ""
        ),
    ),
    LayerFigure(
        "dead units",
        "the share of ReLU units that are zero at every element",
        lambda layer: "" if layer.dead is None else f"{layer.dead:.0%}",
    ),
]


def layer_table(inspection: Inspection) -> list[tuple[LayerFigure, list[str]]]:
    """List the figures that any layer has, with the value for every layer, bottom first."""
    rows = [(figure, [figure.value(layer) for layer in inspection.layers]) for figure in LAYER_FIGURES]
    return [(figure, values) for figure, values in rows if any(values)]


def _steps(length: float, profile: Tensor) -> str:
    """Format a number of steps; infinity becomes a lower bound."""
    if math.isnan(length):
        return "none"
    longest = int((~profile.isnan()).sum()) - 1
    return f"> {longest} steps" if math.isinf(length) else f"{length:g} step{'s' * (length != 1)}"


def _short(value: float) -> str:
    """Format a number of any size with two digits.

    >>> _short(0.0028), _short(2.7e277), _short(math.inf)
    ('0.0028', '2.7·10²⁷⁷', '∞')
    """
    if not math.isfinite(value):
        return "∞"
    digits, _, exponent = f"{value:.2g}".partition("e")
    return digits + (f"·10{superscript(int(exponent))}" if exponent else "")


def _furthest(profile: Tensor) -> float:
    return float(profile[~profile.isnan()][-1])
