"""The figure of a forecast."""

from datetime import datetime, timedelta
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from chainrule._app.tasks.forecast.prediction import Forecast, forecast_figure

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S+01:00", "%Y-%m-%d", "%Y-%m", None])
@pytest.mark.parametrize(("rows", "horizon"), [(960, 24), (300, 6), (300, 1), (4, 30), (1, 1), (5000, 400)])
def test_labels_of_the_times_do_not_touch(rows, horizon, form):
    """Those of the last row and of the last forecast were written over each other."""
    times = [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in range(rows + horizon)]

    def text(time):
        return time.strftime(form)

    file = SimpleNamespace(
        targets=("heat",),
        values=np.zeros((rows, 1)),
        spans=np.array([[0, rows]]),
        dates=times[:rows] if form else [],
        date_text=text,
    )
    names = [text(time) if form else str(row) for row, time in enumerate(times, 1)][rows:]
    paths = np.ones((2, 1, horizon))
    figure = forecast_figure(Forecast(file, [0], [names], [0.5], np.zeros((1, 1, horizon)), paths))
    figure.canvas.draw()
    labels = figure.axes[0].get_xticklabels()
    assert labels[0].get_text().replace("\n", " ") == names[-1]
    boxes = [label.get_window_extent() for label in labels]
    assert not any(one.padded(2).overlaps(other) for one, other in combinations(boxes, 2))
