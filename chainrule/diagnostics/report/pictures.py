"""The plots of a report as figures of HTML: an inline SVG and a caption each."""

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from chainrule.diagnostics.clipping import Clipping
from chainrule.diagnostics.inspection import Inspection
from chainrule.diagnostics.panels import (
    Array,
    draw_clipping,
    draw_every,
    draw_gates,
    draw_influence,
    draw_jacobians,
    draw_last,
    new_figure,
)
from chainrule.diagnostics.report.inline_svg import inline_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def layer_pictures(inspection: Inspection, index: int) -> str:
    """The plots of one layer."""
    layer, flow = inspection.layers[index], inspection.flow
    name = f"layer-{index + 1}"
    parts = [
        _plot(
            f"{name}-last",
            "A single loss, several in each row",
            "gradients against the distance to the loss",
            lambda axes: draw_last(
                axes,
                _array(layer.delta_single),
                _array(layer.local_single),
                layer.reach,
                None if layer.cell_single is None else _array(layer.cell_single),
            ),
        ),
        _plot(
            f"{name}-every",
            "Loss at every step",
            "gradients against the distance to the last step",
            lambda axes: draw_every(axes, _array(layer.delta_every), _array(layer.local_every)),
        ),
        _plot(
            f"{name}-jacobians",
            "What the steps do to a gradient",
            "norms of single Jacobians, of their product and its bound",
            lambda axes: draw_jacobians(
                axes, _array(layer.jacobian_norm), _array(layer.product_norm), _array(layer.bound)
            ),
        ),
        _plot(
            f"{name}-influence",
            "How long an input is remembered",
            "influence of an input on the state, by gradients and by changing the input",
            lambda axes: draw_influence(
                axes,
                _array(flow.influence[index]),
                _array(flow.influence_perturbed[index]),
                (layer.memory_length, layer.memory_length_perturbed),
            ),
        ),
    ]
    if layer.gate_histograms:
        figure = new_figure()
        histograms = {gate: _array(shares) for gate, shares in layer.gate_histograms.items()}
        draw_gates(figure, histograms, layer.gate_means)
        described = ", ".join(f"{gate} gate {mean:.2f} on average" for gate, mean in layer.gate_means.items())
        parts.append(_framed("Where the gates stand", inline_svg(figure, f"{name}-gates", f"histograms: {described}")))
    return f'<div class="plots">{"".join(parts)}</div>'


def clipping_picture(clipping: Clipping) -> str:
    """The gradient's norm along training."""
    return _plot(
        "clipping",
        "The gradient in training",
        "norm of the gradient before clipping at every step of training",
        lambda axes: draw_clipping(axes, clipping.logged_steps, clipping.logged_norms, clipping.limit),
    )


def _plot(name: str, caption: str, description: str, draw: "Callable[[Axes], None]") -> str:
    figure = new_figure()
    draw(figure.subplots())
    return _framed(caption, inline_svg(figure, name, f"{caption}: {description}"))


def _framed(caption: str, svg: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"


def _array(values: Tensor) -> Array:
    return np.asarray(values.double())
