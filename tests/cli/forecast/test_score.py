"""Values of series are scored given those before them: exact nats, what was expected, and the odd ones first."""

import csv
import json
import math
from datetime import date, timedelta

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import chainrule
from chainrule.data import SeriesWindows
from chainrule_app.cli.main import main
from chainrule_app.tasks.forecast.scoring import windows_of

ODD = 150  # the row of a value that nobody would expect


def heat(row):
    return 10 + 3 * math.sin(math.tau * row / 7) + 0.01 * (row * 7919 % 101)


def write(path, odd=None, missing=()):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["day", "heat", "cold"])
        for row in range(200):
            value = 14.5 if row == odd else heat(row)
            day = date(2024, 1, 1) + timedelta(days=row)
            writer.writerow([day, "" if row in missing else f"{value:.3f}", f"{-heat(row + 3):.3f}"])
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trained for a few steps; not to be written to."""
    folder = tmp_path_factory.mktemp("series")
    words = ["train", write(folder / "days.csv"), "--task", "forecast", "--target", "all", "--horizon", 6, "--steps", 3]
    assert main([str(word) for word in [*words, "--hidden-size", 8, "--out", folder / "run"]]) == 0
    return folder / "run"


def test_the_odd_value_comes_first_with_what_was_expected(ok, run, tmp_path):
    odd = write(tmp_path / "odd.csv", ODD, missing=(40, 160))
    outcome = ok("score", run, odd, "--sort", "--top", 3, "--json")
    first, *_ = map(json.loads, outcome.out.splitlines())
    assert (first["day"], first["series"], first["value"]) == ("2024-05-30", "heat", 14.5)
    assert first["low"] < first["median"] < first["high"] < 14.5
    assert first["median"] == pytest.approx(heat(ODD), abs=1)
    figures = next(line for line in ok("score", run, odd, "--json").err.splitlines() if line.startswith("{"))
    assert json.loads(figures)["values"] == 2 * (200 - 7) - 2  # neither the first season nor what is missing
    assert "the run was trained on the rows up to 2024-06-28: later ones are more surprising" in outcome.err
    table = ok("score", run, odd, "--sort", "--top", 1).out.splitlines()
    assert table[0].split() == ["day", "series", "value", "nats", "excess", "expected"]
    assert table[1].startswith("2024-05-30  heat     14.5")


def test_nats_and_quantiles_are_those_of_the_model_given_the_rows_before(run, tmp_path):
    opened = chainrule.open_run(run)
    path = write(tmp_path / "days.csv")
    scored = {(row["series"], row["day"].date()): row for row in chainrule.load(run).score(path)}
    file, model = opened.schema.open(str(path)), opened.model()
    features = opened.schema.features(file)
    for origin in (opened.history, opened.history + 6):  # where windows begin
        batch = SeriesWindows.batch(file.values, features, [(origin, 0), (origin, 1)], opened.history, 3)
        head = model(batch.x, batch.context)
        nats, middle = -head.log_prob(batch.x), head.icdf(torch.tensor(0.5))
        for series, name in enumerate(["heat", "cold"]):
            for step in range(3):
                row = scored[name, date(2024, 1, 1) + timedelta(days=origin + step)]
                own, median = nats[series, step].item(), middle[series, step]
                assert row["nats"] == pytest.approx(own, rel=1e-5)
                assert row["median"] == pytest.approx(median.item(), rel=1e-4)
                peak = head.log_prob(middle)[series, step].item()
                assert row["excess"] == pytest.approx(own + peak, rel=1e-4, abs=1e-5)


def test_after_a_change_of_level_values_are_usual_again(run, tmp_path):
    """Left out of the past as odd ones, all values after a change would have been odd for ever."""
    frame = pd.read_csv(write(tmp_path / "days.csv"), parse_dates=["day"])
    frame.loc[120:, "heat"] += 8
    heat = chainrule.load(run).score(frame).to_pandas().query("series == 'heat'")["excess"]
    odd = heat.index[heat > 8]
    assert odd[0] == frame["day"][120]
    assert odd[-1] < frame["day"][127]  # a season later


def test_a_frame_in_memory_is_scored_as_its_file(run, tmp_path):
    path = write(tmp_path / "days.csv", ODD)
    frame = pd.read_csv(path, parse_dates=["day"])
    loaded = chainrule.load(run)
    assert loaded.score(frame)["nats"] == loaded.score(path)["nats"]
    assert loaded.score(path).plot().axes[0].get_title(loc="left") == "heat"


def test_a_series_of_one_season_has_nothing_to_score(refused, run, tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("".join(write(tmp_path / "days.csv").read_text().splitlines(keepends=True)[:8]))
    said = refused("score", run, path)
    assert "expected values after the first 7 of a series, got none: add rows" in said


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), min_size=1, max_size=4),
    st.integers(1, 12), st.integers(1, 30), st.integers(1, 10),
)  # fmt: skip
def test_windows_cover_each_row_once_given_rows_that_are_there(spans, reach, history, horizon):
    spans = np.array([(start, start + length) for start, length in spans])
    windows = list(windows_of(spans, reach, history, horizon))
    for number, (start, stop) in enumerate(spans.tolist()):
        own = [window for window in windows if window.series == number]
        rows = [row for window in own for row in range(window.origin, window.origin + window.length)]
        assert rows == list(range(start + reach, stop))
        assert all(window.origin - window.past >= start for window in own)
        assert all(window.past == min(history, window.origin - start) for window in own[1:])
