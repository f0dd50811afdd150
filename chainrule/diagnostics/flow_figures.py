"""The figures of a gradient flow, which `GradientFlow.plot` returns."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from chainrule.diagnostics.distance import by_distance, reach
from chainrule.diagnostics.panels import (
    Array,
    draw_every,
    draw_influence,
    draw_jacobians,
    draw_last,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from chainrule.diagnostics.gradient_flow import GradientFlow


def flow_figures(flow: "GradientFlow") -> "list[Figure]":
    """Three figures, each with one picture a layer, bottom first: gradients against the distance to the last step,
    Jacobians and their products, and the influence of inputs on later states.

    Curves are means over rows.

    Raises:
        ImportError: matplotlib is missing.

    >>> import torch
    >>> from chainrule.diagnostics import gradient_flow
    >>> flow = gradient_flow(torch.nn.GRU(2, 3, num_layers=2, batch_first=True), torch.randn(4, 9, 2))
    >>> [len(figure.axes) for figure in flow_figures(flow)]
    [2, 2, 2]
    """

    def profile(values: Tensor) -> Array:
        return np.asarray(by_distance(values, flow.lengths))

    def gradients(axes: "Axes", layer: int) -> None:
        delta, local = profile(flow.delta[layer].norm(dim=-1)), profile(flow.local[layer].norm(dim=-1))
        if flow.loss == "last":
            cell = profile(flow.delta_cell[layer].norm(dim=-1)) if flow.delta_cell else None
            furthest = max(reach(torch.from_numpy(each)) for each in (delta, cell) if each is not None)
            draw_last(axes, delta, local, furthest, cell)
        else:
            draw_every(axes, delta, local)

    def jacobians(axes: "Axes", layer: int) -> None:
        norm, product, bound = flow.jacobian_norms[layer], flow.product_norms[layer], flow.bound[layer]
        draw_jacobians(axes, profile(norm), profile(product), profile(bound))

    def influence(axes: "Axes", layer: int) -> None:
        derivative, perturbed = np.asarray(flow.influence[layer]), np.asarray(flow.influence_perturbed[layer])
        draw_influence(axes, derivative, perturbed, (flow.memory_length[layer], flow.memory_length_perturbed[layer]))

    count = len(flow.delta)
    return [
        _stacked(count, gradients, f"gradients, loss: {flow.loss}"),
        _stacked(count, jacobians, "Jacobians"),
        _stacked(count, influence, "influence of inputs"),
    ]


def _stacked(count: int, draw: "Callable[[Axes, int], None]", title: str) -> "Figure":
    figure = new_figure(5.6, 0.3 + 3.0 * count)
    figure.set_facecolor("white")
    for layer, axes in enumerate(figure.subplots(count, 1, squeeze=False)[:, 0]):
        draw(axes, layer)
        axes.set_title(f"layer {layer + 1}: {title}", fontsize=10, loc="left")
    return figure
