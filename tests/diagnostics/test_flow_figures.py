import math
import re
import sys
from io import BytesIO

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from chainrule.diagnostics import gradient_flow
from chainrule.diagnostics._gradient_flow import flow_figures
from chainrule.figures import draw_influence, draw_jacobians, draw_last, log_ticks, new_figure
from chainrule.layers import GRU, LSTM, RNN
from chainrule_app.pages.plots import draw_curves, inline_svg


def linear(alpha: float) -> torch.nn.RNN:
    layer = torch.nn.RNN(1, 1, nonlinearity="relu", bias=False, batch_first=True)
    layer.weight_hh_l0.data.fill_(alpha)
    layer.weight_ih_l0.data.fill_(1.0)
    return layer


def texts(axes) -> str:
    return " | ".join(text.get_text() for text in axes.texts)


def lines(axes) -> list[np.ndarray]:
    return [np.asarray(line.get_ydata(), dtype=float) for line in axes.lines if len(line.get_xdata()) > 2]


LOSSES = ["last", "mean", lambda h: h.sum()]


@pytest.mark.parametrize(
    ("make", "loss"),
    [  # each layer, and each loss; all pairs in `make test-all`
        pytest.param(make, loss, marks=[pytest.mark.slow] if row != column else [])
        for row, make in enumerate([RNN, LSTM, GRU])
        for column, loss in enumerate(LOSSES)
    ],
)
def test_three_figures_with_an_image_a_layer(make, loss):
    flow = gradient_flow(make(2, 4, 2), torch.randn(3, 7, 2, generator=torch.Generator().manual_seed(0)), loss)
    figures = flow.plot()
    assert [len(figure.axes) for figure in figures] == [2, 2, 2]
    assert all(isinstance(figure, Figure) for figure in figures)
    for figure in figures:
        figure.savefig(BytesIO(), format="png")  # no warning, in every format
    assert all(axes.get_xlabel() and axes.get_ylabel() for figure in figures for axes in figure.axes)


def test_the_curve_is_the_gradient_and_the_reach_is_marked():
    flow = gradient_flow(linear(0.5), torch.ones(1, 21, 1))
    axes = flow_figures(flow)[0].axes[0]
    curve = lines(axes)[0]
    assert curve / curve[0] == pytest.approx(0.5 ** np.arange(21), rel=1e-6)
    assert axes.get_yscale() == "log"
    assert "reach: 7 steps" in texts(axes)
    assert "1%" in texts(axes)


def test_inference_mode_is_refused_as_it_records_no_gradients():
    with torch.inference_mode(), pytest.raises(ValueError, match=r"torch\.inference_mode disables them"):
        gradient_flow(linear(0.5), torch.ones(1, 9, 1))


def test_a_gradient_that_never_fades_is_said_to_stay():
    flow = gradient_flow(linear(1.0), torch.ones(1, 9, 1))
    assert "above 1% throughout" in texts(flow_figures(flow)[0].axes[0])


def test_a_bound_out_of_reach_is_written_beside_the_axes_and_one_within_is_drawn():
    norm, product = np.full(50, 2.0), 0.9 ** np.arange(50)
    far, near = new_figure().subplots(), new_figure().subplots()
    draw_jacobians(far, norm, product, 1e4 ** np.arange(50))
    assert "bound: 10¹⁹⁶" in texts(far)
    assert far.get_ylim()[1] < 100
    draw_jacobians(near, norm, product, 1.01 ** np.arange(50))
    assert "bound:" not in texts(near)
    assert near.get_ylim()[0] < product.min()


def test_zeros_infinities_and_unknown_distances_are_left_out():
    curve = np.array([1.0, 0.1, 0.0, math.inf, math.nan])
    figure = new_figure()
    axes = figure.subplots()
    draw_last(axes, curve, curve, 2.0)
    assert np.isfinite(axes.get_ylim()).all()
    figure.savefig(BytesIO(), format="svg")
    draw_influence(new_figure().subplots(), np.zeros(4), np.zeros(4), (math.nan, math.inf))


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_products_of_many_steps_may_come_next_to_what_a_number_can_hold(factor):
    figure = new_figure()
    draw_jacobians(
        figure.subplots(), np.full(300, factor), factor ** np.arange(300), 11.0 ** np.arange(290.0).repeat(2)[:300]
    )
    figure.savefig(BytesIO(), format="svg")


def test_lines_that_end_together_have_names_apart():
    axes = new_figure().subplots()
    draw_influence(axes, 0.5 ** np.arange(9), 0.5 ** np.arange(9), (7.0, 7.0))
    heights = [text.get_position()[1] for text in axes.texts if text.get_text().startswith("by ")]
    assert abs(heights[0] - heights[1]) > 0.08


def test_an_svg_is_the_same_each_time_and_meets_no_other():
    flow = gradient_flow(linear(0.5), torch.ones(1, 9, 1))
    one, again = (inline_svg(flow_figures(flow)[0], "a", "gradients <of> a line") for _ in range(2))
    assert one == again
    other = inline_svg(flow_figures(flow)[0], "b", "x")
    names = [set(re.findall(r' id="([^"]+)"', svg)) for svg in (one, other)]
    assert names[0]
    assert not names[0] & names[1]
    for svg, own in zip((one, other), names, strict=True):
        used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg))
        assert {name for pair in used for name in pair if name} == own
    assert 'aria-label="gradients &lt;of&gt; a line"' in one
    assert "<metadata" not in one
    assert "var(--blue)" in one
    assert "#0072b2" not in one


def test_without_matplotlib_the_error_says_how_to_install_it(monkeypatch):
    flow = gradient_flow(linear(0.5), torch.ones(1, 3, 1))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install matplotlib"):
        flow.plot()


def test_the_reach_is_marked_on_the_curve_that_decides_it():
    delta, cell = 2.0 * 0.1 ** np.arange(9.0), 5.0 * 0.5 ** np.arange(9.0)
    for reach, curve in ((3.0, delta), (7.0, cell)):
        axes = new_figure().subplots()
        draw_last(axes, delta, delta, reach, cell)
        (marker,) = [line for line in axes.lines if line.get_marker() == "o"]
        assert (marker.get_xdata()[0], marker.get_ydata()[0]) == (reach, pytest.approx(0.01 * curve[0]))
        assert marker.get_color() == next(line.get_color() for line in axes.lines if line.get_ydata()[0] == curve[0])


@pytest.mark.parametrize("low", [1e-12, 0.003, 0.3, 1.0, 1.02, 4.2, 97.0, 8e200])
@pytest.mark.parametrize("factor", [1.1, 1.5, 3.0, 11.0, 1e4, 1e30])
def test_a_logarithmic_axis_has_two_to_nine_ticks(low, factor):
    ticks = log_ticks(low, low * factor)
    assert 2 <= len(ticks) <= 9
    assert all(low * (1 - 1e-6) <= tick <= low * factor * (1 + 1e-6) for tick in ticks)
    assert ticks == sorted(ticks)


def test_a_curve_that_hardly_moves_has_its_own_values_on_the_axis():
    figure = new_figure()
    draw_curves(figure.subplots(), [("held out", [1, 2], [3.626201, 3.626209], "red", "-")], "step", "perplexity")
    figure.draw_without_rendering()
    axes = figure.axes[0].yaxis
    assert axes.get_offset_text().get_text() == ""
    assert all(label.get_text().startswith("3.6262") for label in axes.get_ticklabels())
