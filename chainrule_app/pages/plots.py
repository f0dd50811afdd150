"""The plots of a report: a caption and an inline SVG each."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from io import StringIO
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from torch import Tensor

from chainrule.diagnostics import Inspection
from chainrule.figures import (
    BLUE,
    GREEN,
    GRID,
    INK,
    MUTED,
    ORANGE,
    SMALL,
    Array,
    draw_every,
    draw_influence,
    draw_jacobians,
    draw_last,
    draw_threshold,
    finish_log_axes,
    log_limits,
    new_figure,
    plain_axes,
)
from chainrule_app.pages.clipping import Clipping
from chainrule_app.pages.page import Content, Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

Series = tuple[str, Sequence[float], Sequence[float], str, str]


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


def draw_gates(figure: "Drawing", histograms: dict[str, Array], means: dict[str, float]) -> None:
    """Plot the histogram of each σ gate over [0, 1], with its mean marked."""
    strips = figure.subplots(len(histograms), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (name, shares) in zip(strips, histograms.items(), strict=True):
        edges = np.linspace(0, 1, len(shares) + 1)
        axes.stairs(shares, edges, fill=True, color=BLUE, alpha=0.55)
        axes.axvline(means[name], color=ORANGE, linewidth=1.4)
        right = means[name] < 0.5
        axes.text(
            0.99 if right else 0.01, 0.94, f"{name}: mean {means[name]:.2f}", transform=axes.transAxes, va="top",
            ha="right" if right else "left", fontsize=SMALL, color=INK,
        )  # fmt: skip
        plain_axes(axes)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    strips[-1].set_xlim(0, 1)
    strips[-1].set_xlabel("value of the gate: 0 shut, 1 open", fontsize=SMALL, color=INK)
    strips[0].set_ylim(0, 1.35 * max(float(shares.max()) for shares in histograms.values()))


def draw_clipping(axes: "Axes", steps: Sequence[int], norms: Sequence[float], limit: float | None) -> None:
    """Plot gradient norms before clipping, the maximum of each stretch of training, and the limit."""
    stretches = np.array_split(np.arange(len(steps)), min(len(steps), 200))
    largest = [max((norms[index], steps[index]) for index in stretch) for stretch in stretches]
    axes.plot([step for _, step in largest], [norm for norm, _ in largest], color=BLUE, linewidth=1)
    values = np.array([norm for norm, _ in largest])
    if limit is not None:
        draw_threshold(axes, limit, f"clipped above {limit:g}")
        values = np.append(values, limit)
    finish_log_axes(
        axes, "step of training", "norm of the gradient", (min(steps), max(steps) + 1), log_limits(values), []
    )


def draw_curves(axes: "Axes", series: Sequence[Series], across: str, up: str) -> None:
    """Plot curves on linear axes; each has a name, x and y values, a colour and a matplotlib style."""
    for name, xs, values, colour, style in series:
        axes.plot(xs, values, style, color=colour, linewidth=1.2, markersize=3, label=name)
    axes.set_xlabel(across, fontsize=SMALL, color=INK)
    axes.set_ylabel(up, fontsize=SMALL, color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlim(left=0)
    axes.ticklabel_format(useOffset=False)  # a curve that hardly moves has its own values on the axis, too
    plain_axes(axes)


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
