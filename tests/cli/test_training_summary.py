"""The last lines of a training."""

from types import SimpleNamespace

import pytest

from chainrule_app.cli.train import show_result
from chainrule_app.tasks.config import Duration


@pytest.mark.parametrize(("best", "stale"), [(100, ""), (80, ""), (79, "; the 21 steps after it improved nothing")])
def test_a_training_that_had_stopped_improving_says_so(best, stale, tmp_path, capsys):
    run = SimpleNamespace(
        path=tmp_path,
        best=lambda *_: ({}, "1.2 nats per row"),
        next_steps=list,
        config=SimpleNamespace(duration=Duration(steps=100)),
    )
    result = SimpleNamespace(
        step=100, steps_now=100, best_step=best, best=None, best_value=None, best_rows=0, elapsed=3.0, ended_by="steps"
    )
    show_result(run, result, json=False)
    assert f"best: 1.2 nats per row, at step {best}{stale}\n" in capsys.readouterr().out
