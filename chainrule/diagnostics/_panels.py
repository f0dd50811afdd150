"""Plots of gradients, Jacobians, influence and gates on matplotlib axes, with labels at the ends of lines."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from chainrule.diagnostics._backpropagation import THRESHOLD
from chainrule.diagnostics._backpropagation import reach as reach_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#1b1d21", "#6b7078", "#d8dade"
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"  # distinct for colour-blind readers (Okabe and Ito 2008)
SMALL, SMALLEST = 8.5, 1e-12  # font size in points; smallest drawn value, relative to the largest
LABEL_GAP = 0.085  # minimum gap between line labels, relative to the height of the axes

Array = npt.NDArray[np.float64]
Series = tuple[str, Sequence[float], Sequence[float], str, str]
Label = tuple[float, str, str]  # height in data, text, colour


def new_figure(width: float = 3.5, height: float = 2.6) -> "Figure":
    """Create an empty figure, size in inches, without pyplot's global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "figures need the package matplotlib, which is not installed: pip install matplotlib"
        ) from None
    return Figure(figsize=(width, height), layout="constrained", facecolor="none")


def draw_last(axes: "Axes", delta: Array, local: Array, reach: float, cell: Array | None = None) -> None:
    """Plot ‖δ‖ in h and in the cell, and ‖g‖, by distance from the last step's loss, with the 1% line and the reach."""
    bottom, top = _decades(delta, local) if cell is None else _decades(delta, local, cell)
    labels = [_line(axes, delta, "‖δ‖", BLUE)]
    if cell is not None:
        labels.append(_line(axes, cell, "‖∂L/∂c‖", GREEN))
    if np.count_nonzero(local > 0) == 1:
        axes.plot([0], [local[0]], "o", color=ORANGE, markersize=4.5, clip_on=False, zorder=3)
        axes.annotate("‖g‖: at the loss alone", (0, local[0]), (7, 2), textcoords="offset points", color=ORANGE,
                      fontsize=SMALL)  # fmt: skip
    else:
        labels.append(_line(axes, local, "‖g‖", ORANGE))
    deciding, colour = _deciding(delta, reach, cell)
    if not math.isnan(reach):
        _threshold(axes, THRESHOLD * float(deciding[0]), "1%")
    _finish(axes, "steps back from the loss", "norm of the gradient", (0, _longest(delta)), (bottom, top), labels)
    if not math.isnan(reach):
        _mark_reach(axes, reach, THRESHOLD * float(deciding[0]), colour)


def draw_every(axes: "Axes", delta: Array, local: Array) -> None:
    """Plot ‖δ‖ and ‖g‖ by distance from the last step, for a loss at every step."""
    labels = [_line(axes, delta, "‖δ‖", BLUE), _line(axes, local, "‖g‖", ORANGE)]
    _finish(
        axes,
        "steps back from the last step",
        "norm of the gradient",
        (0, _longest(delta)),
        _decades(delta, local),
        labels,
    )


def draw_jacobians(axes: "Axes", norm: Array, product: Array, bound: Array) -> None:
    """Plot ‖J‖ of single steps, the norm of their running product, and its bound from norms."""
    bottom, top = _decades(norm, product)
    reachable = bound[np.isfinite(bound) & (bound < 1e3 * top)]
    top = max(top, float(reachable.max(initial=0)) * 1.5)
    labels = [_line(axes, norm, "‖J‖, one step", GREEN), _line(axes, product, "product", BLUE)]
    if len(reachable) == len(bound[~np.isnan(bound)]):
        labels.append(_line(axes, bound, "bound", ORANGE, dashed=True))
    else:
        _line(axes, bound, "bound", ORANGE, dashed=True)
        inside = int(np.argmax(~(bound < top)))
        axes.annotate(
            f"bound: {_power(bound[_longest(bound)])}\nat {_longest(bound)} steps",
            (inside, top), (6, -3), textcoords="offset points", color=ORANGE, fontsize=SMALL, va="top",
        )  # fmt: skip
    _threshold(axes, 1.0, "")
    _finish(axes, "steps back from the last step", "spectral norm", (0, _longest(norm)), (bottom, top), labels)


