"""The figures of a layer as a table: names, definitions and values as text."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from chainrule.diagnostics import Inspection, LayerInspection
from chainrule.diagnostics._panels import superscript


@dataclass(frozen=True)
class LayerFigure:
    """A row of the table."""

    name: str
    meaning: str
    value: Callable[[LayerInspection], str]  # as text; empty where the layer has no such figure


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
    LayerFigure(
        "best unit",
        "the unit that separates the chosen property best, and the area under its ROC curve: 0.5 is chance, 1 and 0 "
        "are perfect",
        lambda layer: f"{layer.units[0].unit}: {layer.units[0].area:.2f}" if layer.units else "",
    ),
]


def layer_table(inspection: Inspection) -> list[tuple[LayerFigure, list[str]]]:
    """The figures that any of the layers has, each with its value for every layer, bottom first."""
    rows = [(figure, [figure.value(layer) for layer in inspection.layers]) for figure in LAYER_FIGURES]
    return [(figure, values) for figure, values in rows if any(values)]


def _steps(length: float, profile: Tensor) -> str:
    """A number of steps; a lower bound where it is infinite."""
    if math.isnan(length):
        return "none"
    longest = int((~profile.isnan()).sum()) - 1
    return f"> {longest} steps" if math.isinf(length) else f"{length:g} step{'s' * (length != 1)}"


def _short(value: float) -> str:
    """Two digits of a number of any size.

    >>> _short(0.0028), _short(2.7e277), _short(math.inf)
    ('0.0028', '2.7·10²⁷⁷', '∞')
    """
    if not math.isfinite(value):
        return "∞"
    digits, _, exponent = f"{value:.2g}".partition("e")
    return digits + (f"·10{superscript(int(exponent))}" if exponent else "")


def _furthest(profile: Tensor) -> float:
    return float(profile[~profile.isnan()][-1])
