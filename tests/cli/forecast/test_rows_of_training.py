"""A short series is learnt in a few steps, and an evaluation leaves out the rows that a run was trained on."""

import json
import math
from datetime import datetime, timedelta

import pytest

from chainrule_app.cli.main import main
from chainrule_app.tasks import open_run
from chainrule_app.tasks.config import Duration, RunConfig
from chainrule_app.tasks.forecast.run import ForecastRun
from chainrule_app.training_run import create_run

ROWS, TRAINED = 120, 108


def written(path, first, last, *, dated):
    """Some days of an endless series."""
    lines = ["date,heat" if dated else "heat"]
    for day in range(first, last):
        heat = f"{10 + 3 * math.sin(math.tau * day / 7) + 0.01 * (day * 7919 % 101):.3f}"
        lines.append(f"{datetime(2024, 1, 1) + timedelta(days=day):%Y-%m-%d},{heat}" if dated else heat)
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module", params=[True, False], ids=["dated", "counted"])
def dated(request):
    return request.param


@pytest.fixture(scope="module")
def run(dated, tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    path = written(home / "days.csv", 0, ROWS, dated=dated)
    arguments = ["train", path, "--task", "forecast", "--horizon", 6, "--season", 7, "--history", 20]
    arguments += ["--steps", 2, "--hidden-size", 4, "--json", "--out", home / "run"]
    assert main([str(argument) for argument in arguments]) == 0
    return home / "run"


def test_a_file_that_goes_on_is_measured_after_the_rows_of_training(command, refused, run, dated, tmp_path):
    """Only the very file of training was known again: with a row more, the rows of training were scored too."""
    longer = written(tmp_path / "longer.csv", 0, ROWS + 5, dated=dated)
    found = json.loads(command("evaluate", run, longer, "--json").out)
    assert (found["first_row"], found["origins"], found["trained_rows"]) == (TRAINED + 1, 2, TRAINED)
    trained_on = "dates up to 2024-04-17" if dated else "them"
    line = f"rows 1 to {TRAINED} are skipped, as the run was trained on {trained_on}"
    assert line in command("evaluate", run, longer).out.splitlines()
    expected = f"--start: expected a row of {longer} from {TRAINED + 1} on, got row {TRAINED}: {line}"
    assert expected in refused("evaluate", run, longer, "--start", TRAINED)
    shorter = written(tmp_path / "shorter.csv", 0, TRAINED + 3, dated=dated)
    assert f"got 3: add rows; {line}" in refused("evaluate", run, shorter)


def test_a_file_of_later_rows_is_measured_as_soon_as_there_is_a_history(command, run, dated, tmp_path):
    later = written(tmp_path / "later.csv", TRAINED, TRAINED + 40, dated=dated)
    found = json.loads(command("evaluate", run, later, "--json").out)
    assert (found["first_row"], found["trained_rows"]) == (21, 0)
    assert "left out" not in command("evaluate", run, later).out


@pytest.mark.parametrize("dated", [True], indirect=True)
def test_some_rows_of_training_at_the_beginning_are_left_out_by_their_dates(command, run, dated, tmp_path):
    for first, first_row in ((TRAINED - 10, 21), (TRAINED - 30, 31)):
        found = json.loads(
            command("evaluate", run, written(tmp_path / "late.csv", first, ROWS + 20, dated=True), "--json").out
        )
        assert (found["first_row"], found["trained_rows"]) == (first_row, TRAINED - first)


def planned(path, out, given=frozenset(), **training):
    model = next(iter(ForecastRun.MODELS))
    asked = RunConfig(
        sources={"source": str(path)},
        data=ForecastRun.Data(target="v", horizon=4),
        model=model,
        options=ForecastRun.MODELS[model].options(hidden_size=8),
        duration=Duration(budget=20.0),
        training=ForecastRun.Training(batch_size=8, **training),
    )
    create_run(ForecastRun, asked, out, overwrite=False, given=given)
    return open_run(out).config


def test_passes_over_a_short_series_end_early_and_with_the_budget(tmp_path, monkeypatch):
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: 150.0)
    path = tmp_path / "months.csv"
    path.write_text("v\n" + "".join(f"{math.sin(n):.3f}\n" for n in range(60)))
    config = planned(path, tmp_path / "run")
    assert (config.duration.most_seconds, config.duration.budget) == (20.0, None)
    # Two models of 200 steps are validated a dozen times.
    assert (config.options.num_members, config.training.patience) == (2, 3)
    assert config.chosen()["patience"] == 3
    assert planned(path, tmp_path / "own", patience=2).training.patience == 2
    path.write_text("v\n" + "".join(f"{math.sin(n):.3f}\n" for n in range(6000)))
    assert planned(path, tmp_path / "long").training.patience is None