def draw_influence(axes: "Axes", derivative: Array, perturbed: Array, lengths: tuple[float, float]) -> None:
    """Plot the influence of an input on later states, by derivative and by change, and mark the 1% points."""
    labels = [_line(axes, derivative, "by gradients", BLUE), _line(axes, perturbed, "by change", GREEN, dashed=True)]
    _threshold(axes, THRESHOLD, "1%")
    bottom, top = _decades(derivative, perturbed)
    _finish(
        axes,
        "steps since the input",
        "influence, part of largest",
        (0, _longest(derivative)),
        (min(bottom, 3e-3), top),
        labels,
    )
    for length, colour in zip(lengths, (BLUE, GREEN), strict=True):
        if math.isfinite(length):
            axes.plot([length], [THRESHOLD], "o", color=colour, markersize=4.5, zorder=4)


def stacked(count: int, draw: "Callable[[Axes, int], None]", title: str) -> "Figure":
    figure = new_figure(5.6, 0.3 + 3.0 * count)
    figure.set_facecolor("white")
    for layer, axes in enumerate(figure.subplots(count, 1, squeeze=False)[:, 0]):
        draw(axes, layer)
        axes.set_title(f"layer {layer + 1}: {title}", fontsize=10, loc="left")
    return figure


def draw_gates(figure: "Figure", histograms: dict[str, Array], means: dict[str, float]) -> None:
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
        _plain(axes)
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
        _threshold(axes, limit, f"clipped above {limit:g}")
        values = np.append(values, limit)
    _finish(axes, "step of training", "norm of the gradient", (min(steps), max(steps) + 1), _decades(values), [])


