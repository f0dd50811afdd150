"""A short series is learnt in a few steps: its run ends when validations stop improving, and with its budget."""

import math

from chainrule._app.tasks import open_run, size_schedule
from chainrule._app.tasks.config import Duration, RunConfig
from chainrule._app.tasks.forecast.task import ForecastTask
from chainrule._app.training_run import create_run


def planned(path, out, given=frozenset(), **training):
    model = next(iter(ForecastTask.MODELS))
    asked = RunConfig(
        sources={"source": str(path)},
        data=ForecastTask.Data(target="v", horizon=4),
        model=model,
        options=ForecastTask.MODELS[model].options(hidden_size=8),
        duration=Duration(budget=20.0),
        training=ForecastTask.Training(batch_size=8, **training),
    )
    create_run(ForecastTask, asked, out, overwrite=False, explicit_flags=given)
    return open_run(out).config


def test_passes_over_a_short_series_end_early_and_with_the_budget(tmp_path, monkeypatch):
    monkeypatch.setattr(size_schedule, "step_rate", lambda *_: 150.0)
    path = tmp_path / "months.csv"
    path.write_text("v\n" + "".join(f"{math.sin(n):.3f}\n" for n in range(60)))
    config = planned(path, tmp_path / "run")
    assert (config.duration.most_seconds, config.duration.budget) == (20.0, None)
    assert config.training.patience == 6
    assert "--patience 6" in config.chosen_flags()
    assert planned(path, tmp_path / "own", patience=2).training.patience == 2
    path.write_text("v\n" + "".join(f"{math.sin(n):.3f}\n" for n in range(6000)))
    assert planned(path, tmp_path / "long").training.patience is None
