"""The pictures of `Result.plot` show the values of the rows."""

from math import log
from pathlib import Path

import numpy as np
import pytest

import chainrule
import chainrule_app
from chainrule.option_error import OptionError
from chainrule_app.pages import result_figures
from chainrule_app.results import Column, Result

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def result(rows, **options):
    """A result of records."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return Result([Column(name) for name in names], [[row.get(name) for name in names] for row in rows], **options)


def texts(axes):
    return [text.get_text() for text in axes.texts if text.get_text()]


def test_a_text_glows_by_the_square_of_its_bits_up_to_twelve():
    rows = [{"text": token, "nats": bits * log(2)} for token, bits in zip("a␣$\\n", (0, 6, 12, 24), strict=False)]
    rows = [*rows[:3], {"text": "\\n", "nats": 0.0}, {"text": "b", "nats": 24 * log(2)}]
    (axes,) = result_figures.surprise_figure(result(rows)).axes
    shades = [collection.get_alpha() for collection in axes.collections]
    np.testing.assert_allclose(shades, [0, 0.75 / 4, 0.75, 0, 0.75])
    assert texts(axes) == ["a", " ", r"\$", "\\", "n", "b"]
    assert [text.get_position()[1] for text in axes.texts] == [-0.5] * 5 + [-1.5]  # after the line end
    assert axes.get_title("left") == "5 symbols, 42.0 bits"


def test_learning_curves_mark_the_best_validation():
    records = [
        {"event": "step", "step": 1, "nats_per_element": 3.0},
        {"event": "validation", "step": 2, "nats_per_element": 2.0, "best": True},
        {"event": "step", "step": 3, "nats_per_element": float("nan")},
        {"event": "validation", "step": 4, "nats_per_element": 2.5, "best": False},
    ]
    (axes,) = result_figures.learning_figure(result(records)).axes
    assert {line.get_label(): line.get_xydata().tolist() for line in axes.lines} == {
        "training": [[1, 3.0]],
        "held out": [[2, 2.0], [4, 2.5]],
        "best: 2.0000 at step 2": [[2, 2.0]],
    }
    with pytest.raises(OptionError, match="at least one record"):
        result_figures.learning_figure(result(records[2:3]))


def test_cells_glow_by_their_excess():
    rows = [
        {"line": line, "column": column, "cell": cell, "excess": excess}
        for line, column, cell, excess in ((7, "size", 1.25, -2.0), (7, "name", None, 3.0), (9, "size", 2.0, 12.0))
    ]
    (axes,) = result_figures.cells_figure(result(rows)).axes
    np.testing.assert_allclose([shade.get_alpha() for shade in axes.collections], [0, 0.375, 0.75])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["size", "name"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["7", "9"]
    assert texts(axes) == ["1.25", "2"]
    with pytest.raises(OptionError, match="at most 40 rows to draw, got 41"):
        result_figures.cells_figure(result([{"line": line, "column": "a"} for line in range(41)]))


def test_labels_are_bars_of_the_six_greatest_probabilities():
    shares = {name: (8 - place) / 36 for place, name in enumerate("abcdefgh")}
    one, two = result_figures.labels_figure(
        result([{"index": 0, "probabilities": shares}, {"index": 1, "probabilities": {"x": 1.0}}])
    ).axes
    np.testing.assert_allclose([bar.get_width() for bar in one.patches], [value / 36 for value in (3, 4, 5, 6, 7, 8)])
    assert [label.get_text() for label in one.get_yticklabels()] == list("fedcba")
    assert [bar.get_width() for bar in two.patches] == [1.0]
    assert (one.get_title("left"), two.get_title("left")) == ("0", "1")


def test_predicted_numbers_have_intervals_and_what_was_true():
    rows = [
        {"line": 1, "column": "size", "actual": 4.0, "value": 2.0, "low": 1.0, "high": 3.0, "shares": {"0.1": 1.0}},
        {"line": 2, "column": "size", "actual": None, "value": 5.0, "low": 4.0, "high": 6.5, "shares": {"0.1": 4.0}},
        {"line": 2, "column": "name", "actual": "a", "value": "b", "low": None, "high": None, "shares": {"b": 1.0}},
    ]
    (axes,) = result_figures.predicted_figure(result(rows)).axes
    assert [segment.tolist() for segment in axes.collections[0].get_segments()] == [
        [[0, 1], [0, 3]],
        [[1, 4], [1, 6.5]],
    ]
    predicted, actual = axes.lines
    assert predicted.get_ydata().tolist() == [2.0, 5.0]
    np.testing.assert_equal(np.asarray(actual.get_ydata()), [4.0, np.nan])
    (bars,) = result_figures.predicted_figure(result(rows[2:])).axes
    assert bars.get_title("left") == "line 2: name"


def test_the_confusion_matrix_has_a_row_for_each_true_label():
    confusion = {"cat": {"cat": 3, "dog": 1}, "dog": {"cat": 0, "dog": 2}}
    (axes,) = result_figures.confusion_figure(Result([], [], summary=lambda: {"confusion": confusion})).axes
    assert axes.images[0].get_array().tolist() == [[0.75, 0.25], [0.0, 1.0]]
    assert {text.get_position(): text.get_text() for text in axes.texts} == {(0, 0): "3", (1, 0): "1", (1, 1): "2"}


def test_vectors_lie_in_the_plane_of_their_greatest_variance():
    """Points on two perpendicular lines of a space of four axes."""
    across, up = np.array([0.6, 0.8, 0, 0]), np.array([0, 0, 0, 2.0])
    points = [-2 * across, -across, across, 2 * across, up, -up]
    rows = [{"input": place, "label": "ab"[place > 3], "code": point} for place, point in enumerate(points)]
    (axes,) = result_figures.plane_figure(result(rows, main="code")).axes
    a, b = (np.asarray(part.get_offsets()) for part in axes.collections)
    np.testing.assert_allclose(np.abs(a), [[2, 0], [1, 0], [1, 0], [2, 0]], atol=1e-12)
    np.testing.assert_allclose(np.abs(b), [[0, 2], [0, 2]], atol=1e-12)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("56% of the variance", "44% of the variance")
    with pytest.raises(OptionError, match="at least 3 vectors"):
        result_figures.plane_figure(result(rows[:2], main="code"))


def test_a_score_and_a_history_have_their_pictures():
    run = chainrule.load(Path(chainrule_app.__file__).parent / "demo" / "cities")
    score = run.score(["Lisbon"])
    (axes,) = score.plot().axes
    assert axes.get_title("left") == f"7 symbols, {score['nats'][0] / log(2):.1f} bits"
    assert score.per("element").plot().axes
    assert run.history.plot().axes[0].get_xlabel() == "step"
    assert run.embed(["Rome", "Oslo", "Bern"]).plot().axes
    with pytest.raises(ValueError, match="no picture of rows of a"):
        result([{"a": 1}]).plot()