def draw_curves(axes: "Axes", series: Sequence[Series], across: str, up: str) -> None:
    """Plot curves on linear axes; each has a name, x and y values, a colour and a matplotlib style."""
    for name, xs, values, colour, style in series:
        axes.plot(xs, values, style, color=colour, linewidth=1.2, markersize=3, label=name)
    axes.set_xlabel(across, fontsize=SMALL, color=INK)
    axes.set_ylabel(up, fontsize=SMALL, color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlim(left=0)
    _plain(axes)


def _line(axes: "Axes", values: Array, name: str, colour: str, *, dashed: bool = False) -> Label:
    values = values[~np.isnan(values)]
    drawn = np.where((values > 0) & np.isfinite(values), values, np.nan)
    axes.plot(drawn, color=colour, linewidth=1.5, linestyle=(0, (4, 2)) if dashed else "-")
    ends = drawn[~np.isnan(drawn)]
    return (float(ends[-1]) if len(ends) else SMALLEST, name, colour)


def _threshold(axes: "Axes", value: float, name: str) -> None:
    axes.axhline(value, color=MUTED, linewidth=0.9, linestyle=(0, (1.5, 2)))
    axes.annotate(name, (1, value), (-2, 2), xycoords=("axes fraction", "data"), textcoords="offset points",
                  ha="right", color=MUTED, fontsize=SMALL, annotation_clip=True)  # fmt: skip


def _deciding(delta: Array, reach: float, cell: Array | None) -> tuple[Array, str]:
    """Return the curve that defines `reach`, and its colour."""
    if cell is None or reach == reach_of(torch.from_numpy(delta)):
        return delta, BLUE
    return cell, GREEN


def _mark_reach(axes: "Axes", reach: float, height: float, colour: str) -> None:
    if math.isinf(reach):
        axes.text(0.98, 0.96, "above 1% throughout", transform=axes.transAxes, ha="right", va="top", color=INK,
                  fontsize=SMALL)  # fmt: skip
        return
    low, high = axes.get_ylim()
    axes.vlines(reach, low, height, color=MUTED, linewidth=0.9)  # downwards only: labels are above the curve
    axes.set_ylim(low, high)
    axes.plot([reach], [height], "o", color=colour, markersize=4.5, zorder=4)
    # The curve falls from the left: there is room above it, and below it far to the right.
    far = reach > 0.6 * axes.get_xlim()[1]
    axes.annotate(
        f"reach: {reach:g} step{'s' * (reach != 1)}", (reach, height), (-6, -6) if far else (6, 6),
        textcoords="offset points", va="top" if far else "bottom", ha="right" if far else "left", color=INK,
        fontsize=SMALL,
    )  # fmt: skip


def _longest(curve: Array) -> int:
    """Return the largest distance with a value, at least 1 so that axes have a width."""
    return max(int(np.count_nonzero(~np.isnan(curve))) - 1, 1)


def _decades(*curves: Array) -> tuple[float, float]:
    """Return limits of a logarithmic axis for all but the smallest values of the curves."""
    values = np.concatenate(curves)
    values = values[np.isfinite(values) & (values > 0)]
    if not len(values):
        return SMALLEST, 1.0
    top = float(values.max())
    return max(float(values.min()), top * SMALLEST) / 2, top * 2.5


def _finish(
    axes: "Axes",
    across: str,
    up: str,
    across_limits: tuple[float, float],
    limits: tuple[float, float],
    labels: list[Label],
) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_ylim(*limits)  # before set_yscale, which would compute limits itself and overflow at 1e±300
    axes.set_yscale("log")
    axes.set_xlim(*across_limits)
    axes.set_xlabel(across, fontsize=SMALL, color=INK)
    axes.set_ylabel(up, fontsize=SMALL, color=INK)
    axes.yaxis.set_major_locator(FixedLocator(log_ticks(*limits)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    _plain(axes)
    low, high = math.log(limits[0]), math.log(limits[1])
    above = -1.0
    for value, name, colour in sorted(labels):
        height = (math.log(min(max(value, limits[0]), limits[1])) - low) / (high - low)
        above = max(height, above + LABEL_GAP)
        axes.text(1.02, above, name, transform=axes.transAxes, va="center", color=colour, fontsize=SMALL)


def log_ticks(low: float, high: float) -> list[float]:
    """Return ticks of a logarithmic axis: at most seven decades, and parts of decades if it shows less than two."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last > first:
        return [float(f"1e{exponent}") for exponent in range(first, last + 1, -(-(last - first + 1) // 7))]
    parts = [float(f"{part}e{exponent}") for exponent in range(first - 1, last + 1) for part in range(1, 10)]
    inside = [part for part in parts if low <= part <= high]
    few = [part for part in inside if f"{part:e}"[0] in "125"]
    if len(few) > 1 or len(inside) > 1:
        return few if len(few) > 1 else inside
    return [float(f"{value:.3g}") for value in (low * (high / low) ** 0.2, low * (high / low) ** 0.8)]


def _plain(axes: "Axes") -> None:
    axes.set_facecolor("none")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(MUTED)
    axes.tick_params(labelsize=SMALL, colors=MUTED, labelcolor=INK, length=3)


def superscript(exponent: int) -> str:
    """Format an exponent in superscript.

    >>> superscript(-12)
    '⁻¹²'
    """
    return str(exponent).translate(_SUPERSCRIPTS)


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _power(value: Any) -> str:
    """Format a number on a logarithmic axis.

    >>> _power(0.01), _power(1e-7), _power(3e45)
    ('0.01', '10⁻⁷', '3·10⁴⁵')
    """
    if not math.isfinite(value) or value <= 0:
        return "∞" if value > 0 else "0"
    exponent = math.floor(math.log10(value) + 1e-9)
    if -3 < exponent < 4:
        return f"{value:g}"
    factor = f"{value / 10.0**exponent:.3g}" if -300 < exponent < 300 else "1"
    return ("" if factor == "1" else f"{factor}·") + "10" + superscript(exponent)
