"""The figure of a forecast, files of plots, and likelihoods of rows added up."""

import math
from datetime import datetime, timedelta
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from chainrule_app.results import Column
from chainrule_app.tasks.forecast.prediction import Forecast, forecast_figure
from chainrule_app.tasks.likelihood_record import Basis
from chainrule_app.tasks.output import save_figure
from chainrule_app.tasks.tally import Tally

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


class Figure:
    """Half of what a figure writes, then a full disk."""

    def savefig(self, file, **_):
        file.write(b"half")
        raise OSError(28, "No space left on device")


def test_an_image_that_cannot_be_written_leaves_the_one_that_is_there(tmp_path):
    path = tmp_path / "look.png"
    path.write_bytes(b"whole")
    with pytest.raises(OSError, match="No space"):
        save_figure(Figure(), path)
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


def test_the_name_says_the_format(tmp_path):
    figure_module = pytest.importorskip("matplotlib.figure")
    save_figure(figure_module.Figure(figsize=(1, 1)), tmp_path / "look.svg")
    assert b"<svg" in (tmp_path / "look.svg").read_bytes()


def test_rows_are_added_up_while_they_are_read():
    tally = Tally()

    def rows():
        for nats in (1.0, 2.5):
            tally.add(nats, 2)
            yield (nats,)

    scores = tally.result([Column("nats")], rows(), basis=Basis("column"), unit="row", empty="expected a row")
    assert scores.values == [1.0, 2.5]
    assert scores.summary == {"rows": 2, "nats_per_row": 1.75, "bits_per_column": pytest.approx(3.5 / 4 / math.log(2))}
    entry = scores.likelihood()
    assert (entry.nats, entry.elements, str(entry.basis)) == (3.5, 4, "exact; nats per column")


def test_data_without_rows_are_refused():
    scores = Tally().result([Column("nats")], iter(()), basis=Basis("column"), unit="row", empty="expected a row")
    with pytest.raises(ValueError, match="expected a row"):
        list(scores)
