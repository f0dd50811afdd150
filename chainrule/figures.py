"""Figures of matplotlib: colours, axes, and plots of gradients, Jacobians and influence, with labels at line ends."""

import math
from collections.abc import Callable
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
    bottom, top = log_limits(delta, local) if cell is None else log_limits(delta, local, cell)
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
        draw_threshold(axes, THRESHOLD * float(deciding[0]), "1%")
    finish_log_axes(
        axes, "steps back from the loss", "norm of the gradient", (0, _longest(delta)), (bottom, top), labels
    )
    if not math.isnan(reach):
        _mark_reach(axes, reach, THRESHOLD * float(deciding[0]), colour)


def draw_every(axes: "Axes", delta: Array, local: Array) -> None:
    """Plot ‖δ‖ and ‖g‖ by distance from the last step, for a loss at every step."""
    labels = [_line(axes, delta, "‖δ‖", BLUE), _line(axes, local, "‖g‖", ORANGE)]
    finish_log_axes(
        axes,
        "steps back from the last step",
        "norm of the gradient",
        (0, _longest(delta)),
        log_limits(delta, local),
        labels,
    )


def draw_jacobians(axes: "Axes", norm: Array, product: Array, bound: Array) -> None:
    """Plot ‖J‖ of single steps, the norm of their running product, and its bound from norms."""
    bottom, top = log_limits(norm, product)
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
    draw_threshold(axes, 1.0, "")
    finish_log_axes(axes, "steps back from the last step", "spectral norm", (0, _longest(norm)), (bottom, top), labels)


def draw_influence(axes: "Axes", derivative: Array, perturbed: Array, lengths: tuple[float, float]) -> None:
    """Plot the influence of an input on later states, by derivative and by change, and mark the 1% points."""
    labels = [_line(axes, derivative, "by gradients", BLUE), _line(axes, perturbed, "by change", GREEN, dashed=True)]
    draw_threshold(axes, THRESHOLD, "1%")
    bottom, top = log_limits(derivative, perturbed)
    finish_log_axes(
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
    """Draw a panel for each of several layers, one below the other."""
    figure = new_figure(5.6, 0.3 + 3.0 * count)
    figure.set_facecolor("white")
    for layer, axes in enumerate(figure.subplots(count, 1, squeeze=False)[:, 0]):
        draw(axes, layer)
        axes.set_title(f"layer {layer + 1}: {title}", fontsize=10, loc="left")
    return figure


def _line(axes: "Axes", values: Array, name: str, colour: str, *, dashed: bool = False) -> Label:
    values = values[~np.isnan(values)]
    drawn = np.where((values > 0) & np.isfinite(values), values, np.nan)
    axes.plot(drawn, color=colour, linewidth=1.5, linestyle=(0, (4, 2)) if dashed else "-")
    ends = drawn[~np.isnan(drawn)]
    return (float(ends[-1]) if len(ends) else SMALLEST, name, colour)


def draw_threshold(axes: "Axes", value: float, name: str) -> None:
    """Draw a dotted horizontal line with its name at the right end."""
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


def log_limits(*curves: Array) -> tuple[float, float]:
    """Return limits of a logarithmic axis for all but the smallest values of the curves."""
    values = np.concatenate(curves)
    values = values[np.isfinite(values) & (values > 0)]
    if not len(values):
        return SMALLEST, 1.0
    top = float(values.max())
    return max(float(values.min()), top * SMALLEST) / 2, top * 2.5


def finish_log_axes(
    axes: "Axes",
    across: str,
    up: str,
    across_limits: tuple[float, float],
    limits: tuple[float, float],
    labels: list[Label],
) -> None:
    """Set limits, scales and names of axes with a logarithmic height, and label the lines at their ends."""
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
    plain_axes(axes)
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


def plain_axes(axes: "Axes") -> None:
    """Draw the left and bottom axis alone, without a background."""
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
