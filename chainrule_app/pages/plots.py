"""The plots of a report: a caption and an inline SVG each."""

import re
from collections.abc import Callable
from functools import partial
from html import escape
from io import StringIO
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from torch import Tensor

from chainrule.diagnostics import Inspection
from chainrule.diagnostics._panels import (
    BLUE,
    GREEN,
    GRID,
    INK,
    MUTED,
    ORANGE,
    Array,
    draw_clipping,
    draw_every,
    draw_gates,
    draw_influence,
    draw_jacobians,
    draw_last,
    new_figure,
)
from chainrule_app.pages.clipping import Clipping
from chainrule_app.pages.page import Content, Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


def layer_plots(inspection: Inspection, index: int) -> list[Content]:
    layer, flow = inspection.layers[index], inspection.flow
    plot = partial(_plot, f"layer-{index + 1}")
    cell = None if layer.cell_single is None else _array(layer.cell_single)
    last = _array(layer.delta_single), _array(layer.local_single), layer.reach, cell
    every = _array(layer.delta_every), _array(layer.local_every)
    jacobians = _array(layer.jacobian_norm), _array(layer.product_norm), _array(layer.bound)
    influence = _array(flow.influence[index]), _array(flow.influence_perturbed[index])
    lengths = layer.memory_length, layer.memory_length_perturbed
    plots: list[Content] = [
        plot("last", "A single loss, several in each row", "gradients against the distance to the loss",
             lambda axes: draw_last(axes, *last)),
        plot("every", "Loss at every step", "gradients against the distance to the last step",
             lambda axes: draw_every(axes, *every)),
        plot("jacobians", "Effect of the steps on a gradient",
             "norms of single Jacobians, of their product and its bound",
             lambda axes: draw_jacobians(axes, *jacobians)),
        plot("influence", "How long an input is remembered",
             "influence of an input on the state, by gradients and by changing the input",
             lambda axes: draw_influence(axes, *influence, lengths)),
    ]  # fmt: skip
    if layer.gate_histograms:
        figure = new_figure()
        draw_gates(figure, {gate: _array(shares) for gate, shares in layer.gate_histograms.items()}, layer.gate_means)
        described = ", ".join(f"{gate} gate {mean:.2f} on average" for gate, mean in layer.gate_means.items())
        svg = inline_svg(figure, f"layer-{index + 1}-gates", f"histograms: {described}")
        plots.append(Figure([Markup(svg)], "Where the gates are"))
    return plots


def clipping_plot(clipping: Clipping) -> Figure:
    """Plot the gradient norm over training."""
    return _plot(
        "training",
        "clipping",
        "The gradient in training",
        "norm of the gradient before clipping at every step of training",
        lambda axes: draw_clipping(axes, clipping.logged_steps, clipping.logged_norms, clipping.limit),
    )


def _plot(part: str, name: str, caption: str, description: str, draw: "Callable[[Axes], None]") -> Figure:
    figure = new_figure()
    draw(figure.subplots())
    kind = "single" if part == "training" else ""
    return Figure([Markup(inline_svg(figure, f"{part}-{name}", f"{caption}: {description}"))], caption, kind=kind)


def _array(values: Tensor) -> Array:
    return np.asarray(values.double())


COLOURS = {INK: "ink", MUTED: "muted", GRID: "grid", BLUE: "blue", ORANGE: "orange", GREEN: "green"}


def inline_svg(figure: "Drawing", name: str, description: str) -> str:
    """Convert a figure to an SVG; equal figures give equal text."""
    import matplotlib as mpl

    buffer = StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "chainrule"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = _own_names(svg, name)
    for colour, variable in COLOURS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    svg = re.sub(r" font-family: [^;\"]*;| transform=\"rotate\(-0 [^\"]*\"", "", svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    head = f'<svg role="img" aria-label="{escape(description)}"'
    opening = r'<svg((?: xmlns(?::\w+)?="[^"]*"| version="[^"]*")+)?'
    return re.sub(opening, head, _without_size(svg), count=1).strip()


def _own_names(svg: str, name: str) -> str:
    """Prefix the ids that something refers to, and drop the others."""
    used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg))
    targets = {name for pair in used for name in pair if name}
    svg = re.sub(r' id="([^"]*)"', lambda match: f' id="{name}-{match[1]}"' if match[1] in targets else "", svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    return re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', svg)


def _without_size(svg: str) -> str:
    """Drop width and height: the page sets how wide an image is."""
    opening, rest = svg.split(">", 1)
    return re.sub(r' (?:width|height)="[^"]*"', "", opening) + ">" + rest
