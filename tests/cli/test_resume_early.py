"""A run that was stopped before its first checkpoint goes on, and ends as one that was not stopped."""

import pytest
from small_data import SMALL_SIZES, WRITERS

from chainrule_app.tasks import TASKS, open_run, task_class

MODELS = [(name, model) for name in WRITERS for model in task_class(name).MODELS]


def slow_but(first, cases):
    """The cases, of which all but those that begin with `first` are slow."""
    return [case if case[0] == first else pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def test_every_task_is_tried():
    assert WRITERS.keys() == TASKS.keys()


@pytest.mark.parametrize(("task", "model"), slow_but("forecast", MODELS))
def test_a_run_without_weights_is_checked_without_making_the_model(planned, tmp_path, task, model):
    """A linear autoregression was fitted on the meta device, where tensors hold no numbers."""
    planned(*WRITERS[task](tmp_path), "--model", model, "--steps", 1, "--out", tmp_path / "run")
    assert open_run(tmp_path / "run").check_size(None) > 0


@pytest.mark.parametrize(("task", "sizes"), slow_but("forecast", SMALL_SIZES.items()))
def test_a_run_that_was_stopped_before_its_first_step_ends_as_a_whole_one(planned, ok, tmp_path, task, sizes):
    data = (*WRITERS[task](tmp_path), *sizes.split(), "--steps", 2)
    ok("train", *data, "--out", tmp_path / "whole")
    planned(*data, "--out", tmp_path / "stopped")
    ok("train", "--resume", "--out", tmp_path / "stopped")
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
